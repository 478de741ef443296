"""The sandbox service: one pool shared by all requests, with metrics, health checks and shutdown."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeVar

from tirjudge.errors import SandboxBusy, SandboxUnavailable, logged
from tirjudge.http.protocol import invalid
from tirjudge.tools.functions import Offer
from tirjudge.types import ExecResult
from tirjudge_sandbox.channel import Calls
from tirjudge_sandbox.cost import MAX_ANSWER_BYTES, answer_bytes, check_answer
from tirjudge_sandbox.doctor import Diagnosis, diagnose
from tirjudge_sandbox.limits import Limits
from tirjudge_sandbox.metrics import SandboxMetrics
from tirjudge_sandbox.pool import SandboxPool
from tirjudge_sandbox.request import ForwardedOffer
from tirjudge_sandbox.wire import ExecuteRequest, SessionRequest, limits_of
from tirjudge_web.draining import Draining
from tirjudge_web.errors import Refused

logger = logging.getLogger(__name__)

T = TypeVar("T")

TRIAL_PROGRAM = "print(1)"
"""Program that checks whether the pool works."""


class SandboxService:
    """Runs the programs of all requests in one pool.

    Args:
        pool: an open pool. The caller closes it.
        max_answer_bytes: maximum total output and files of the programs of one request.
    """

    def __init__(self, pool: SandboxPool, *, max_answer_bytes: int = MAX_ANSWER_BYTES) -> None:
        self.pool = pool
        self.max_answer_bytes = max_answer_bytes
        self.draining = Draining()
        self.metrics = SandboxMetrics(pool.stats)
        self._started = time.time()
        self._diagnosis: Diagnosis | None = None
        self._problem: str | None = None  # why the last program could not be run; None if it could

    async def execute(
        self,
        code: str,
        *,
        bindings: Mapping[str, str | Mapping[str, str]] | None = None,
        stdin: str = "",
        files: Mapping[str, bytes] | None = None,
        fetch: Sequence[str] = (),
        limits: Limits | None = None,
        offer: Offer | ForwardedOffer | None = None,
    ) -> ExecResult:
        """Run one program and count it in the metrics. The arguments are those of `SandboxPool.run`.

        Raises:
            Refused: an argument is invalid.
            SandboxBusy, SandboxUnavailable: see `SandboxPool.run`.
            ShuttingDown: the service is shutting down and takes no programs, or the program exceeded the grace period.
        """
        self.draining.check()
        try:
            async with self.draining.limit():
                result = await self.pool.run(
                    code,
                    bindings=bindings or {},
                    stdin=stdin,
                    files=files or {},
                    fetch=fetch,
                    limits=limits,
                    offer=offer,
                )
        except ValueError as error:
            raise Refused(_problem_of_value(error)) from error
        except SandboxBusy:
            self.metrics.add_turned_away()
            raise
        except SandboxUnavailable as error:
            logger.error("a program could not be run: %s", logged(error))
            self.metrics.add_failure()
            self._problem = str(error)
            raise
        self.metrics.add(result)
        self._problem = None
        return result

    async def execute_request(self, asked: ExecuteRequest, *, calls: Calls | None = None) -> ExecResult:
        """Run the program of a request in tirjudge's format. Raises the same exceptions as `execute`.

        Args:
            asked: the request.
            calls: receives the function calls of the program of a session. None: the request is not a `SessionRequest`.
        """
        try:
            limits = None if asked.limits is None else limits_of(asked.limits, base=self.pool.limits)
        except ValueError as error:
            raise Refused(_problem_of_value(error)) from error
        return await self.execute(
            asked.code,
            bindings=asked.bindings,
            stdin=asked.stdin,
            files=asked.files,
            fetch=asked.fetch,
            limits=limits,
            offer=_offer_of(asked, calls=calls),
        )

    def check_answer(self, programs: Sequence[ExecuteRequest], *, param: str) -> None:
        """Check that the response to these programs cannot become too large.

        Raises:
            Refused: 413, the response could become larger than `max_answer_bytes`.
        """
        sizes = (
            answer_bytes(limits, fetches=bool(program.fetch))
            for program in programs
            if (limits := self._limits_of(program)) is not None
        )
        check_answer(sizes, most=self.max_answer_bytes, param=param)

    def _limits_of(self, asked: ExecuteRequest) -> Limits | None:
        """Return the limits of a program. None: the requested limits are not allowed, so the program will not run."""
        try:
            limits = limits_of(asked.limits, base=self.pool.limits)
            limits.check_within(self.pool.max_limits)
        except ValueError:
            return None
        return limits

    async def side_by_side(self, works: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
        """Run several functions concurrently, each of which runs a program. Return their results in order.

        At most twice as many functions run at a time as the pool has slots, so that other requests get slots too.
        """
        turns = asyncio.Semaphore(2 * self.pool.stats().num_slots)

        async def one(work: Callable[[], Awaitable[T]]) -> T:
            async with turns:
                return await work()

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(work)) for work in works]
        return [task.result() for task in tasks]

    def capped(self, *, time_s: float | None, memory_mb: int | None) -> Limits:
        """Return the pool's limits with changed time and memory limits, capped at the operator's maxima.

        Args:
            time_s: limit in seconds of both CPU and wall time. None: the pool's.
            memory_mb: memory limit in MiB. None: the pool's.
        """
        highest, limits = self.pool.max_limits, self.pool.limits
        if time_s is not None:
            limits = replace(limits, cpu_s=min(time_s, highest.cpu_s), wall_s=min(time_s, highest.wall_s))
        if memory_mb is not None:
            limits = replace(limits, memory_mb=min(memory_mb, highest.memory_mb))
        return limits

    async def problem(self) -> str | None:
        """Return why the service cannot run programs, or None if it can. Runs a trial program if the last one
        failed."""
        if self.draining.has_begun:
            return "the server is shutting down"
        if self._problem is None and self.pool.is_ready:
            return None
        try:
            await self.pool.run(TRIAL_PROGRAM)
        except SandboxBusy:
            return None
        except SandboxUnavailable as error:
            self._problem = str(error)
        else:
            self._problem = None
        return self._problem

    async def examine(self) -> None:
        """Diagnose this machine and store the result for `health`."""
        self._diagnosis = await diagnose(
            image=self.pool.image, slots=self.pool.stats().num_slots, limits=self.pool.limits
        )

    def health(self) -> dict[str, Any]:
        """Return the body of `GET /health`."""
        return {
            "status": "shutting down" if self.draining.has_begun else "ok",
            "uptime_s": round(time.time() - self._started, 1),
            "level": self.pool.level,
            "limits": asdict(self.pool.limits),
            "pool": asdict(self.pool.stats()),
            "doctor": None if self._diagnosis is None else asdict(self._diagnosis),
        }


def _offer_of(asked: ExecuteRequest, *, calls: Calls | None) -> Offer | ForwardedOffer:
    if calls is None or not isinstance(asked, SessionRequest):
        return Offer(watched=asked.watched, candidate_code=asked.candidate_code)
    return ForwardedOffer(
        functions=asked.functions, calls=calls, watched=asked.watched, candidate_code=asked.candidate_code
    )


def _problem_of_value(error: ValueError) -> Any:
    message = str(error)
    name = message.partition(":")[0]
    if name in Limits.__slots__:
        name, message = f"limits.{name}", f"limits.{message}"
    return invalid(message, param=name, code="invalid_value")

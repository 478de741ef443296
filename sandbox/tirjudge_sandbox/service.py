"""One pool, shared by all requests: what runs in it, whether it works, and how it comes to its end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeVar

from tirjudge.errors import SandboxBusy, SandboxUnavailable, logged
from tirjudge.http.protocol import invalid
from tirjudge.types import ExecResult
from tirjudge_sandbox.cost import MAX_ANSWER_BYTES, answer_bytes, check_answer
from tirjudge_sandbox.doctor import Diagnosis, diagnose
from tirjudge_sandbox.limits import Limits
from tirjudge_sandbox.metrics import SandboxMetrics
from tirjudge_sandbox.pool import SandboxPool
from tirjudge_sandbox.wire import ExecuteRequest, limits_of
from tirjudge_web.draining import Draining
from tirjudge_web.errors import Refused

logger = logging.getLogger(__name__)

T = TypeVar("T")

TRIAL_PROGRAM = "print(1)"


class SandboxService:
    """What the application answers from.

    Args:
        pool: open; closing it is left to whoever opened it.
        max_answer_bytes: output and files of all programs of one request.
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
    ) -> ExecResult:
        """One program, counted; the arguments are the pool's.

        Raises:
            Refused: the pool does not take what is asked for.
            SandboxBusy, SandboxUnavailable: as `SandboxPool.run`.
            ShuttingDown: no more programs are taken, or this one took longer than a service that ends waits.
        """
        self.draining.check()
        try:
            async with self.draining.limit():
                result = await self.pool.run(
                    code, bindings=bindings or {}, stdin=stdin, files=files or {}, fetch=fetch, limits=limits
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

    async def execute_request(self, asked: ExecuteRequest) -> ExecResult:
        """As `execute`, for a program that came in our own format."""
        try:
            limits = None if asked.limits is None else limits_of(asked.limits, base=self.pool.limits)
        except ValueError as error:
            raise Refused(_problem_of_value(error)) from error
        return await self.execute(
            asked.code, bindings=asked.bindings, stdin=asked.stdin, files=asked.files, fetch=asked.fetch, limits=limits
        )

    def check_answer(self, programs: Sequence[ExecuteRequest], *, param: str) -> None:
        """Whether the answer to these programs cannot become too large.

        Raises:
            Refused: 413, it can.
        """
        sizes = (
            answer_bytes(limits, fetches=bool(program.fetch))
            for program in programs
            if (limits := self._limits_of(program)) is not None
        )
        check_answer(sizes, most=self.max_answer_bytes, param=param)

    def _limits_of(self, asked: ExecuteRequest) -> Limits | None:
        """The limits of a program; None: it asks for some that it cannot have, and does not run."""
        try:
            limits = limits_of(asked.limits, base=self.pool.limits)
            limits.check_within(self.pool.max_limits)
        except ValueError:
            return None
        return limits

    async def side_by_side(self, works: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
        """Do several things that each run a program, in order of their results; they leave room for those of others."""
        turns = asyncio.Semaphore(2 * self.pool.stats().num_slots)

        async def one(work: Callable[[], Awaitable[T]]) -> T:
            async with turns:
                return await work()

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(work)) for work in works]
        return [task.result() for task in tasks]

    def capped(self, *, time_s: float | None, memory_mb: int | None) -> Limits:
        """The pool's limits with other ones for time and memory, as near as the operator's maxima let them be.

        Args:
            time_s: processor time and time on the clock alike; None: as it is.
            memory_mb: None: as it is.
        """
        highest, limits = self.pool.max_limits, self.pool.limits
        if time_s is not None:
            limits = replace(limits, cpu_s=min(time_s, highest.cpu_s), wall_s=min(time_s, highest.wall_s))
        if memory_mb is not None:
            limits = replace(limits, memory_mb=min(memory_mb, highest.memory_mb))
        return limits

    async def problem(self) -> str | None:
        """Why no program would run now; None if one would. Where there is doubt, one is run."""
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
        """Let the doctor see what this machine can do, for `health`."""
        self._diagnosis = await diagnose(
            image=self.pool.image, slots=self.pool.stats().num_slots, limits=self.pool.limits
        )

    def health(self) -> dict[str, Any]:
        """How the service is, for a person or a dashboard."""
        return {
            "status": "shutting down" if self.draining.has_begun else "ok",
            "uptime_s": round(time.time() - self._started, 1),
            "level": self.pool.level,
            "limits": asdict(self.pool.limits),
            "pool": asdict(self.pool.stats()),
            "doctor": None if self._diagnosis is None else asdict(self._diagnosis),
        }


def _problem_of_value(error: ValueError) -> Any:
    message = str(error)
    name = message.partition(":")[0]
    if name in Limits.__slots__:
        name, message = f"limits.{name}", f"limits.{message}"
    return invalid(message, param=name, code="invalid_value")

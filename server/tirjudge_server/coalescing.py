"""Coalescing: identical requests share one judgment. A request joins an identical request's judgment that is in flight.

A judgment runs while at least one request waits for it. When the last request leaves, the judgment is cancelled, including
its engine and sandbox calls. A request that joins late receives the turns that ended before.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tirjudge.deadline import NEVER, Deadline
from tirjudge.http.protocol import invalid
from tirjudge.judge import OnTurn
from tirjudge.types import JudgeRequest, Judgment, TurnRecord
from tirjudge_server.admission import QueueTicket
from tirjudge_server.call import Call
from tirjudge_web.errors import Refused

LATE_S = 1.0
"""Maximum extra seconds tolerated when sharing a judgment."""

MIN_TIME_SHARE = 0.75
"""Minimum time limit of a shared judgment, as a share of the joining request's remaining time."""

NOT_JUDGED = {"stream", "deadline_s"}
"""Request fields that do not change the judgment."""


def content_hash(request: JudgeRequest) -> str:
    """SHA-256 of the fields that determine the judgment."""
    return hashlib.sha256(request.model_dump_json(exclude=NOT_JUDGED).encode()).hexdigest()


Key = tuple[str | None, str, bool]
"""The caller, the idempotency key or content hash, and whether that is an idempotency key."""


def coalescing_key(content: str, *, call: Call) -> Key:
    """The key of a judgment in flight: the caller, and its idempotency key or the content hash.

    Callers never share judgments, so a fast response reveals nothing about the requests of other callers.
    """
    name = call.idempotency_key
    return (call.caller, content, False) if name is None else (call.caller, name, True)


class InFlightJudgment:
    """One judgment that is in flight or completed.

    Args:
        judgment_id: id of the judgment.
        content: content hash of the request.
        deadline: deadline of the judgment.
        ticket: the queue ticket; None: the judgment does not need one.

    Attributes:
        num_waiting: number of requests that wait for the judgment.
    """

    def __init__(
        self, *, judgment_id: str, content: str, deadline: Deadline = NEVER, ticket: QueueTicket | None = None
    ) -> None:
        self.judgment_id = judgment_id
        self.content = content
        self.deadline = deadline
        self.ticket = ticket
        self.num_waiting = 0
        self._total_s = deadline.left_s
        self._turns: list[tuple[Sequence[int], TurnRecord]] = []
        self._changed = asyncio.Event()
        self._work: asyncio.Future[Judgment] = asyncio.get_running_loop().create_future()

    @classmethod
    def completed(cls, judgment: Judgment, *, content: str) -> InFlightJudgment:
        """Wrap a judgment that was made before, such as one from the records."""
        made = cls(judgment_id=judgment.id, content=content)
        made._turns = [(rollout.order, turn) for rollout in judgment.rollouts for turn in rollout.turns]
        made._work.set_result(judgment)
        return made

    def start(self, work: Coroutine[Any, Any, Judgment], *, on_end: Callable[[], None]) -> None:
        """Run `work`, which makes the judgment, in a task; call `on_end` when the task has ended."""

        def ended(work: asyncio.Future[Judgment]) -> None:
            self._changed.set()
            if not work.cancelled():
                work.exception()  # mark the exception as retrieved, even if no request waits
            on_end()

        self._work = asyncio.create_task(work)
        self._work.add_done_callback(ended)

    @property
    def is_over(self) -> bool:
        """Whether the judgment was made, failed, or was cancelled."""
        return self._work.done()

    @property
    def has_failed(self) -> bool:
        """Whether the judgment failed or was cancelled."""
        return self.is_over and (self._work.cancelled() or self._work.exception() is not None)

    def fits(self, deadline: Deadline) -> bool:
        """Whether a request with this deadline can share the judgment.

        The judgment must end in time. Its own time limit must not be much shorter than the request's, because a short
        limit may force a verdict that the request's limit would not force.
        """
        in_time = self.deadline.left_s <= deadline.left_s + LATE_S
        return in_time and self._total_s >= deadline.left_s * MIN_TIME_SHARE

    async def add_turn(self, order: Sequence[int], turn: TurnRecord) -> None:
        """Record that a turn has ended."""
        self._turns.append((order, turn))
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def judgment(self, on_turn: OnTurn | None = None) -> Judgment:
        """Wait for the judgment. `on_turn` receives every turn first, including turns that ended before this call."""
        if on_turn is not None:
            await self._follow(on_turn)
        return await asyncio.shield(self._work)

    async def _follow(self, on_turn: OnTurn) -> None:
        num_sent = 0
        while True:
            changed, is_over = self._changed, self.is_over
            for turn in self._turns[num_sent:]:
                await on_turn(*turn)
                num_sent += 1
            if is_over:
                return
            await changed.wait()

    async def cancel(self) -> None:
        """Cancel the judgment and wait until its task has ended."""
        self._work.cancel()
        await asyncio.gather(self._work, return_exceptions=True)


class InFlightJudgments:
    """All judgments in flight.

    Attributes:
        num_joined: number of requests that joined a judgment in flight.
    """

    def __init__(self) -> None:
        self.num_joined = 0
        self._by_key: dict[Key, list[InFlightJudgment]] = {}

    def find(self, key: Key, *, content: str, deadline: Deadline) -> InFlightJudgment | None:
        """The judgment in flight that a request can join; None: no such judgment.

        Args:
            key: key of the request, from `coalescing_key`.
            content: content hash of the request.
            deadline: deadline of the request.

        Raises:
            Refused: 422, the caller used the same idempotency key for a different request.
        """
        is_named = key[2]
        for found in self._by_key.get(key, ()):
            if found.content != content:
                raise key_reused()
            if not found.has_failed and (is_named or found.fits(deadline)):
                return found
        return None

    def start(
        self,
        key: Key,
        *,
        in_flight: InFlightJudgment,
        work: Coroutine[Any, Any, Judgment],
        on_end: Callable[[], None],
    ) -> None:
        """Start a judgment that other requests may join.

        Args:
            key: key of the judgment, from `coalescing_key`.
            in_flight: the judgment.
            work: coroutine that makes the judgment.
            on_end: called when the judgment was made, failed or was cancelled, even if `work` never started.
        """
        self._by_key.setdefault(key, []).append(in_flight)
        in_flight.start(work, on_end=on_end)

    @asynccontextmanager
    async def waiting(self, in_flight: InFlightJudgment, *, key: Key) -> AsyncIterator[InFlightJudgment]:
        """Count one more waiting request for the length of the block; cancel the judgment when the last one leaves."""
        self.num_joined += in_flight.num_waiting > 0
        in_flight.num_waiting += 1
        try:
            yield in_flight
        finally:
            in_flight.num_waiting -= 1
            if in_flight.num_waiting == 0:
                self._by_key[key].remove(in_flight)
                if not self._by_key[key]:
                    del self._by_key[key]
                if not in_flight.is_over:
                    await in_flight.cancel()


def key_reused() -> Refused:
    """The error for an idempotency key that was used with a different request."""
    message = "idempotency-key: already used with a different request; use a new key"
    return Refused(invalid(message, param="idempotency-key", code="idempotency_key_reused"), status=422)

"""Coalescing: identical requests share one judgment; a request that comes while it is made waits for the same one.

A judgment goes on as long as a request waits for it. When the last one leaves, it is cancelled, down to the engine and
the sandbox. A request that joins late is told of the turns that it missed.
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
"""A shared judgment was given at least this share of the time that the request has."""

NOT_JUDGED = {"stream", "deadline_s"}
"""Fields of a request that do not change what is judged."""


def content_hash(request: JudgeRequest) -> str:
    """The same for requests that ask for the same judgment."""
    return hashlib.sha256(request.model_dump_json(exclude=NOT_JUDGED).encode()).hexdigest()


Key = tuple[str | None, str, bool]
"""The caller, the name or content of what it asked for, and whether that is a name."""


def coalescing_key(content: str, *, call: Call) -> Key:
    """Under which a judgment in flight is found: its caller's name for it, or what is judged. Callers do not share, so
    that a quick answer tells nothing about the requests of others."""
    name = call.idempotency_key
    return (call.caller, content, False) if name is None else (call.caller, name, True)


class InFlightJudgment:
    """One judgment that is being made, or was made.

    Args:
        judgment_id: of the judgment.
        content: hash of what is judged.
        deadline: when it will be there.
        ticket: its place in the queue; None: it needs none.
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
        """A judgment that was made before."""
        made = cls(judgment_id=judgment.id, content=content)
        made._turns = [(rollout.order, turn) for rollout in judgment.rollouts for turn in rollout.turns]
        made._work.set_result(judgment)
        return made

    def start(self, work: Coroutine[Any, Any, Judgment], *, on_end: Callable[[], None]) -> None:
        def ended(work: asyncio.Future[Judgment]) -> None:
            self._changed.set()
            if not work.cancelled():
                work.exception()  # mark it as retrieved, even if everybody has just left
            on_end()

        self._work = asyncio.create_task(work)
        self._work.add_done_callback(ended)

    @property
    def is_over(self) -> bool:
        return self._work.done()

    @property
    def has_failed(self) -> bool:
        return self.is_over and (self._work.cancelled() or self._work.exception() is not None)

    def fits(self, deadline: Deadline) -> bool:
        """Whether a request with that deadline can share it: it is there in time, and was not given so much less time that
        its verdict would be forced where that of the request would not."""
        in_time = self.deadline.left_s <= deadline.left_s + LATE_S
        return in_time and self._total_s >= deadline.left_s * MIN_TIME_SHARE

    async def add_turn(self, order: Sequence[int], turn: TurnRecord) -> None:
        """A turn has ended."""
        self._turns.append((order, turn))
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def judgment(self, on_turn: OnTurn | None = None) -> Judgment:
        """The judgment; before it `on_turn` gets every turn, those included that ended earlier."""
        if on_turn is not None:
            await self._follow(on_turn)
        return await asyncio.shield(self._work)

    async def _follow(self, on_turn: OnTurn) -> None:
        num_told = 0
        while True:
            changed, is_over = self._changed, self.is_over
            for turn in self._turns[num_told:]:
                await on_turn(*turn)
                num_told += 1
            if is_over:
                return
            await changed.wait()

    async def cancel(self) -> None:
        """End it, and wait until it has ended."""
        self._work.cancel()
        await asyncio.gather(self._work, return_exceptions=True)


class InFlightJudgments:
    """The judgments in flight.

    Attributes:
        num_joined: how many requests found theirs in flight.
    """

    def __init__(self) -> None:
        self.num_joined = 0
        self._by_key: dict[Key, list[InFlightJudgment]] = {}

    def find(self, key: Key, *, content: str, deadline: Deadline) -> InFlightJudgment | None:
        """The judgment in flight for that request; None: there is none.

        Raises:
            Refused: 422, the caller gave the same name to another request.
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
        """Begin a judgment that others may join.

        Args:
            key: under which they find it.
            in_flight: the judgment.
            work: makes it.
            on_end: called when it was made, failed or was cancelled, even if `work` had not begun.
        """
        self._by_key.setdefault(key, []).append(in_flight)
        in_flight.start(work, on_end=on_end)

    @asynccontextmanager
    async def waiting(self, in_flight: InFlightJudgment, *, key: Key) -> AsyncIterator[InFlightJudgment]:
        """One more request waits for it, until the end of the block."""
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
    """The refusal of an idempotency key that came with another request before."""
    message = "idempotency-key: it came with another request before; use a new key"
    return Refused(invalid(message, param="idempotency-key", code="idempotency_key_reused"), status=422)

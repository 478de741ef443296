"""Identical requests share one judgment: who asks again while it is made waits for the same one.

A judgment goes on as long as somebody waits for it. When the last one leaves, it is cancelled, down to the engine and
the sandbox. Whoever joins late is told of the turns that were missed.
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
"""So much later than asked a judgment may be there that is shared."""

ENOUGH_SHARE = 0.75
"""So much of one's own time a judgment must have been given to be shared."""

NOT_JUDGED = {"stream", "deadline_s"}
"""Fields of a request that do not change what is judged."""


def content_hash(request: JudgeRequest) -> str:
    """The same for requests that ask for the same judgment."""
    return hashlib.sha256(request.model_dump_json(exclude=NOT_JUDGED).encode()).hexdigest()


Key = tuple[str | None, str, bool]
"""The caller, the name or content of what it asked for, and whether that is a name."""


def coalescing_key(content: str, *, call: Call) -> Key:
    """Under which a judgment in flight is found: its caller's name for it, or what is judged. Callers do not share: nobody
    can tell from a quick answer what others asked."""
    name = call.idempotency_key
    return (call.caller, content, False) if name is None else (call.caller, name, True)


class InFlightJudgment:
    """One judgment that is being made, or was made.

    Args:
        judgment_id: of the judgment.
        content: hash of what is judged.
        deadline: when it will be there.
        place: in the queue; None: it needs none.
    """

    def __init__(
        self, *, judgment_id: str, content: str, deadline: Deadline = NEVER, place: QueueTicket | None = None
    ) -> None:
        self.judgment_id = judgment_id
        self.content = content
        self.deadline = deadline
        self.place = place
        self._all_of_its_time_s = deadline.left_s
        self.num_waiting = 0
        self._turns: list[tuple[Sequence[int], TurnRecord]] = []
        self._news = asyncio.Event()
        self._work: asyncio.Future[Judgment] = asyncio.get_running_loop().create_future()

    @classmethod
    def landed(cls, judgment: Judgment, *, content: str) -> InFlightJudgment:
        """One that was made before."""
        flight = cls(judgment_id=judgment.id, content=content)
        flight._turns = [(rollout.order, turn) for rollout in judgment.rollouts for turn in rollout.turns]
        flight._work.set_result(judgment)
        return flight

    def begin(self, work: Coroutine[Any, Any, Judgment], *, on_end: Callable[[], None]) -> None:
        self._work = asyncio.create_task(work)
        self._work.add_done_callback(self._land)
        self._work.add_done_callback(lambda _: on_end())

    @property
    def is_over(self) -> bool:
        return self._work.done()

    @property
    def has_failed(self) -> bool:
        return self.is_over and (self._work.cancelled() or self._work.exception() is not None)

    def suits(self, deadline: Deadline) -> bool:
        """Whether it does for somebody with that deadline: it is there in time, and was not given so much less of it that
        its verdict would be forced where theirs would not."""
        in_time = self.deadline.left_s <= deadline.left_s + LATE_S
        return in_time and self._all_of_its_time_s >= deadline.left_s * ENOUGH_SHARE

    async def tell(self, order: Sequence[int], turn: TurnRecord) -> None:
        """A turn has ended."""
        self._turns.append((order, turn))
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def judgment(self, on_turn: OnTurn | None = None) -> Judgment:
        """The judgment, and before it every turn, those included that ended before anybody listened."""
        if on_turn is not None:
            await self._follow(on_turn)
        return await asyncio.shield(self._work)

    async def _follow(self, on_turn: OnTurn) -> None:
        num_told = 0
        while True:
            news, is_over = self._news, self.is_over
            for turn in self._turns[num_told:]:
                await on_turn(*turn)
                num_told += 1
            if is_over:
                return
            await news.wait()

    def _land(self, work: asyncio.Future[Judgment]) -> None:
        self._news.set()
        if not work.cancelled():
            work.exception()  # now it counts as seen, even if everybody left in this moment

    async def cancel(self) -> None:
        """End it, and wait until it has ended."""
        self._work.cancel()
        await asyncio.gather(self._work, return_exceptions=True)


class Flights:
    """The judgments in flight.

    Attributes:
        num_joined: how many requests found theirs in flight.
    """

    def __init__(self) -> None:
        self.num_joined = 0
        self._flights: dict[Key, list[InFlightJudgment]] = {}

    def find(self, key: Key, *, content: str, deadline: Deadline) -> InFlightJudgment | None:
        """The judgment in flight for that request; None: there is none.

        Raises:
            Refused: 422, the caller gave the same name to another request.
        """
        is_named = key[2]
        for flight in self._flights.get(key, ()):
            if flight.content != content:
                message = "idempotency-key: it came with another request before; a new key would do"
                raise Refused(invalid(message, param="idempotency-key", code="idempotency_key_reused"), status=422)
            if not flight.has_failed and (is_named or flight.suits(deadline)):
                return flight
        return None

    def board(
        self, key: Key, *, flight: InFlightJudgment, work: Coroutine[Any, Any, Judgment], on_end: Callable[[], None]
    ) -> None:
        """Begin a judgment that others may join.

        Args:
            key: under which they find it.
            flight: the judgment.
            work: makes it.
            on_end: called when it was made, failed or was cancelled, even if `work` had not begun.
        """
        self._flights.setdefault(key, []).append(flight)
        flight.begin(work, on_end=on_end)

    @asynccontextmanager
    async def waiting(self, flight: InFlightJudgment, *, key: Key) -> AsyncIterator[InFlightJudgment]:
        """One more waits for it, until the end of the block."""
        self.num_joined += flight.num_waiting > 0
        flight.num_waiting += 1
        try:
            yield flight
        finally:
            flight.num_waiting -= 1
            if flight.num_waiting == 0:
                self._forget(flight, key=key)
                if not flight.is_over:
                    await flight.cancel()

    def _forget(self, flight: InFlightJudgment, *, key: Key) -> None:
        self._flights[key].remove(flight)
        if not self._flights[key]:
            del self._flights[key]

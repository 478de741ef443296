"""Who is judged now and who waits: first come, first served, and no more than a fixed number of both.

Everything happens in one event loop and between two awaits, so there is nothing to lock.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import fmean
from time import perf_counter

NUM_REMEMBERED = 64
"""Over how many of the last judgments a duration is averaged."""


class QueueFull(Exception):
    """As many wait as may; come back after `retry_after_s`."""

    def __init__(self, *, num_waiting: int, retry_after_s: float) -> None:
        super().__init__(f"{num_waiting} requests are waiting already; try again in {retry_after_s:.1f} s")
        self.retry_after_s = retry_after_s


@dataclass(slots=True, eq=False)
class Place:
    """One request's place, from its arrival to its end."""

    arrived: float = field(default_factory=perf_counter)
    began: float | None = None
    """None while it waits."""
    _turn: asyncio.Event = field(default_factory=asyncio.Event)

    async def turn(self) -> float:
        """Wait until it is this request's turn; how many seconds that took since it arrived."""
        await self._turn.wait()
        assert self.began is not None
        return self.began - self.arrived

    def begin(self) -> None:
        self.began = perf_counter()
        self._turn.set()


class Admission:
    """Lets in `max_running` at a time.

    Args:
        max_running: how many are judged side by side.
        max_waiting: how many may wait; one more is turned away.
    """

    def __init__(self, *, max_running: int, max_waiting: int) -> None:
        self.max_running = max_running
        self.max_waiting = max_waiting
        self._running: set[Place] = set()
        self._waiting: deque[Place] = deque()
        self._durations: deque[float] = deque(maxlen=NUM_REMEMBERED)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @contextmanager
    def enter(self) -> Iterator[Place]:
        """Take a place at the end of the queue, and give it up at the end of the block, judged or not.

        Raises:
            QueueFull: there is none.
        """
        if self.num_running == self.max_running and self.num_waiting == self.max_waiting:
            raise QueueFull(num_waiting=self.num_waiting, retry_after_s=self.retry_after_s())
        place = Place()
        self._waiting.append(place)
        self._fill()
        try:
            yield place
        finally:
            self._leave(place)

    def retry_after_s(self) -> float:
        """When half of those who wait now will likely be through, so that there is room and the queue never ran dry."""
        if not self._durations:
            return 1.0
        return max(0.1, fmean(self._durations) * (self.num_waiting + 1) / 2 / self.max_running)

    def _leave(self, place: Place) -> None:
        if place.began is None:
            self._waiting.remove(place)
            return
        self._running.remove(place)
        self._durations.append(perf_counter() - place.began)
        self._fill()

    def _fill(self) -> None:
        while self._waiting and self.num_running < self.max_running:
            place = self._waiting.popleft()
            self._running.add(place)
            place.begin()


def retry_headers(retry_after_s: float) -> dict[str, str]:
    """Both spellings: whole seconds for everybody, milliseconds for clients that look."""
    return {
        "retry-after": str(max(1, math.ceil(retry_after_s))),
        "retry-after-ms": str(math.ceil(retry_after_s * 1000)),
    }

"""The deadline of a judgment, and the part of its time that is reserved for forcing the verdict.

A deadline has four instants on the monotonic clock of the event loop, in this order:

- `forces_at`: generation and tool calls stop, and verdicts are forced from the turns written so far.
- `reads_until`: reading of verdict probabilities stops.
- `ends_at`: the judgment must be complete.
- `gives_up_at`: work that still hangs, such as a tokenizer behind HTTP, is cancelled.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

RESERVE_SHARE = 0.2
"""Share of the time that is reserved for forcing verdicts."""

MAX_RESERVE_S = 5.0
"""Maximum reserve in seconds. Reading a verdict takes one or two short completions."""

CLOSING_SHARE = 0.1
"""Share of the reserve that remains after `reads_until`, for assembling the judgment."""

LATE_S = 1.0
"""Seconds from `ends_at` to `gives_up_at`."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """Deadline of one judgment. Create and use it inside the event loop."""

    ends_at: float | None
    """Instant of the event loop's clock, in seconds. None: no deadline."""
    reserve_s: float = 0.0
    """Time before `ends_at` that is reserved for forcing verdicts, in seconds."""

    @classmethod
    def after(cls, seconds: float | None) -> Deadline:
        """Return a deadline that many seconds from now. None: no deadline."""
        if seconds is None:
            return NEVER
        reserve_s = min(seconds * RESERVE_SHARE, MAX_RESERVE_S)
        return cls(ends_at=asyncio.get_running_loop().time() + seconds, reserve_s=reserve_s)

    @property
    def forces_at(self) -> float | None:
        """Instant at which generation stops and verdicts are forced. None: no deadline."""
        return None if self.ends_at is None else self.ends_at - self.reserve_s

    @property
    def reads_until(self) -> float | None:
        """Instant at which reading of verdict probabilities stops. None: no deadline."""
        return None if self.ends_at is None else self.ends_at - self.reserve_s * CLOSING_SHARE

    @property
    def gives_up_at(self) -> float | None:
        """Instant at which hanging work is cancelled. None: no deadline."""
        return None if self.ends_at is None else self.ends_at + LATE_S

    @property
    def left_s(self) -> float:
        """Seconds from now to `ends_at`; infinite without a deadline."""
        return math.inf if self.ends_at is None else self.ends_at - asyncio.get_running_loop().time()

    @property
    def is_near(self) -> bool:
        """Whether `forces_at` has passed."""
        return self.forces_at is not None and asyncio.get_running_loop().time() >= self.forces_at


NEVER = Deadline(ends_at=None)
"""No deadline."""


async def until(instant: float | None, work: Coroutine[Any, Any, T]) -> T | None:
    """Await a coroutine and return its result, or cancel it at `instant` of the event loop's clock and return None."""
    timeout = asyncio.timeout_at(instant)
    try:
        async with timeout:
            return await work
    except TimeoutError:
        if not timeout.expired():
            raise
        return None

"""Measure how work grows with the length of a text: compare the CPU times for a text and for one four times as long.

The ratio of two measurements does not depend on the speed of the machine. Linear work has a ratio of 4, or 5 to 6 if
caches overflow. Quadratic work has a ratio of 16. On a busy machine, overflowing caches can cost more; a text 16 times
as long then decides: 16 or somewhat more for linear work, 256 for quadratic work.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

EXPONENT = 1.5
"""Smallest growth that does not count as linear: the ratio of the lengths to this power."""

ENOUGH_S = 0.002
"""Smallest CPU time that is compared, in seconds. The smaller size is raised until its work takes this long."""

LAST_SIZE = 1 << 18
"""Largest size of the smaller text, in characters."""

NUM_TRIES = 6
"""Number of repeated measurements of work that does not look linear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """CPU times for a text and for a longer one."""

    size: int
    """Number of characters of the smaller text."""
    factor: int = 4
    """Length of the larger text, divided by that of the smaller one."""
    small_s: float
    """CPU time for the smaller text, in seconds."""
    large_s: float
    """CPU time for the larger text, in seconds."""

    @property
    def ratio(self) -> float:
        """CPU time for the larger text, divided by that for the smaller one."""
        return self.large_s / self.small_s

    @property
    def is_linear(self) -> bool:
        """Whether the work is linear. Work too short to be measured at the larger size counts as linear."""
        return self.ratio < self.factor**EXPONENT or self.large_s < ENOUGH_S


def growth_of(feed: Callable[[str], object], shape: Callable[[int], str], *, first_size: int) -> Growth:
    """Measure the growth of work on texts of one shape. Repeat the measurement while it does not look linear.

    Args:
        feed: the work. ValueError and RecursionError are ignored.
        shape: function that returns a text of about the given number of characters.
        first_size: number of characters of the first text.
    """
    size, small_s = first_size, _seconds(feed, shape(first_size))
    while small_s < ENOUGH_S and size < LAST_SIZE:
        size *= 2 if small_s > ENOUGH_S / 4 else 4
        small_s = _seconds(feed, shape(size))
    growth = Growth(size=size, small_s=small_s, large_s=math.inf)
    for factor in (4, 16):
        large = shape(factor * size)
        growth = replace(growth, factor=factor, large_s=_seconds(feed, large))
        for _ in range(NUM_TRIES):
            if growth.is_linear:
                return growth
            growth = replace(
                growth,
                small_s=min(growth.small_s, _seconds(feed, shape(size))),
                large_s=min(growth.large_s, _seconds(feed, large)),
            )
    return growth


def _seconds(feed: Callable[[str], object], text: str) -> float:
    """Return the CPU seconds of this thread for the work on a text."""
    gc.collect(0)
    gc.disable()
    start = time.thread_time()
    try:
        feed(text)
    except (ValueError, RecursionError):
        pass
    finally:
        elapsed_s = time.thread_time() - start
        gc.enable()
    return elapsed_s

"""How the work on a text grows with its length: processor time of one size against that of four times the size.

A ratio of two measurements is no duration, so a slow or busy machine does not fail it. Linear work has a ratio of 4, and of
5 or 6 where caches overflow; quadratic work has 16.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass

MOST = 8.0
"""The ratio from which on work does not count as linear."""

ENOUGH_S = 0.002
"""Processor time that can be compared: the smaller size is raised until it takes this long."""

LAST_SIZE = 1 << 18
"""Characters of the largest text that is tried as the smaller of two."""

NUM_TRIES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Two measurements."""

    size: int
    """Of the smaller text."""
    small_s: float
    large_s: float

    @property
    def ratio(self) -> float:
        return self.large_s / self.small_s

    @property
    def is_linear(self) -> bool:
        """Work that takes no measurable time at the larger size is taken for linear."""
        return self.ratio < MOST or self.large_s < ENOUGH_S


def growth_of(feed: Callable[[str], object], shape: Callable[[int], str], *, first_size: int) -> Growth:
    """The growth of the work on texts of one shape; measured again while it does not look linear, to be sure.

    Args:
        feed: does the work. An error that it raises is an answer like any other.
        shape: number of characters -> a text of about that length.
        first_size: characters of the smallest text.
    """
    size, small_s = first_size, _seconds(feed, shape(first_size))
    while small_s < ENOUGH_S and size < LAST_SIZE:
        size *= 2 if small_s > ENOUGH_S / 4 else 4
        small_s = _seconds(feed, shape(size))
    small, large = shape(size), shape(4 * size)
    growth = Growth(size=size, small_s=small_s, large_s=_seconds(feed, large))
    for _ in range(NUM_TRIES):
        if growth.is_linear:
            break
        growth = Growth(
            size=size,
            small_s=min(growth.small_s, _seconds(feed, small)),
            large_s=min(growth.large_s, _seconds(feed, large)),
        )
    return growth


def _seconds(feed: Callable[[str], object], text: str) -> float:
    """Processor time of this thread."""
    gc.collect(0)
    gc.disable()
    begun = time.thread_time()
    try:
        feed(text)
    except (ValueError, RecursionError):
        pass
    finally:
        taken = time.thread_time() - begun
        gc.enable()
    return taken

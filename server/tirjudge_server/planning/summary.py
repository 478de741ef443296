"""What a simulated run came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """Of the time after the warm-up. Seconds of judgments run from the call to the answer."""

    num_judgments: int
    seconds: float
    per_s: float
    """Judgments."""
    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    mean_queue_s: float
    """In the server's queue, before a place was free."""
    p95_queue_s: float
    mean_inside: float
    """Judgments in the queue and under way, over time."""
    engine_use: float
    """Share of the time in which an engine computes, the mean of all."""
    least_engine_use: float
    most_engine_use: float
    """Of the whole run, the warm-up included."""
    mean_batch: float
    """Sequences in the batch of an engine that computes."""
    decoded_per_s: float
    """Tokens."""
    cached_share: float
    """Of all prompt tokens of all turns."""
    sandbox_use: float
    """Share of the time in which a slot is busy."""
    sandbox_wait_s: float
    """Mean, of a program for a slot."""
    server_use: float
    """Share of the time in which a server's processor is busy."""
    num_retried: int
    """Turns that were asked again because an engine died."""
    num_deaths: int
    num_events: int


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which that share of them lies; 0 of none.

    >>> quantile([1.0, 2.0, 3.0, 4.0], 0.5)
    2.5
    """
    if not ordered:
        return 0.0
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])

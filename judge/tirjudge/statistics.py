"""Confidence interval of a proportion."""

from __future__ import annotations

import math

Z_95 = 1.959963984540054
"""The 97.5 % quantile of the standard normal distribution."""


def wilson_interval(successes: float, *, num_trials: float, z: float = Z_95) -> tuple[float, float]:
    """Return the lower and upper bound of the Wilson score interval of a proportion (Wilson 1927).

    Args:
        successes: number of successes. A tie may count as a fraction.
        num_trials: number of trials, at least 1. An effective number may be a fraction.
        z: quantile of the standard normal distribution. Default: 95 % confidence.

    Raises:
        ValueError: `num_trials` is less than 1.

    >>> [round(end, 4) for end in wilson_interval(8, num_trials=10)]
    [0.4902, 0.9433]
    """
    if num_trials < 1:
        raise ValueError(f"num_trials: {num_trials} given; give at least 1")
    share = successes / num_trials
    spread = z * math.sqrt(share * (1 - share) / num_trials + z * z / (4 * num_trials * num_trials))
    center = share + z * z / (2 * num_trials)
    scale = 1 + z * z / num_trials
    low, high = (center - spread) / scale, (center + spread) / scale
    # The interval contains the observed share. Rounding must not exclude it at 0 and 1.
    return max(0.0, min(low, share)), min(1.0, max(high, share))


def ratio(part: float, *, of: int) -> float | None:
    """Return `part / of`; None if `of` is 0."""
    return part / of if of else None

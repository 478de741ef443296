"""Correction of p-values for multiple tests."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values corrected for multiple tests by Holm's step-down method, in the order given.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        highest = max(highest, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = highest
    return adjusted


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Return the p-values corrected by the method of Benjamini and Hochberg (1995), in the order given.

    Of the differences with a corrected p-value of at most q, an expected share of at most q is not there (false discovery
    rate). Holm's method bounds the probability of a single one, and so finds fewer.

    Raises:
        ImportError: scipy is not installed.
    """
    from scipy.stats import false_discovery_control

    return [float(p) for p in false_discovery_control(p_values)] if p_values else []


class Correction(StrEnum):
    """How p-values are corrected for multiple tests."""

    HOLM = "holm"
    BH = "bh"

    @property
    def heading(self) -> str:
        """Name for readers."""
        return {"holm": "Holm", "bh": "Benjamini-Hochberg"}[self.value]

    def of(self, p_values: Sequence[float | None]) -> list[float | None]:
        """Return the corrected p-values. None stays None and is not counted as a test."""
        adjust = holm if self is Correction.HOLM else benjamini_hochberg
        adjusted = iter(adjust([p for p in p_values if p is not None]))
        return [None if p is None else next(adjusted) for p in p_values]

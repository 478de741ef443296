"""Calibration of a judge's confidence over bins: the expected calibration error (ECE) and the Brier score."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from tirjudge.statistics import wilson_interval

NUM_BINS = 10
"""Default number of bins of confidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """The judge's confidence in one choice, and whether the choice is right."""

    value: float
    """Probability of the choice, 0 to 1."""
    is_right: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """The choices with a confidence in (low, high]."""

    low: float
    high: float
    num: int
    """Number of choices."""
    confidence: float
    """Mean confidence."""
    accuracy: float
    """Share of right choices."""
    interval: tuple[float, float]
    """Wilson's 95 % interval of the accuracy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Calibration over bins of confidence. Figures are None without choices."""

    num: int
    """Number of choices."""
    bins: tuple[Bin, ...]
    """The bins that are not empty."""
    expected_error: float | None
    """Expected calibration error (ECE): mean of |confidence - accuracy| over bins, weighted by `num`."""
    largest_error: float | None
    """Maximum of |confidence - accuracy| over bins."""
    brier: float | None
    """Brier score: mean of (confidence - 1 if right, else - 0) squared."""
    accuracy: float | None
    """Share of right choices."""
    confidence: float | None
    """Mean confidence."""


def calibration_of(confidences: Sequence[Confidence], *, num_bins: int = NUM_BINS) -> Calibration:
    """Return the calibration over bins of equal width."""
    by_bin: dict[int, list[Confidence]] = defaultdict(list)
    for one in confidences:
        by_bin[_bin(one.value, num_bins=num_bins)].append(one)
    bins = tuple(_bin_of(by_bin[index], index=index, num_bins=num_bins) for index in sorted(by_bin))
    num = len(confidences)
    errors = [abs(each.accuracy - each.confidence) for each in bins]
    return Calibration(
        num=num,
        bins=bins,
        expected_error=sum(e * each.num for e, each in zip(errors, bins, strict=True)) / num if num else None,
        largest_error=max(errors, default=None),
        brier=fmean((one.value - one.is_right) ** 2 for one in confidences) if num else None,
        accuracy=fmean(one.is_right for one in confidences) if num else None,
        confidence=fmean(one.value for one in confidences) if num else None,
    )


def _bin(value: float, *, num_bins: int) -> int:
    """Return the index of the bin of a value. Bins include their upper bound."""
    index = min(num_bins - 1, int(value * num_bins))
    return index - 1 if index and value <= index / num_bins else index


def _bin_of(members: Sequence[Confidence], *, index: int, num_bins: int) -> Bin:
    right = sum(one.is_right for one in members)
    return Bin(
        low=index / num_bins,
        high=(index + 1) / num_bins,
        num=len(members),
        confidence=fmean(one.value for one in members),
        accuracy=right / len(members),
        interval=wilson_interval(right, num_trials=len(members)),
    )

"""Whether a judge is as often right as it is sure, and how right it is where it is most sure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean

from tirjudge.statistics import wilson_interval
from tirjudge.types import Mode, RolloutVerdict
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.metric_tree import ComparisonScore
from tirjudge_harness.statistics.intervals import Interval

NUM_BINS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """One choice, how sure the judge was of it, and whether it is right."""

    value: float
    """0 to 1: the probability of what was chosen."""
    is_right: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """The choices whose confidence lies between two bounds: above the lower one, up to the upper one."""

    low: float
    high: float
    num: int
    confidence: float
    """The mean."""
    accuracy: float
    interval: Interval
    """Wilson's, of the accuracy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    num: int
    bins: tuple[Bin, ...]
    """Those that are not empty."""
    expected_error: float | None
    """ECE: the mean distance of confidence and accuracy, each bin by its number; None of nothing."""
    largest_error: float | None
    """The distance in the worst bin."""
    brier: float | None
    """The mean square of confidence less 1 for right, 0 for wrong."""
    accuracy: float | None
    confidence: float | None
    """The mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What is left if the judge is heard only where it is sure enough."""

    threshold: float
    """Choices at least so sure are kept."""
    share: float
    """Of the choices that are kept."""
    accuracy: float
    """Of those."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selective:
    curve: tuple[Coverage, ...]
    """From the surest choice alone to all of them; choices that are equally sure come together."""
    area: float | None
    """The mean accuracy over all coverages, 1/n to 1, equally sure choices in any order; None of nothing."""


def confidences_of(judged: Sequence[JudgedExample], *, marks: Sequence[ComparisonScore] = ()) -> list[Confidence]:
    """Every choice that came with a probability.

    Pairwise and listwise, one of each decision: the probability of the response that it names. Pointwise, one of each mark
    of two responses: P(the score of the higher > the other's) + half of P(equal), from the judge's two distributions of
    scores, where the higher is the one of the higher mean; with equal means there is no choice.

    Args:
        judged: one run.
        marks: its comparisons; only pointwise judgments need them.
    """
    compared: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    for mark in marks:
        compared[mark.outline.id].append(mark.compared)
    found: list[Confidence] = []
    for one in judged:
        found += _of_scores(one, compared[one.outline.id]) if one.mode is Mode.POINTWISE else _of_choices(one)
    return found


def calibration_of(confidences: Sequence[Confidence], *, num_bins: int = NUM_BINS) -> Calibration:
    """Reliability over bins of equal width."""
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


def selective_of(confidences: Sequence[Confidence]) -> Selective:
    """Accuracy against coverage, the surest choices first."""
    ordered = sorted(confidences, key=lambda one: -one.value)
    num, right, total = 0, 0, 0.0
    curve: list[Coverage] = []
    for threshold, equally_sure in groupby(ordered, key=lambda one: one.value):
        members = list(equally_sure)
        gained = sum(one.is_right for one in members)
        total += sum((right + gained * count / len(members)) / (num + count) for count in range(1, len(members) + 1))
        num, right = num + len(members), right + gained
        curve.append(Coverage(threshold=threshold, share=num / len(ordered), accuracy=right / num))
    return Selective(curve=tuple(curve), area=total / num if num else None)


def _of_choices(judged: JudgedExample) -> list[Confidence]:
    return [
        Confidence(
            value=decision.probabilities[decision.shown.index(decision.best)],
            is_right=decision.best in judged.outline.correct,
        )
        for decision in judged.decisions
        if decision.best is not None and decision.probabilities is not None
    ]


def _of_scores(judged: JudgedExample, compared: Sequence[tuple[int, ...]]) -> list[Confidence]:
    distributions = _distributions(judged)
    found: list[Confidence] = []
    for pair in compared:
        known = [index for index in pair if index in distributions]
        if len(pair) != 2 or len(known) < 2:
            continue
        worse, better = sorted(known, key=lambda index: _mean(distributions[index]))
        if _mean(distributions[worse]) < _mean(distributions[better]):
            value = _chance_of_more(distributions[better], distributions[worse])
            found.append(Confidence(value=value, is_right=better in judged.outline.correct))
    return found


def _chance_of_more(first: Mapping[int, float], second: Mapping[int, float]) -> float:
    """P(the first is more) + P(they are equal) / 2."""
    more = sum(p * q for score, p in first.items() for other, q in second.items() if score > other)
    equal = sum(p * second.get(score, 0.0) for score, p in first.items())
    return min(1.0, more + equal / 2)


def _mean(distribution: Mapping[int, float]) -> float:
    return math.fsum(score * p for score, p in distribution.items())


def _distributions(judged: JudgedExample) -> dict[int, dict[int, float]]:
    """Of each response: score -> probability, the mean over its votes."""
    verdicts: dict[int, list[RolloutVerdict]] = defaultdict(list)
    for judgment, decisions in judged.by_judgment():
        for rollout, decision in zip(judgment.rollouts, decisions, strict=True):
            if rollout.verdict is not None:
                verdicts[decision.shown[0]].append(rollout.verdict)
    return {
        index: {
            int(label): fmean(vote.probabilities.get(label, 0.0) for vote in votes)
            for label in sorted({label for vote in votes for label in vote.probabilities}, key=int)
        }
        for index, votes in verdicts.items()
    }


def _bin(value: float, *, num_bins: int) -> int:
    """Its place: above index / num_bins, up to the next."""
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

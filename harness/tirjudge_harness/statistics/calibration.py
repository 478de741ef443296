"""Confidences of judged examples, and selective accuracy."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean

from tirjudge.calibration import Confidence
from tirjudge.types import Mode, RolloutVerdict
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.metric_tree import ComparisonScore


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Accuracy over the choices with at least a threshold of confidence."""

    threshold: float
    """Minimum confidence of the kept choices."""
    share: float
    """Share of choices that are kept, 0 to 1."""
    accuracy: float
    """Share of right choices among the kept ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selective:
    """Selective accuracy: accuracy against coverage."""

    curve: tuple[Coverage, ...]
    """One point per distinct confidence, in descending order of confidence."""
    area: float | None
    """Mean accuracy over all coverages from 1/n to 1. Choices with equal confidence count in every order. None: no
    choices."""


def confidences_of(judged: Sequence[JudgedExample], *, marks: Sequence[ComparisonScore] = ()) -> list[Confidence]:
    """Return the confidence of every choice with known probabilities.

    Pairwise and listwise: one confidence per decision, the probability of the chosen response. A decision counts if a right
    and a wrong response were shown: no choice is right in a row that people call a tie. Pointwise: one confidence per
    comparison of two responses. The choice is the response whose distribution of scores has the higher
    mean; its confidence is P(its score > the other score) + P(equal scores) / 2. Equal means do not count as a choice.

    Args:
        judged: the examples of one run.
        marks: the comparisons of the run; needed for pointwise judgments only.
    """
    compared: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    for mark in marks:
        compared[mark.outline.id].append(mark.compared)
    found: list[Confidence] = []
    for one in judged:
        found += _of_scores(one, compared[one.outline.id]) if one.mode is Mode.POINTWISE else _of_choices(one)
    return found


def selective_of(confidences: Sequence[Confidence]) -> Selective:
    """Return accuracy against coverage, in descending order of confidence."""
    ordered = sorted(confidences, key=lambda one: -one.value)
    num, right, total = 0, 0, 0.0
    curve: list[Coverage] = []
    for threshold, group in groupby(ordered, key=lambda one: one.value):
        members = list(group)
        num_right = sum(one.is_right for one in members)
        total += sum((right + num_right * count / len(members)) / (num + count) for count in range(1, len(members) + 1))
        num, right = num + len(members), right + num_right
        curve.append(Coverage(threshold=threshold, share=num / len(ordered), accuracy=right / num))
    return Selective(curve=tuple(curve), area=total / num if num else None)


def _of_choices(judged: JudgedExample) -> list[Confidence]:
    right = judged.outline.correct
    return [
        Confidence(value=decision.probabilities[decision.shown.index(decision.best)], is_right=decision.best in right)
        for decision in judged.decisions
        if decision.best is not None and decision.probabilities is not None
        if len({shown in right for shown in decision.shown}) > 1
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
            value = _probability_of_more(distributions[better], distributions[worse])
            found.append(Confidence(value=value, is_right=better in judged.outline.correct))
    return found


def _probability_of_more(first: Mapping[float, float], second: Mapping[float, float]) -> float:
    """Return P(first > second) + P(first = second) / 2."""
    more = sum(p * q for score, p in first.items() for other, q in second.items() if score > other)
    equal = sum(p * second.get(score, 0.0) for score, p in first.items())
    return min(1.0, more + equal / 2)


def _mean(distribution: Mapping[float, float]) -> float:
    return math.fsum(score * p for score, p in distribution.items())


def _distributions(judged: JudgedExample) -> dict[int, dict[float, float]]:
    """Return the distribution of each response, score -> probability, as the mean over its votes."""
    verdicts: dict[int, list[RolloutVerdict]] = defaultdict(list)
    for judgment, decisions in judged.by_judgment():
        if judgment.decided_as_whole:  # its scores have no distribution
            continue
        for rollout, decision in zip(judgment.rollouts, decisions, strict=True):
            if rollout.verdict is not None and decision.has_verdict:
                verdicts[decision.shown[0]].append(rollout.verdict)
    return {
        index: {
            float(label): fmean(vote.probabilities.get(label, 0.0) for vote in votes)
            for label in sorted({label for vote in votes for label in vote.probabilities}, key=float)
        }
        for index, votes in verdicts.items()
    }

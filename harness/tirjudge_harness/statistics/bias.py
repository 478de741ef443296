"""What sways a judge besides the answer: the order in which responses are shown, and their length."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tirjudge.right import Decision
from tirjudge.statistics import Z_95
from tirjudge.verdict import majority
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.examples import ExampleMetadata
from tirjudge_harness.metric_tree import ComparisonScore
from tirjudge_harness.statistics.binomial import binomial_test
from tirjudge_harness.statistics.intervals import Estimate, clustered_share, codes_of

MOST_STEPS = 25
"""Newton's method needs fewer than ten; where truth and length tell every verdict it never ends."""

_LONGEST_STEP = 5.0
"""The most that one step may change any log-odds, so that none oversteps."""

_SINGULAR = 1e12
"""A matrix of a condition number above this tells one weight from the other no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flips:
    """Comparisons of two that were decided in both orders."""

    rate: Estimate
    """Of those in which the two orders name different responses."""
    num_first: int
    """Flips in which what was shown first was named both times."""
    num_second: int
    num_undecided: int
    """Comparisons that were shown in both orders, and at least one of them was tied or gave no verdict: in no rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """What was named, by where it was shown; one for each number of responses shown."""

    num_shown: int
    named: tuple[Estimate, ...]
    """P(the one in this place is named), place by place; without a bias each is 1 / `num_shown`."""
    accuracy: tuple[Estimate, ...]
    """Share of verdicts that are right, by the place of the right response; where there is one right response."""
    p_value: float
    """Exact and two-sided: of how often the first place is named. Two orders of one comparison are one trial: whether
    the first is named more often than the second; if each is named once it says nothing. Votes are a majority."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """Whether the longer of two responses is named more often than it deserves."""

    longer_named: Estimate
    """Of the decided comparisons of a right and a wrong response of unequal lengths."""
    longer_right: Estimate
    """Of the same: how often the longer one is right."""
    slope: Estimate | None
    """By how much the log-odds of a response rise with the log of its length over the other's, beside being right.
    Its interval has errors
    clustered by prompt. 0: length does not sway the judge. None: too few verdicts of each kind to tell."""


def flips_of(judged: Sequence[JudgedExample]) -> Flips:
    """How often the order decides, over the comparisons of two that were shown both ways."""
    flipped: list[tuple[str, float]] = []
    num_first = num_second = num_undecided = 0
    for outline, orders in _comparisons(judged, num_shown=2):
        if len(orders) < 2:
            continue
        named = [_place(order, votes) for order, votes in orders.items()]
        if None in named:
            num_undecided += 1
            continue
        flipped.append((outline.cluster, float(named[0] == named[1])))  # the same place is the other response
        num_first += named == [0, 0]
        num_second += named == [1, 1]
    return Flips(rate=clustered_share(flipped), num_first=num_first, num_second=num_second, num_undecided=num_undecided)


def positions_of(judged: Sequence[JudgedExample]) -> list[Position]:
    """Position bias, for each number of responses that were shown together, the smallest first."""
    sizes = {len(d.shown) for one in judged for d in one.decisions if len(d.shown) > 1 and d.best in d.shown}
    return [_position(judged, num_shown=size) for size in sorted(sizes)]


def length_of(marks: Sequence[ComparisonScore]) -> Length:
    """Length bias over the marks of one right response against one wrong one that were decided.

    Args:
        marks: best counted by the first order alone: what two orders add up to hides what each named.
    """
    found = [
        (mark.outline.cluster, ratio, mark.result == "right")
        for mark in marks
        if mark.result in ("right", "wrong") and (ratio := _log_length_ratio(mark)) is not None
    ]
    unequal = [(cluster, ratio > 0, named) for cluster, ratio, named in found if ratio]
    return Length(
        longer_named=clustered_share((cluster, float(named == longer)) for cluster, longer, named in unequal),
        longer_right=clustered_share((cluster, float(longer)) for cluster, longer, _ in unequal),
        slope=_slope(
            np.array([ratio for _, ratio, _ in found]),
            np.array([named for _, _, named in found], dtype=float),
            clusters=[cluster for cluster, _, _ in found],
        ),
    )


def _comparisons(
    judged: Sequence[JudgedExample], *, num_shown: int
) -> Iterator[tuple[ExampleMetadata, dict[tuple[int, ...], list[Decision]]]]:
    """Each set of so many responses that was judged, with its decisions by the order shown."""
    for one in judged:
        found: dict[frozenset[int], dict[tuple[int, ...], list[Decision]]] = defaultdict(lambda: defaultdict(list))
        for decision in one.decisions:
            if len(decision.shown) == num_shown:
                found[frozenset(decision.shown)][decision.shown].append(decision)
        for orders in found.values():
            yield one.outline, orders


def _place(order: Sequence[int], votes: Sequence[Decision]) -> int | None:
    """Where the response stood that most votes on one order name; None if they are split, tied or undecided."""
    best = majority([vote.best for vote in votes])
    return None if best is None else order.index(best)


def _position(judged: Sequence[JudgedExample], *, num_shown: int) -> Position:
    places: list[tuple[str, int]] = []
    of_right: list[list[tuple[str, float]]] = [[] for _ in range(num_shown)]
    trials: list[bool] = []
    for outline, orders in _comparisons(judged, num_shown=num_shown):
        named = {order: place for order, votes in orders.items() if (place := _place(order, votes)) is not None}
        for order, place in named.items():
            places.append((outline.cluster, place))
            right = [where for where, index in enumerate(order) if index in outline.correct]
            if len(right) == 1:
                of_right[right[0]].append((outline.cluster, float(place == right[0])))
        trials += _trial(list(named.values()), num_shown=num_shown)
    return Position(
        num_shown=num_shown,
        named=tuple(
            clustered_share((cluster, float(place == where)) for cluster, place in places) for where in range(num_shown)
        ),
        accuracy=tuple(map(clustered_share, of_right)),
        p_value=binomial_test(sum(trials), num_trials=len(trials), share=1 / num_shown),
    )


def _trial(places: Sequence[int], *, num_shown: int) -> list[bool]:
    """Whether a comparison speaks for the first place; nothing if its orders cancel out."""
    if num_shown > 2:
        return [place == 0 for place in places[:1]]
    lead = places.count(0) - places.count(1)
    return [lead > 0] if lead else []


def _log_length_ratio(mark: ComparisonScore) -> float | None:
    """Of the right response over the wrong one; None if it is not one of each, or their lengths are not known."""
    outline = mark.outline
    right = [index for index in mark.compared if index in outline.correct]
    wrong = [index for index in mark.compared if index not in outline.correct]
    if len(right) != 1 or len(wrong) != 1 or len(outline.lengths) != outline.num_responses:
        return None
    return math.log((1 + outline.lengths[right[0]]) / (1 + outline.lengths[wrong[0]]))


def _slope(ratios: np.ndarray, named: np.ndarray, *, clusters: Sequence[str]) -> Estimate | None:
    """Of log-odds(the right one is named) = skill + slope x log(length of the right one / of the wrong one)."""
    if not len(ratios) or np.ptp(ratios) == 0:
        return None
    features = np.column_stack([np.ones_like(ratios), ratios])
    weights = np.zeros(2)
    for _ in range(MOST_STEPS):
        chances, information = _chances(features, weights)
        if np.linalg.cond(information) > _SINGULAR:
            return None
        step = np.linalg.solve(information, features.T @ (named - chances))
        step /= max(1.0, np.abs(features @ step).max() / _LONGEST_STEP)
        weights = weights + step
        if np.abs(step).max() < 1e-9:
            return _with_interval(features, weights, named, clusters=clusters)
    return None


def _chances(features: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """P(the right one is named) of each, and the information about the weights."""
    chances = 1 / (1 + np.exp(-np.clip(features @ weights, -30, 30)))
    return chances, features.T @ (features * (chances * (1 - chances))[:, None])


def _with_interval(
    features: np.ndarray, weights: np.ndarray, named: np.ndarray, *, clusters: Sequence[str]
) -> Estimate | None:
    """The second weight, with the sandwich of its clusters' scores around the inverse of the information."""
    codes = codes_of(clusters)
    num_clusters = int(codes.max()) + 1
    if num_clusters < 2:
        return None
    chances, information = _chances(features, weights)
    inverse = np.linalg.inv(information)
    scores = np.zeros((num_clusters, 2))
    np.add.at(scores, codes, features * (named - chances)[:, None])
    covariance = inverse @ (scores.T @ scores) @ inverse * num_clusters / (num_clusters - 1)
    value, error = float(weights[1]), Z_95 * math.sqrt(covariance[1, 1])
    return Estimate(value=value, num=len(named), interval=(value - error, value + error))

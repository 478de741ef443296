"""Position bias and length bias of a judge."""

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

MAX_STEPS = 25
"""Maximum steps of Newton's method. It needs fewer than ten, and diverges if skill and length predict every verdict."""

_MAX_STEP = 5.0
"""Maximum change of any log-odds in one step, to avoid overshooting."""

_SINGULAR = 1e12
"""Condition number above which a matrix counts as singular: the weights cannot be determined separately."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flips:
    """Order flips: pairs of responses for which the two orders choose different responses."""

    rate: Estimate
    """Share of flips among the pairs that were decided in both orders."""
    num_first: int
    """Number of flips in which the response shown first was chosen both times."""
    num_second: int
    """Number of flips in which the response shown second was chosen both times."""
    num_undecided: int
    """Number of pairs with a tie or no verdict in one of the two orders. `rate` excludes these pairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Position bias for one number of responses shown."""

    num_shown: int
    """Number of responses shown together."""
    named: tuple[Estimate, ...]
    """Probability that the response in each position is chosen. Without bias, each is 1 / `num_shown`."""
    accuracy: tuple[Estimate, ...]
    """Share of right verdicts by position of the right response, over decisions with exactly one right response."""
    p_value: float
    """Exact two-sided binomial test of how often the first position is chosen. The two orders of a pair are one trial:
    whether the first position is chosen more often than the second. A pair with one of each is not a trial. Several
    votes on one order count as their majority."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """Length bias, over decided comparisons of a right with a wrong response."""

    longer_named: Estimate
    """Share of comparisons with unequal lengths in which the longer response is chosen."""
    longer_right: Estimate
    """Share of the same comparisons in which the longer response is right."""
    slope: Estimate | None
    """Increase of the log-odds that a response is chosen, per log of its length relative to the other response, given
    which response is right. The errors of its interval are clustered by prompt. 0: no length bias. None: the data do
    not determine it."""


def flips_of(judged: Sequence[JudgedExample]) -> Flips:
    """Return the order flips of pairs that were shown in both orders."""
    flipped: list[tuple[str, float]] = []
    num_first = num_second = num_undecided = 0
    for outline, orders in _comparisons(judged, num_shown=2):
        if len(orders) < 2:
            continue
        chosen = [_chosen_position(order, votes) for order, votes in orders.items()]
        if None in chosen:
            num_undecided += 1
            continue
        flipped.append((outline.cluster, float(chosen[0] == chosen[1])))  # same position in both orders: a flip
        num_first += chosen == [0, 0]
        num_second += chosen == [1, 1]
    return Flips(rate=clustered_share(flipped), num_first=num_first, num_second=num_second, num_undecided=num_undecided)


def positions_of(judged: Sequence[JudgedExample]) -> list[Position]:
    """Return the position bias for each number of responses that were shown together, in ascending order."""
    sizes = {len(d.shown) for one in judged for d in one.decisions if len(d.shown) > 1 and d.best in d.shown}
    return [_position(judged, num_shown=size) for size in sorted(sizes)]


def length_of(marks: Sequence[ComparisonScore]) -> Length:
    """Return the length bias over decided comparisons of one right with one wrong response.

    Args:
        marks: scores of the comparisons. Score them by the first order only (`first_order_marks`), because results over
            two orders hide the choice in each order.
    """
    found = [
        (mark.outline.cluster, ratio, mark.result == "right")
        for mark in marks
        if mark.result in ("right", "wrong") and (ratio := _log_length_ratio(mark)) is not None
    ]
    unequal = [(cluster, ratio > 0, is_right) for cluster, ratio, is_right in found if ratio]
    return Length(
        longer_named=clustered_share((cluster, float(is_right == longer)) for cluster, longer, is_right in unequal),
        longer_right=clustered_share((cluster, float(longer)) for cluster, longer, _ in unequal),
        slope=_slope(
            np.array([ratio for _, ratio, _ in found]),
            np.array([is_right for _, _, is_right in found], dtype=float),
            clusters=[cluster for cluster, _, _ in found],
        ),
    )


def _comparisons(
    judged: Sequence[JudgedExample], *, num_shown: int
) -> Iterator[tuple[ExampleMetadata, dict[tuple[int, ...], list[Decision]]]]:
    """Yield each judged set of `num_shown` responses, with its decisions by the order shown."""
    for one in judged:
        found: dict[frozenset[int], dict[tuple[int, ...], list[Decision]]] = defaultdict(lambda: defaultdict(list))
        for decision in one.decisions:
            if len(decision.shown) == num_shown:
                found[frozenset(decision.shown)][decision.shown].append(decision)
        for orders in found.values():
            yield one.outline, orders


def _chosen_position(order: Sequence[int], votes: Sequence[Decision]) -> int | None:
    """Return the position of the majority's choice in one order; None if votes are split, tied or undecided."""
    best = majority([vote.best for vote in votes])
    return None if best is None else order.index(best)


def _position(judged: Sequence[JudgedExample], *, num_shown: int) -> Position:
    places: list[tuple[str, int]] = []
    of_right: list[list[tuple[str, float]]] = [[] for _ in range(num_shown)]
    trials: list[bool] = []
    for outline, orders in _comparisons(judged, num_shown=num_shown):
        chosen = {
            order: place for order, votes in orders.items() if (place := _chosen_position(order, votes)) is not None
        }
        for order, place in chosen.items():
            places.append((outline.cluster, place))
            right = [where for where, index in enumerate(order) if index in outline.correct]
            if len(right) == 1:
                of_right[right[0]].append((outline.cluster, float(place == right[0])))
        trials += _trial(list(chosen.values()), num_shown=num_shown)
    return Position(
        num_shown=num_shown,
        named=tuple(
            clustered_share((cluster, float(place == where)) for cluster, place in places) for where in range(num_shown)
        ),
        accuracy=tuple(map(clustered_share, of_right)),
        p_value=binomial_test(sum(trials), num_trials=len(trials), share=1 / num_shown),
    )


def _trial(places: Sequence[int], *, num_shown: int) -> list[bool]:
    """Return [whether the first position is favored], or [] if the orders of a comparison cancel out."""
    if num_shown > 2:
        return [place == 0 for place in places[:1]]
    lead = places.count(0) - places.count(1)
    return [lead > 0] if lead else []


def _log_length_ratio(mark: ComparisonScore) -> float | None:
    """Return log(length of the right response / length of the wrong one), each plus 1 character.

    None: the comparison is not of one right and one wrong response, or lengths are unknown.
    """
    outline = mark.outline
    right = [index for index in mark.compared if index in outline.correct]
    wrong = [index for index in mark.compared if index not in outline.correct]
    if len(right) != 1 or len(wrong) != 1 or len(outline.lengths) != outline.num_responses:
        return None
    return math.log((1 + outline.lengths[right[0]]) / (1 + outline.lengths[wrong[0]]))


def _slope(ratios: np.ndarray, is_right: np.ndarray, *, clusters: Sequence[str]) -> Estimate | None:
    """Fit log-odds(right response is chosen) = skill + slope x log length ratio; None without convergence."""
    if not len(ratios) or np.ptp(ratios) == 0:
        return None
    features = np.column_stack([np.ones_like(ratios), ratios])
    weights = np.zeros(2)
    for _ in range(MAX_STEPS):
        probabilities, information = _probabilities(features, weights)
        if np.linalg.cond(information) > _SINGULAR:
            return None
        step = np.linalg.solve(information, features.T @ (is_right - probabilities))
        step /= max(1.0, np.abs(features @ step).max() / _MAX_STEP)
        weights = weights + step
        if np.abs(step).max() < 1e-9:
            return _with_interval(features, weights, is_right, clusters=clusters)
    return None


def _probabilities(features: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return P(the right response is chosen) of each comparison, and the Fisher information of the weights."""
    probabilities = 1 / (1 + np.exp(-np.clip(features @ weights, -30, 30)))
    return probabilities, features.T @ (features * (probabilities * (1 - probabilities))[:, None])


def _with_interval(
    features: np.ndarray, weights: np.ndarray, is_right: np.ndarray, *, clusters: Sequence[str]
) -> Estimate | None:
    """Return the second weight with its interval, from the cluster-robust (sandwich) covariance."""
    codes = codes_of(clusters)
    num_clusters = int(codes.max()) + 1
    if num_clusters < 2:
        return None
    probabilities, information = _probabilities(features, weights)
    inverse = np.linalg.inv(information)
    scores = np.zeros((num_clusters, 2))
    np.add.at(scores, codes, features * (is_right - probabilities)[:, None])
    covariance = inverse @ (scores.T @ scores) @ inverse * num_clusters / (num_clusters - 1)
    value, error = float(weights[1]), Z_95 * math.sqrt(covariance[1, 1])
    return Estimate(value=value, num=len(is_right), interval=(value - error, value + error))

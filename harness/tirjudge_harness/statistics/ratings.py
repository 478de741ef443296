"""Ratings of models from pairwise verdicts, and agreement with the ratings that people give (system-level agreement).

The ratings are Bradley-Terry's (1952) by maximum likelihood. A tie counts as half a win for each model, as in FastChat and
Arena-Hard. Each model also has `PRIOR` ties with a model of average strength, so that ratings are finite if a model always
wins. Intervals are a bootstrap over prompts. The ties of `PRIOR` alone limit the difference of two models if no chain of wins
and ties leads from each of them to the other (Ford 1957): such models are in different groups, and intervals do not compare
them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from tirjudge_harness.statistics.intervals import (
    NUM_RESAMPLES,
    Array,
    Estimate,
    Interval,
    clustered_share,
    codes_of,
    draws,
    middle_of,
)

PRIOR = 0.1
"""Number of ties of each model with an average model."""

POINTS_PER_LOGIT = 400 / math.log(10)
"""Elo's scale: 400 points are odds of 10 to 1."""
MEAN_RATING = 1000.0
"""Mean of all ratings."""

MAX_MODELS = 100
"""Maximum number of models. Time and memory grow with the number of pairs."""

MIN_COMMON_MODELS = 3
"""Minimum number of models that both tables of an agreement rate."""
MIN_OPPONENTS = 3
"""Minimum number of opponents of a model in the row-wise correlation. Two win rates always correlate by 1 or -1."""

_MAX_STEPS, _MAX_SHARED_STEPS, _PRECISION, _MAX_STEP = 100, 30, 1e-6, 2.0
"""Newton's method: maximum numbers of steps, change at which it stops, and maximum change in one step, in logits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Battle:
    """One verdict on responses of two models."""

    first: str
    second: str
    credit: float
    """1: the first model wins. 0: the second wins. 0.5: a tie, or opposite verdicts in the two orders."""
    cluster: str
    """Name of the prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRating:
    """One model."""

    name: str
    rating: float
    """Bradley-Terry rating in Elo points. The mean over models is `MEAN_RATING`."""
    interval: Interval | None
    """95 % bootstrap interval. None: fewer than two prompts, no other model in the group, only results of one kind, such as
    ties, or equal ratings in all resamples."""
    group: int = 0
    """Number of the group of models. From each model of a group, a chain of wins and ties leads to each other one."""
    wins: Estimate
    """Share of battles won. A tie adds 1/2. The share depends on the opponents, unlike the rating."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratings:
    """Ratings of all models."""

    models: tuple[ModelRating, ...]
    """The models, best first."""
    drawn: Array
    """Ratings of the data, then of each resample, [1 + resamples, models], in the order of `models`."""
    num_clusters: int
    """Number of prompts."""

    @property
    def compared(self) -> list[tuple[Interval, Interval]]:
        """Intervals of each pair of models that they compare: models of one group."""
        return [
            (one.interval, other.interval)
            for one, other in combinations(self.models, 2)
            if one.interval is not None and other.interval is not None and one.group == other.group
        ]

    @property
    def separability(self) -> float | None:
        """Share of the compared pairs of models whose intervals do not overlap (Li et al. 2024, arXiv:2406.11939). None: no
        pairs."""
        apart = [_order(one, other) != 0 for one, other in self.compared]
        return sum(apart) / len(apart) if apart else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaScore:
    """A model in a table of people's ratings."""

    score: float
    """Rating on any scale. Higher is better."""
    interval: Interval | None = None
    """95 % interval. None: not known; the score then counts as certain."""
    group: int | None = 0
    """Number of the group of models, as in `ModelRating`. None: the score is compared with no other one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemAgreement:
    """How well the ratings of a judge agree with those of people. Estimates count models, with intervals over prompts."""

    spearman: Estimate
    """Spearman's rank correlation."""
    kendall: Estimate
    """Kendall's tau-b."""
    pairs: Estimate
    """Share of pairs of models in the same order. A pair with equal scores adds 1/2."""
    with_confidence: float | None
    """Agreement with confidence (arXiv:2406.11939): mean over pairs of 1 if both tables separate the pair in the same order,
    -1 if in opposite orders, and 0 if one does not separate it. Pairs of different groups in one table are left out. None: no
    pairs with intervals."""
    brier: float | None
    """Pair rank Brier score (arXiv:2406.11939): mean over pairs of (P(first above second) - outcome) squared. P is the share
    of the resamples; the outcome is 1, 0, or 0.5 for equal scores of people. 0 is best. None: no resamples."""
    missing: tuple[str, ...]
    """Rated models that people's table does not have."""


def ratings_of(battles: Sequence[Battle], *, num_resamples: int = NUM_RESAMPLES, seed: int = 0) -> Ratings:
    """Return the ratings of all models.

    Args:
        battles: the verdicts.
        num_resamples: number of bootstrap resamples.
        seed: seed of the resamples.

    Raises:
        ValueError: no verdicts, a verdict on a model and itself, too many models, or groups of models that never meet.
    """
    names = _checked_names(battles)
    place, num = {name: index for index, name in enumerate(names)}, len(names)
    firsts, seconds = (np.array([place[name] for name in of_it]) for of_it in _sides(battles))
    credits = np.array([one.credit for one in battles], dtype=float)
    pairs, codes_of_pairs = np.unique(firsts * num + seconds, return_inverse=True)
    codes = codes_of([one.cluster for one in battles])
    num_clusters = int(codes.max()) + 1
    games, wins = [], []
    for rows in draws(num_clusters, num_resamples=num_resamples, seed=seed):
        for row in rows:
            times = row[codes]
            games.append(np.bincount(codes_of_pairs, times, minlength=len(pairs)))
            wins.append(np.bincount(codes_of_pairs, times * credits, minlength=len(pairs)))
    with threadpool_limits(limits=1, user_api="blas"):  # thin matrices are slower with several threads
        found = _all_strengths(np.array(games), np.array(wins), sides=_incidence(pairs, num=num))
    results = _results_by_model(battles)
    groups = _groups(firsts, seconds, credits, num=num)
    drawn = MEAN_RATING + POINTS_PER_LOGIT * found
    order = sorted(range(num), key=lambda at: (-drawn[0, at], names[at]))
    return Ratings(
        models=tuple(
            ModelRating(
                name=names[at],
                rating=float(drawn[0, at]),
                interval=(
                    middle_of(drawn[:, at], num_clusters=num_clusters)
                    if groups.count(groups[at]) > 1 and len({credit for _, credit in results[names[at]]}) > 1
                    else None
                ),
                group=groups[at],
                wins=clustered_share(results[names[at]]),
            )
            for at in order
        ),
        drawn=drawn[:, order],
        num_clusters=num_clusters,
    )


def agreement_with_arena(ratings: Ratings, arena: Mapping[str, ArenaScore]) -> SystemAgreement:
    """Compare ratings with those of people, over the models that both have.

    Raises:
        ValueError: fewer than three common models, or people rate them all equal.
        ImportError: scipy is not installed.
    """
    from scipy.stats import rankdata

    common = [at for at, one in enumerate(ratings.models) if one.name in arena]
    known = [arena[ratings.models[at].name] for at in common]
    scores = np.array([one.score for one in known])
    if len(common) < MIN_COMMON_MODELS or np.ptp(scores) == 0:
        raise ValueError(
            f"arena: {len(common)} of the {len(ratings.models)} rated models have a score in the table, "
            f"{len(set(scores))} of them different; give at least three, with the names {ratings.models[0].name!r}, ..."
        )
    drawn = ratings.drawn[:, common]
    ranks, of_arena = rankdata(drawn, axis=1), rankdata(scores)
    centered, of_people = ranks - ranks.mean(axis=1, keepdims=True), of_arena - of_arena.mean()
    with np.errstate(invalid="ignore", divide="ignore"):
        spearman = centered @ of_people / np.sqrt((centered**2).sum(axis=1) * (of_people**2).sum())
    kendall, same_order = _orders(drawn, scores)
    return SystemAgreement(
        spearman=_estimate(spearman, num=len(common), ratings=ratings),
        kendall=_estimate(kendall, num=len(common), ratings=ratings),
        pairs=_estimate(same_order, num=len(common), ratings=ratings),
        with_confidence=_with_confidence([ratings.models[at] for at in common], known),
        brier=_brier(drawn[1:], scores),
        missing=tuple(one.name for one in ratings.models if one.name not in arena),
    )


def _sides(battles: Sequence[Battle]) -> tuple[list[str], list[str]]:
    return [one.first for one in battles], [one.second for one in battles]


def _checked_names(battles: Sequence[Battle]) -> list[str]:
    names = sorted({name for one in battles for name in (one.first, one.second)})
    if not names:
        raise ValueError("verdicts: none given; give at least one verdict on responses of two models")
    if same := next((one for one in battles if one.first == one.second), None):
        raise ValueError(f"verdicts: {same.first!r} is compared with itself; remove this comparison")
    if len(names) > MAX_MODELS:
        raise ValueError(f"verdicts: {len(names)} models given; give at most {MAX_MODELS}")
    group = {name: name for name in names}

    def root(name: str) -> str:
        while group[name] != name:
            group[name] = name = group[group[name]]
        return name

    for one in battles:
        group[root(one.first)] = root(one.second)
    if apart := [name for name in names if root(name) != root(names[0])]:
        raise ValueError(
            f"verdicts: no chain of comparisons joins {names[0]!r} and {apart[0]!r}; compare models of both groups, or "
            "rate each group separately"
        )
    return names


def _groups(firsts: NDArray[np.int64], seconds: NDArray[np.int64], credits: Array, *, num: int) -> list[int]:
    """Return the number of the group of each model: the place of the first model of the group."""
    reached = np.eye(num, dtype=bool)
    reached[firsts[credits > 0], seconds[credits > 0]] = True
    reached[seconds[credits < 1], firsts[credits < 1]] = True
    for _ in range(num.bit_length()):  # doubles the length of the chains
        reached = reached @ reached
    return [int(at) for at in (reached & reached.T).argmax(axis=1)]


def _incidence(pairs: NDArray[np.int64], *, num: int) -> Array:
    """Return 1 for the first and -1 for the second model of each pair, [pairs, models]."""
    places = np.arange(len(pairs))
    sides = np.zeros((len(pairs), num))
    sides[places, pairs // num] = 1
    sides[places, pairs % num] = -1
    return sides


def _all_strengths(games: Array, wins: Array, *, sides: Array) -> Array:
    """Return the log-strengths of models in each resample, [resamples, models], with mean 0 in each.

    The first row, the data, is found by Newton's method. The others start there and take steps with the same information, all
    at once; rows that do not converge, because a resample is very different, are found by Newton's method.

    Args:
        games: number of battles of each pair of models, [resamples, pairs].
        wins: number of battles that the first model of the pair won.
        sides: the models of each pair, [pairs, models].
    """
    data = _newton(games[0], wins[0], sides=sides, start=np.zeros(sides.shape[1]))
    inverse = np.linalg.inv(_information(data, games[0], sides=sides))
    found = np.tile(data, (len(games), 1))
    longest = np.full(len(games), np.inf)
    for _ in range(_MAX_SHARED_STEPS):
        steps = _slopes(found, games, wins, sides=sides) @ inverse
        longest = np.abs(steps).max(axis=1)
        if (longest < _PRECISION).all():
            break
        found = found + steps * np.minimum(1, _MAX_STEP / np.maximum(longest, _PRECISION))[:, None]
    for at in np.flatnonzero(longest >= _PRECISION):
        found[at] = _newton(games[at], wins[at], sides=sides, start=data)
    return found - found.mean(axis=1, keepdims=True)


def _newton(games: Array, wins: Array, *, sides: Array, start: Array) -> Array:
    """Return the log-strengths with the largest likelihood, which is concave."""
    strengths = start
    for _ in range(_MAX_STEPS):
        step = np.linalg.solve(
            _information(strengths, games, sides=sides),
            _slopes(strengths[None], games[None], wins[None], sides=sides)[0],
        )
        longest = float(np.abs(step).max())
        strengths = strengths + step * min(1.0, _MAX_STEP / max(longest, _PRECISION))
        if longest < _PRECISION:
            break
    return strengths


def _slopes(strengths: Array, games: Array, wins: Array, *, sides: Array) -> Array:
    """Return the slopes of the log-likelihoods, [resamples, models]."""
    surprise = wins - games * _logistic(strengths @ sides.T)
    return surprise @ sides + PRIOR / 2 - PRIOR * _logistic(strengths)


def _information(strengths: Array, games: Array, *, sides: Array) -> Array:
    """Return minus the second derivatives of the log-likelihood, [models, models]."""
    chances, of_prior = _logistic(sides @ strengths), _logistic(strengths)
    curves = games * chances * (1 - chances)
    return (sides.T * curves) @ sides + np.diag(PRIOR * of_prior * (1 - of_prior))


def _logistic(logits: Array) -> Array:
    return 1 / (1 + np.exp(-np.clip(logits, -500, 500)))


def _results_by_model(battles: Sequence[Battle]) -> dict[str, list[tuple[str, float]]]:
    """Return the prompt and the credit of each battle of each model."""
    found: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for one in battles:
        found[one.first].append((one.cluster, one.credit))
        found[one.second].append((one.cluster, 1 - one.credit))
    return found


def _estimate(values: Array, *, num: int, ratings: Ratings) -> Estimate:
    value = float(values[0])
    interval = middle_of(values, num_clusters=ratings.num_clusters)
    return Estimate(value=None if math.isnan(value) else value, num=num, interval=interval)


def _orders(drawn: Array, scores: Array) -> tuple[Array, Array]:
    """Return Kendall's tau-b and the share of pairs in the same order, for each resample."""
    firsts, seconds = np.triu_indices(len(scores), 1)
    ours = np.sign(drawn[:, firsts] - drawn[:, seconds])
    of_people = np.sign(scores[firsts] - scores[seconds])
    agreed = ours * of_people
    with np.errstate(invalid="ignore"):
        tau = agreed.sum(axis=1) / np.sqrt(np.abs(ours).sum(axis=1) * np.abs(of_people).sum())
    return tau, ((agreed + 1) / 2).mean(axis=1)


def _brier(resamples: Array, scores: Array) -> float | None:
    """Return the mean squared error of the shares of resamples, [resamples, models], in which a model is above another."""
    if not len(resamples):
        return None
    firsts, seconds = np.triu_indices(len(scores), 1)
    above = (np.sign(resamples[:, firsts] - resamples[:, seconds]).mean(axis=0) + 1) / 2
    outcomes = (np.sign(scores[firsts] - scores[seconds]) + 1) / 2
    return float(((above - outcomes) ** 2).mean())


def rows_correlation(judge: Sequence[Battle], people: Sequence[Battle]) -> Estimate:
    """Return the row-wise Pearson correlation: for each model, Pearson's correlation between its win rates against each
    opponent by the judge and by people; then the mean over models.

    Opponents that the model meets in both are used. Models with fewer than three of them, or with equal win rates against
    all, are left out. `num` is the number of models. There is no interval.
    """
    rates = _win_rates(judge), _win_rates(people)
    found = []
    for model in rates[0].keys() & rates[1].keys():
        opponents = sorted(rates[0][model].keys() & rates[1][model].keys())
        rows = np.array([[of_it[model][other] for other in opponents] for of_it in rates])
        if len(opponents) >= MIN_OPPONENTS and (np.ptp(rows, axis=1) > 0).all():
            found.append(float(np.corrcoef(rows)[0, 1]))
    return Estimate(value=math.fsum(found) / len(found) if found else None, num=len(found), interval=None)


def _win_rates(battles: Sequence[Battle]) -> dict[str, dict[str, float]]:
    """Return model -> opponent -> share of the battles that the model won."""
    credits: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in battles:
        credits[one.first][one.second].append(one.credit)
        credits[one.second][one.first].append(1 - one.credit)
    return {
        model: {other: math.fsum(of_it) / len(of_it) for other, of_it in opponents.items()}
        for model, opponents in credits.items()
    }


def _with_confidence(models: Sequence[ModelRating], known: Sequence[ArenaScore]) -> float | None:
    of_people = [one.interval or (one.score, one.score) for one in known]
    found = [
        _order(mine.interval, other.interval) * _order(of_people[at], of_people[after])
        for (at, mine), (after, other) in combinations(enumerate(models), 2)
        if mine.interval is not None and other.interval is not None and mine.group == other.group
        if known[at].group is not None and known[at].group == known[after].group
    ]
    return sum(found) / len(found) if found else None


def _order(first: Interval, second: Interval) -> int:
    """Return 1 if the first interval is above the second, -1 if it is below, 0 if they overlap."""
    return (first[0] > second[1]) - (first[1] < second[0])

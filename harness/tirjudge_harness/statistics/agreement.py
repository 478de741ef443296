"""Agreement of two raters: raw agreement and Cohen's kappa."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.statistics.intervals import (
    NUM_RESAMPLES,
    Array,
    Estimate,
    Interval,
    codes_of,
    draw_sums,
    middle_of,
    number,
    share_of,
)

Label = int | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Agreement of two raters on the same items."""

    same: Estimate
    """Share of equal labels among the items that both rated."""
    kappa: float | None
    """Cohen's kappa: 1 is perfect agreement, 0 is chance agreement. None: no items, or both raters always give the same
    single label."""
    interval: Interval | None
    """95 % bootstrap interval of kappa over prompts. None: fewer than two prompts, or the same kappa in all resamples."""
    num_missing: int
    """Number of items that at most one rater rated. All figures exclude these items."""


def agreement_of(
    first: Sequence[Label | None],
    second: Sequence[Label | None],
    *,
    clusters: Sequence[str] | None = None,
    weights: Literal["quadratic"] | None = None,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = 0,
) -> Agreement:
    """Return raw agreement and Cohen's kappa of two raters.

    Args:
        first: label of each item by the first rater. None: not rated.
        second: labels by the second rater, of the same length.
        clusters: prompt of each item. None: every item has a different prompt.
        weights: None: labels are equal or not (Cohen 1960). `quadratic`: labels are numbers, and disagreement is the square
            of their distance (Cohen 1968).
        num_resamples: number of bootstrap resamples for the interval.
        seed: seed of the resamples.

    Raises:
        ValueError: the lengths differ, or a label is not a number and `weights` is `quadratic`.
    """
    names = [str(index) for index in range(len(first))] if clusters is None else clusters
    if not len(first) == len(second) == len(names):
        raise ValueError(
            f"labels: expected one label per item ({len(names)}) from each rater, got {len(first)} and {len(second)}"
        )
    rated = [(a, b, name) for a, b, name in zip(first, second, names, strict=True) if a is not None and b is not None]
    both = [(a, b) for a, b, _ in rated]
    of_rated = [name for _, _, name in rated]
    kappas = _kappas(both, weights=weights, clusters=of_rated, num_resamples=num_resamples, seed=seed)
    return Agreement(
        same=share_of([float(a == b) for a, b in both], clusters=of_rated),
        kappa=number(kappas[0]),
        interval=middle_of(kappas, num_clusters=len(set(of_rated))),
        num_missing=len(first) - len(rated),
    )


def agreement_with_labels(judged: Sequence[JudgedExample], *, seed: int = 0) -> Agreement:
    """Return the agreement of the judge with the labels of the responses.

    Items are the decisions on responses, exactly one of which is right. Both raters label an item with a position among
    the responses shown. A tie or a missing verdict counts as not rated. Positions are those that the judge saw, because
    in a benchmark that always lists the right response first, chance agreement would be perfect.
    """
    chosen: list[int | None] = []
    right: list[int] = []
    clusters: list[str] = []
    for one in judged:
        for decision in one.decisions:
            places = [place for place, index in enumerate(decision.shown) if index in one.outline.correct]
            if len(places) == 1 and len(decision.shown) > 1:
                chosen.append(None if decision.best is None else decision.shown.index(decision.best))
                right.append(places[0])
                clusters.append(one.outline.cluster)
    return agreement_of(chosen, right, clusters=clusters, seed=seed)


def _kappas(
    both: Sequence[tuple[Label, Label]],
    *,
    weights: Literal["quadratic"] | None,
    clusters: Sequence[str],
    num_resamples: int,
    seed: int,
) -> Array:
    """Return kappa = 1 - observed / expected disagreement, of the data and then of each resample."""
    if not both:
        return np.array([np.nan])
    labels = list(dict.fromkeys(label for pair in both for label in pair))
    if weights is None:
        cost = 1 - np.eye(len(labels))
    else:
        if texts := [label for label in labels if isinstance(label, str)]:
            raise ValueError(f"labels: quadratic weights need numbers, got {texts[0]!r}")
        numbers = np.array(labels, dtype=float)
        cost = (numbers[:, None] - numbers) ** 2
    place = {label: index for index, label in enumerate(labels)}
    codes = codes_of(clusters)
    shape = int(codes.max()) + 1, len(labels), len(labels)
    firsts, seconds = (np.array([place[pair[which]] for pair in both]) for which in (0, 1))
    cells = np.ravel_multi_index((codes, firsts, seconds), shape)
    tables = np.bincount(cells, minlength=math.prod(shape)).reshape(shape[0], -1).astype(float)
    drawn = draw_sums(tables, num_resamples=num_resamples, seed=seed)
    drawn = drawn.reshape(-1, len(labels), len(labels))
    num = drawn.sum(axis=(1, 2))
    observed = (drawn * cost).sum(axis=(1, 2)) / num
    expected = np.einsum("ri,rj,ij->r", drawn.sum(axis=2), drawn.sum(axis=1), cost) / num**2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(expected > 0, 1 - observed / expected, np.nan)

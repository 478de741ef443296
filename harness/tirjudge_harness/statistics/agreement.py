"""How far two raters agree, beyond what they would by chance."""

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
    """Of two raters on the same things."""

    same: Estimate
    """How often they say the same, of what both have rated."""
    kappa: float | None
    """Cohen's: 1 for perfect agreement, 0 for what chance gives. None: of nothing, or where both always say one thing."""
    interval: Interval | None
    """95 %, of kappa, over resamples of the prompts; None of one prompt."""
    num_missing: int
    """Things that one of them did not rate: in no figure."""


def agreement_of(
    first: Sequence[Label | None],
    second: Sequence[Label | None],
    *,
    clusters: Sequence[str] | None = None,
    weights: Literal["quadratic"] | None = None,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = 0,
) -> Agreement:
    """Raw agreement and Cohen's kappa.

    Args:
        first: what one rater said of each thing; None: nothing.
        second: what the other said, as long.
        clusters: the prompt of each; None: all different.
        weights: None: labels agree or do not. `quadratic`: labels are numbers, and disagree by the square of their distance.
        num_resamples: for the interval.
        seed: of the draws.

    Raises:
        ValueError: they are not of the same length, or labels are no numbers where numbers are needed.
    """
    names = [str(index) for index in range(len(first))] if clusters is None else clusters
    if not len(first) == len(second) == len(names):
        raise ValueError(f"labels: {len(first)} and {len(second)} given for {len(names)} things; give one for each")
    rated = [(a, b, name) for a, b, name in zip(first, second, names, strict=True) if a is not None and b is not None]
    both = [(a, b) for a, b, _ in rated]
    of_rated = [name for _, _, name in rated]
    kappas = _kappas(both, weights=weights, clusters=of_rated, num_resamples=num_resamples, seed=seed)
    return Agreement(
        same=share_of([float(a == b) for a, b in both], clusters=of_rated, num_resamples=num_resamples, seed=seed),
        kappa=number(kappas[0]),
        interval=middle_of(kappas, num_clusters=len(set(of_rated))),
        num_missing=len(first) - len(rated),
    )


def agreement_with_labels(judged: Sequence[JudgedExample], *, seed: int = 0) -> Agreement:
    """Of the judge with whoever labelled the responses: both name a place among those shown.

    Over the decisions on responses of which one is right; a tie and no verdict are missing. Places are those in which the
    judge saw them: a benchmark that always lists the right response first would leave nothing to chance.
    """
    named: list[int | None] = []
    right: list[int] = []
    clusters: list[str] = []
    for one in judged:
        for decision in one.decisions:
            places = [place for place, index in enumerate(decision.shown) if index in one.outline.correct]
            if len(places) == 1 and len(decision.shown) > 1:
                named.append(None if decision.best is None else decision.shown.index(decision.best))
                right.append(places[0])
                clusters.append(one.outline.cluster)
    return agreement_of(named, right, clusters=clusters, seed=seed)


def _kappas(
    both: Sequence[tuple[Label, Label]],
    *,
    weights: Literal["quadratic"] | None,
    clusters: Sequence[str],
    num_resamples: int,
    seed: int,
) -> Array:
    """1 - observed / expected disagreement: of the data, then of each resample."""
    if not both:
        return np.array([np.nan])
    labels = list(dict.fromkeys(label for pair in both for label in pair))
    if weights is None:
        cost = 1 - np.eye(len(labels))
    else:
        if texts := [label for label in labels if isinstance(label, str)]:
            raise ValueError(f"labels: {texts[0]!r} given; quadratic weights need numbers")
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

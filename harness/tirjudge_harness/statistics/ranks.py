"""Agreement of a judge's scores with ratings: pair accuracy, Spearman's rho and Kendall's tau-b.

The work is proportional to (number of distinct scores) x (number of distinct ratings), not to the number of pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tirjudge_harness.statistics.intervals import Array

Counts: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """Rank agreement of scores and ratings of the same items."""

    num_pairs: int
    """Number of pairs of items with different ratings."""
    right: float
    """Pairs whose higher-rated item has the higher score. Equal scores count as 0.5."""
    spearman: float | None
    """Spearman's rho (1904), with mean ranks for ties, -1 to 1. None: all scores, or all ratings, are equal."""
    kendall: float | None
    """Kendall's tau-b (1945), -1 to 1. None: all scores, or all ratings, are equal."""

    @property
    def pair_accuracy(self) -> float | None:
        """Share of the pairs that are right. None: no pair has different ratings."""
        return self.right / self.num_pairs if self.num_pairs else None


def ranks_of(scores: Sequence[float], ratings: Sequence[float]) -> Ranks:
    """Compare scores with ratings of the same items.

    Raises:
        ValueError: the lengths differ.
    """
    if len(scores) != len(ratings):
        raise ValueError(f"scores, ratings: expected one of each per item, got {len(scores)} and {len(ratings)}")
    num = len(scores)
    if not num:
        return Ranks(num_pairs=0, right=0.0, spearman=None, kendall=None)
    _, rows = np.unique(np.array(scores, dtype=float), return_inverse=True)
    _, columns = np.unique(np.array(ratings, dtype=float), return_inverse=True)
    shape = int(rows.max()) + 1, int(columns.max()) + 1
    table = np.bincount(np.ravel_multi_index((rows, columns), shape), minlength=math.prod(shape)).reshape(shape)
    below = np.zeros((shape[0] + 1, shape[1] + 1), dtype=np.int64)
    below[1:, 1:] = table.cumsum(axis=0).cumsum(axis=1)
    concordant = int((table * below[:-1, :-1]).sum())
    by_score, by_rating = table.sum(axis=1), table.sum(axis=0)
    num_pairs = math.comb(num, 2) - _tied(by_rating)
    differing_scores = math.comb(num, 2) - _tied(by_score)
    tied_scores = _tied(by_score) - _tied(table.ravel())
    discordant = num_pairs - concordant - tied_scores
    scale = math.sqrt(num_pairs * differing_scores)
    return Ranks(
        num_pairs=num_pairs,
        right=concordant + 0.5 * tied_scores,
        spearman=_correlation(_mean_ranks(by_score)[rows], _mean_ranks(by_rating)[columns]) if scale else None,
        kendall=(concordant - discordant) / scale if scale else None,
    )


def _tied(counts: Counts) -> int:
    """Return the number of pairs in the same group."""
    return int((counts * (counts - 1) // 2).sum())


def _mean_ranks(counts: Counts) -> Array:
    """Return the mean rank of the items of each group, counted from 1."""
    return counts.cumsum() - (counts - 1) / 2


def _correlation(first: Array, second: Array) -> float:
    first, second = first - first.mean(), second - second.mean()
    return float((first @ second) / math.sqrt(float(first @ first) * float(second @ second)))

"""Agreement of a judge's scores with ratings: pair accuracy, Spearman's rho and Kendall's tau-b.

For n items with k distinct scores, the work is O(n log n log k) and the memory is O(n).
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
    _, rows, by_score = np.unique(np.array(scores, dtype=float), return_inverse=True, return_counts=True)
    _, columns, by_rating = np.unique(np.array(ratings, dtype=float), return_inverse=True, return_counts=True)
    _, by_both = np.unique(rows * len(by_rating) + columns, return_counts=True)
    concordant = _concordant(rows, columns)
    num_pairs = math.comb(num, 2) - _tied(by_rating)
    differing_scores = math.comb(num, 2) - _tied(by_score)
    tied_scores = _tied(by_score) - _tied(by_both)
    discordant = num_pairs - concordant - tied_scores
    scale = math.sqrt(num_pairs * differing_scores)
    return Ranks(
        num_pairs=num_pairs,
        right=concordant + 0.5 * tied_scores,
        spearman=_correlation(_mean_ranks(by_score)[rows], _mean_ranks(by_rating)[columns]) if scale else None,
        kendall=(concordant - discordant) / scale if scale else None,
    )


def _concordant(rows: Counts, columns: Counts) -> int:
    """Return the number of pairs in which one item has both the higher row and the higher column.

    In the order of columns, and of descending rows within a column, these are the pairs whose rows ascend. The rows of such a
    pair are equal down to one bit, which is 0 in the first and 1 in the second. Each bit is counted by itself.
    """
    ascending = rows[np.lexsort((-rows, columns))]
    found = 0
    for bit in range(int(rows.max()).bit_length()):
        prefixes = ascending >> (bit + 1)
        order = np.argsort(prefixes, kind="stable")
        groups, is_one = prefixes[order], (ascending[order] >> bit) & 1
        zeros = np.concatenate(([0], np.cumsum(1 - is_one)))
        before_group = zeros[np.searchsorted(groups, groups)]
        found += int(((zeros[:-1] - before_group) * is_one).sum())
    return found


def _tied(counts: Counts) -> int:
    """Return the number of pairs in the same group."""
    return int((counts * (counts - 1) // 2).sum())


def _mean_ranks(counts: Counts) -> Array:
    """Return the mean rank of the items of each group, counted from 1."""
    return counts.cumsum() - (counts - 1) / 2


def _correlation(first: Array, second: Array) -> float:
    first, second = first - first.mean(), second - second.mean()
    return float((first @ second) / math.sqrt(float(first @ first) * float(second @ second)))

"""Closed-form intervals of weighted means whose items share prompts.

The variance is that of the linearized mean over clusters (prompts) within strata, as in sample surveys. A stratum has the
clusters that count in the same metrics, such as the prompts of one subset. The interval of a share is Wilson's with the
effective number of items (Kott et al. 2001; Franco et al. 2019, J. Surv. Stat. Methodol. 7(3)). The interval of a
difference adds one better and one worse cluster, as Bonett and Price 2012 do for pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from tirjudge.statistics import Z_95, wilson_interval

Array = NDArray[np.float64]

_EQUAL = 1e-9
"""Relative half-width of an interval that counts as none: a rounding error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteredMean:
    """A weighted mean with its variance over clusters."""

    value: float
    variance: float
    """Variance of `value`. 0 if all clusters have the same mean."""
    num_items: float
    """Number of items."""
    num_clusters: int
    num_free: float
    """Degrees of freedom of `variance` (Satterthwaite 1946)."""
    evenness: float
    """Number of clusters with equal weights that would have the same sum of squared weights (Kish 1965)."""

    @property
    def num_effective(self) -> float:
        """Number of independent items, each right or wrong, with the same variance; at most the number of items."""
        spread = self.value * (1 - self.value)
        if spread <= 0:  # all right or all wrong: the data show no variance
            return self.evenness
        return self.num_items if self.variance <= 0 else min(self.num_items, spread / self.variance)

    @property
    def quantile(self) -> float:
        """The 97.5 % quantile of Student's t."""
        return t_quantile(self.num_free)

    @property
    def quantile_of_shares(self) -> float:
        """The same if clusters have several items that differ. Otherwise that of the standard normal distribution,
        because the variance of a share of independent items follows from the share."""
        return self.quantile if self.variance > 0 and self.num_items > self.num_clusters else Z_95


def clustered_mean(totals: Array, counts: Array, *, weights: Array) -> ClusteredMean | None:
    """Return the weighted mean of the means of several cells; None if it has fewer than two clusters.

    Args:
        totals: sum of the values of each cluster in each cell, [clusters, cells].
        counts: number of values of each cluster in each cell, [clusters, cells].
        weights: weight of each cell, [cells], adding up to 1. A cell without values has weight 0.
    """
    sizes = counts.sum(axis=0)
    per_value = weights / np.where(sizes > 0, sizes, 1)
    shares = counts @ per_value
    held = shares > 0
    if held.sum() < 2:
        return None
    means = totals.sum(axis=0) / np.where(sizes > 0, sizes, 1)
    value = float(weights @ means)
    shares, totals, counts = shares[held], totals[held], counts[held]
    patterns = np.packbits((counts > 0) & (weights > 0), axis=1)
    rows = patterns.view(np.dtype((np.void, patterns.shape[1]))).ravel()  # much faster than `unique` with an axis
    strata = np.unique(rows, return_inverse=True)[1]
    of_clusters = totals @ per_value
    residuals = (of_clusters - counts @ (per_value * means)) / shares
    pooled = float(((of_clusters / shares - value) ** 2).sum() / (len(shares) - 1))
    # The pooled variance counts as one more cluster of each stratum, because the clusters of a small stratum are often all
    # right, and a single cluster shows no variance.
    sizes_of_strata = np.bincount(strata)
    variances = (np.bincount(strata, residuals**2) + pooled) / sizes_of_strata
    of_strata = np.bincount(strata, shares**2) * variances
    variance = float(of_strata.sum())
    if math.sqrt(variance) <= _EQUAL * float(np.abs(of_clusters / shares).max()):
        variance = 0.0
    return ClusteredMean(
        value=value,
        variance=variance,
        num_items=float(counts[:, weights > 0].sum()),
        num_clusters=len(shares),
        num_free=variance**2 / float((of_strata**2 / np.maximum(1, sizes_of_strata - 1)).sum()) if variance else 1.0,
        evenness=float(1 / (shares**2).sum()),
    )


def one_cell(values: Sequence[float], codes: NDArray[np.int64]) -> ClusteredMean | None:
    """Return the mean of values, with the cluster of each as a number from 0; None: fewer than two clusters."""
    num = int(codes.max()) + 1 if len(codes) else 0
    totals, counts = (np.bincount(codes, of_each, minlength=num) for of_each in (values, np.ones(len(codes))))
    return clustered_mean(totals[:, None].astype(float), counts[:, None].astype(float), weights=np.ones(1))


def share_interval(mean: ClusteredMean) -> tuple[float, float]:
    """Return the 95 % interval of a share from 0 to 1.

    With several items per cluster, the effective number of items is reduced by (1.96 / t)^2, because their variance is
    estimated from few clusters (Korn and Graubard 1998).
    """
    return effective_interval(mean.value, num=mean.num_effective * (Z_95 / mean.quantile_of_shares) ** 2)


def effective_interval(value: float, *, num: float) -> tuple[float, float]:
    """Return Wilson's interval of a share from 0 to 1 for an effective number of items, which may be a fraction."""
    value = min(1.0, max(0.0, value))
    return wilson_interval(value * num, num_trials=num) if num >= 1 else (0.0, 1.0)


def difference_interval(mean: ClusteredMean) -> tuple[float, float]:
    """Return the 95 % interval of the mean of paired differences between -1 and 1.

    One cluster with difference 1 and one with -1 are added, so that the interval of equal runs has a width.
    """
    num = mean.evenness + 2
    center = mean.value * mean.evenness / num
    half = mean.quantile_of_shares * math.sqrt(mean.variance + 2 / num**2)
    return max(-1.0, min(center - half, mean.value)), min(1.0, max(center + half, mean.value))


def mean_interval(value: float, *, variance: float, num_free: float) -> tuple[float, float] | None:
    """Return the 95 % interval of a mean of any numbers: value ± t standard errors. None: all numbers are equal, so they show
    no variance.

    Args:
        value: the mean.
        variance: variance of the mean.
        num_free: degrees of freedom of the variance.
    """
    half = t_quantile(num_free) * math.sqrt(variance)
    return (value - half, value + half) if half > _EQUAL * max(1.0, abs(value)) else None


def t_quantile(num_free: float, *, level: float = 0.975) -> float:
    """Return a quantile of Student's t distribution: exact for 1 and 2 degrees of freedom, linear in 1 / `num_free` in
    between and from 2 to 3, and the expansion of Abramowitz and Stegun 1964, 26.7.5, to 3 digits, from 3 on.

    Args:
        num_free: degrees of freedom, at least 1. It may be a fraction.
        level: probability below the quantile, above 0.5.

    >>> [round(t_quantile(num), 2) for num in (1, 2, 10, 100)]
    [12.71, 4.3, 2.23, 1.98]
    """
    if num_free < 3:
        low = min(2, max(1, int(num_free)))
        first, second = (_t_quantile(num, level=level) for num in (low, low + 1))
        place = (1 / low - 1 / num_free) / (1 / low - 1 / (low + 1))
        return first + place * (second - first)
    return _t_quantile(num_free, level=level)


def _t_quantile(num_free: float, *, level: float) -> float:
    if num_free == 1:
        return math.tan(math.pi * (level - 0.5))
    if num_free == 2:
        return (2 * level - 1) * math.sqrt(2 / (4 * level * (1 - level)))
    z = NormalDist().inv_cdf(level)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / num_free ** (power + 1) for power, term in enumerate(terms))

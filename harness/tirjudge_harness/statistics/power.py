"""Sample sizes of paired comparisons: the exact power of McNemar's test, and what follows from it.

Of n comparisons, the second judge is better on a share `better` and worse on a share `worse`. The number of comparisons on
which they differ is binomial, and so is the number of better ones among these (Connor 1987, Biometrics 43).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tirjudge_harness.statistics.clustered import one_cell
from tirjudge_harness.statistics.intervals import codes_of
from tirjudge_harness.statistics.paired import Common

MAX_ITEMS = 1_000_000
"""Largest number of comparisons that is considered."""

_TAIL = 1e-10
"""Probability that is left out at each end of the number of differing comparisons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What a comparison must achieve."""

    alpha: float = 0.05
    """Probability of a difference that is not there: the p-value must be at most this."""
    power: float = 0.8
    """Probability of finding a difference that is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRates:
    """How two judges differ on the comparisons of a benchmark."""

    better: float
    """Share of comparisons on which the second judge is better."""
    worse: float
    """Share of comparisons on which it is worse."""
    design_effect: float = 1.0
    """Comparisons that carry as much information as one independent comparison. More than 1: prompts have several, whose
    differences are alike."""

    @property
    def discordant(self) -> float:
        """Share of comparisons on which the judges differ."""
        return self.better + self.worse

    @property
    def difference(self) -> float:
        """Share of better less share of worse comparisons. If no comparison is a tie: the difference of accuracies."""
        return self.better - self.worse

    def with_difference(self, difference: float) -> PairRates:
        """Return rates with another difference, and as many comparisons on which the judges differ.

        Raises:
            ValueError: the judges differ on fewer comparisons.
        """
        if abs(difference) > self.discordant + 1e-12:
            raise ValueError(
                f"difference: judges that differ on {self.discordant:.1%} of comparisons cannot have a difference of "
                f"{difference:.1%}; give a smaller difference, or a lower agreement"
            )
        half = min(abs(difference), self.discordant) / 2 * (1 if difference >= 0 else -1)
        return PairRates(
            better=self.discordant / 2 + half, worse=self.discordant / 2 - half, design_effect=self.design_effect
        )


def rates_with(*, accuracy: float, difference: float, agreement: float | None) -> PairRates:
    """Return the rates of two judges with assumed accuracies.

    Args:
        accuracy: accuracy of the first judge, 0 to 1.
        difference: accuracy of the second judge less that of the first.
        agreement: share of comparisons on which both are right or both are wrong. None: their errors are independent, which
            is pessimistic, because judges mostly fail on the same hard comparisons.

    Raises:
        ValueError: no two judges have these accuracies and this agreement.
    """
    second = accuracy + difference
    if not (0 <= accuracy <= 1 and 0 <= second <= 1):
        raise ValueError(f"accuracy: {accuracy:.1%} and {second:.1%} are not both between 0 % and 100 %")
    discordant = accuracy * (1 - second) + second * (1 - accuracy) if agreement is None else 1 - agreement
    rates = PairRates(better=discordant / 2, worse=discordant / 2).with_difference(difference)
    if rates.better > 1 - accuracy + 1e-9 or rates.worse > accuracy + 1e-9:
        lowest = 1 - min(accuracy + second, 2 - accuracy - second)
        raise ValueError(
            f"agreement: judges with accuracies of {accuracy:.1%} and {second:.1%} agree on at least {lowest:.1%} of "
            f"comparisons, not on {1 - discordant:.1%}"
        )
    return rates


def rates_of(common: Common) -> PairRates:
    """Return the rates of two runs on their common comparisons, with the design effect of their prompts."""
    gains = [float(np.sign(b.credit - a.credit)) for a, b in zip(common.first, common.second, strict=True)]
    codes = codes_of([mark.outline.cluster for mark in common.first])
    num = len(gains)
    return PairRates(
        better=sum(gain > 0 for gain in gains) / num,
        worse=sum(gain < 0 for gain in gains) / num,
        design_effect=_design_effect(gains, codes),
    )


def power_of(rates: PairRates, *, num_items: int, goal: Goal) -> float:
    """Return the probability that McNemar's exact test finds the difference of two judges.

    Args:
        rates: how the judges differ.
        num_items: number of comparisons. It is divided by the design effect.
        goal: `alpha` is used.

    Raises:
        ImportError: scipy is not installed.
    """
    from scipy.stats import binom

    num = int(num_items / rates.design_effect)
    if num < 1 or rates.discordant <= 0:
        return 0.0
    share = min(1.0, rates.discordant)
    low, high = binom.ppf([_TAIL, 1 - _TAIL], num, share).astype(int)
    differing = np.arange(max(1, low), high + 1)
    # The largest number of the rarer outcome that is significant: twice its cumulative probability is at most alpha.
    most = binom.ppf(goal.alpha / 2, differing, 0.5)
    most = most - (2 * binom.cdf(most, differing, 0.5) > goal.alpha * (1 + 1e-12))
    better = rates.better / rates.discordant
    found = binom.cdf(most, differing, better) + binom.sf(differing - most - 1, differing, better)
    return float(min(1.0, (binom.pmf(differing, num, share) * found).sum()))


def items_needed(rates: PairRates, *, goal: Goal) -> int | None:
    """Return the number of comparisons with which the power reaches the goal; None: more than `MAX_ITEMS`.

    The power of an exact test falls a little at some sizes, so a slightly smaller number can reach the goal, too.
    """
    high = 1
    while power_of(rates, num_items=high, goal=goal) < goal.power:
        high *= 2
        if high > 2 * MAX_ITEMS:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if power_of(rates, num_items=middle, goal=goal) < goal.power:
            low = middle
        else:
            high = middle
    return high if high <= MAX_ITEMS else None


def detectable_difference(rates: PairRates, *, num_items: int, goal: Goal) -> float | None:
    """Return the smallest difference with which the power reaches the goal (minimum detectable effect).

    Args:
        rates: share of comparisons on which the judges differ, which is kept, and the design effect.
        num_items: number of comparisons.
        goal: significance level and power.

    Returns:
        The difference, to 0.01 points; None: even if one judge is better wherever they differ, the power is too low.
    """
    low, high = 0.0, rates.discordant
    if power_of(rates.with_difference(high), num_items=num_items, goal=goal) < goal.power:
        return None
    while high - low > 1e-4:
        middle = (low + high) / 2
        if power_of(rates.with_difference(middle), num_items=num_items, goal=goal) < goal.power:
            low = middle
        else:
            high = middle
    return high


def _design_effect(gains: Sequence[float], codes: np.ndarray) -> float:
    """Return the variance of the mean gain over clusters, as a multiple of that of independent items; at least 1."""
    clustered, independent = one_cell(gains, codes), one_cell(gains, np.arange(len(gains)))
    if clustered is None or independent is None or independent.variance <= 0:
        return 1.0
    return max(1.0, clustered.variance / independent.variance)

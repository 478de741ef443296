"""Sample sizes of paired comparisons; expected values computed manually or by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tirjudge_harness.statistics.paired import common_of, mcnemar
from tirjudge_harness.statistics.power import (
    Goal,
    PairRates,
    detectable_difference,
    items_needed,
    power_of,
    rates_of,
    rates_with,
)

GOAL = Goal()


def test_six_better_comparisons_are_the_fewest_that_are_significant() -> None:
    """2 x (1/2)^5 is 0.0625, and 2 x (1/2)^6 is 0.031."""
    always = PairRates(better=1.0, worse=0.0)
    assert [power_of(always, num_items=num, goal=GOAL) for num in (5, 6)] == [0.0, pytest.approx(1.0)]
    assert items_needed(always, goal=GOAL) == 6


def test_the_power_of_few_comparisons_matches_a_manual_computation() -> None:
    """Of seven comparisons, all differ. Significant: no or all better (p = 2/128); one or six better has p = 16/128. So the
    power is 0.9^7 + 0.1^7."""
    rates = PairRates(better=0.9, worse=0.1)
    assert power_of(rates, num_items=7, goal=GOAL) == pytest.approx(0.9**7 + 0.1**7)


def test_the_power_is_that_of_simulated_comparisons() -> None:
    rates, rng = PairRates(better=0.12, worse=0.05), np.random.default_rng(0)
    drawn = rng.multinomial(200, [rates.better, rates.worse, 1 - rates.discordant], size=4000)
    found = np.mean([mcnemar(num_better=int(b), num_worse=int(w)) <= 0.05 for b, w, _ in drawn])
    assert power_of(rates, num_items=200, goal=GOAL) == pytest.approx(found, abs=0.025)


def test_false_findings_are_at_most_as_frequent_as_allowed() -> None:
    for num in (10, 100, 1000):
        assert 0 <= power_of(PairRates(better=0.1, worse=0.1), num_items=num, goal=GOAL) <= 0.05


def test_sample_sizes_are_close_to_the_normal_approximation() -> None:
    """Connor 1987: n = (1.96 sqrt(d) + 0.8416 sqrt(d - D²))² / D² for a difference D and a share d of differing comparisons.
    The exact test needs some more."""
    for difference, discordant in ((0.02, 0.1), (0.05, 0.2), (0.05, 0.1)):
        rates = rates_with(accuracy=0.7, difference=difference, agreement=1 - discordant)
        normal = (1.95996 * discordant**0.5 + 0.84162 * (discordant - difference**2) ** 0.5) ** 2 / difference**2
        found = items_needed(rates, goal=GOAL)
        assert found is not None
        assert normal < found < 1.1 * normal + 20


def test_independent_errors_differ_more_often() -> None:
    """Accuracies 0.7 and 0.8: 0.7 x 0.2 + 0.8 x 0.3 = 0.38."""
    rates = rates_with(accuracy=0.7, difference=0.1, agreement=None)
    assert (rates.discordant, rates.difference) == (pytest.approx(0.38), pytest.approx(0.1))
    assert (rates.better, rates.worse) == (pytest.approx(0.24), pytest.approx(0.14))


def test_assumptions_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match=r"differ on 5.0% of comparisons cannot have a difference of 10.0%"):
        rates_with(accuracy=0.7, difference=0.1, agreement=0.95)
    with pytest.raises(ValueError, match=r"agree on at least 80.0% of comparisons, not on 50.0%"):
        rates_with(accuracy=0.9, difference=0.0, agreement=0.5)
    with pytest.raises(ValueError, match=r"accuracy: 90.0% and 110.0% are not both"):
        rates_with(accuracy=0.9, difference=0.2, agreement=0.5)


def test_the_smallest_difference_reaches_the_power_and_a_smaller_one_does_not() -> None:
    rates = PairRates(better=0.05, worse=0.05)
    found = detectable_difference(rates, num_items=350, goal=GOAL)
    assert found is not None
    assert power_of(rates.with_difference(found), num_items=350, goal=GOAL) >= 0.8
    assert power_of(rates.with_difference(found - 0.001), num_items=350, goal=GOAL) < 0.8
    assert detectable_difference(rates, num_items=20, goal=GOAL) is None


def test_a_design_effect_divides_the_comparisons() -> None:
    rates, alike = PairRates(better=0.1, worse=0.05), PairRates(better=0.1, worse=0.05, design_effect=3.0)
    assert power_of(alike, num_items=900, goal=GOAL) == power_of(rates, num_items=300, goal=GOAL)


def test_two_runs_give_their_rates_and_the_effect_of_prompts(mark) -> None:
    """Ten prompts with three equal comparisons each: three better, one worse. Three comparisons count about as one."""
    gains = [1, 1, 1, -1, 0, 0, 0, 0, 0, 0]
    first = [mark(f"{n}/{k}", float(gain < 0), cluster=str(n)) for n, gain in enumerate(gains) for k in range(3)]
    second = [mark(f"{n}/{k}", float(gain > 0), cluster=str(n)) for n, gain in enumerate(gains) for k in range(3)]
    rates = rates_of(common_of(first, second))
    assert (rates.better, rates.worse) == (pytest.approx(0.3), pytest.approx(0.1))
    # Variances around the mean 1/5 with the pooled variance as one more: 3.6 / 9 / 10 and 10.8 / 29 / 30.
    assert rates.design_effect == pytest.approx((3.6 / 9 / 10) / (10.8 / 29 / 30))


@settings(deadline=None, max_examples=30)
@given(st.floats(0.02, 0.5), st.floats(0.1, 1.0), st.integers(20, 2000))
def test_the_power_is_symmetric_and_grows_with_the_difference(discordant: float, part: float, num: int) -> None:
    rates = PairRates(better=discordant / 2, worse=discordant / 2)
    small, large = rates.with_difference(part * discordant / 2), rates.with_difference(part * discordant)
    mirrored = rates.with_difference(-part * discordant)
    assert power_of(large, num_items=num, goal=GOAL) >= power_of(small, num_items=num, goal=GOAL) - 1e-9
    assert power_of(large, num_items=num, goal=GOAL) == pytest.approx(power_of(mirrored, num_items=num, goal=GOAL))

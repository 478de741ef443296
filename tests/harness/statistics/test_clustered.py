"""Closed-form means over clusters; expected values computed manually, or by scipy."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import t as student

from tirjudge.statistics import wilson_interval
from tirjudge_harness.statistics.clustered import (
    clustered_mean,
    difference_interval,
    effective_interval,
    mean_interval,
    one_cell,
    share_interval,
    t_quantile,
)


@pytest.mark.parametrize("num_free", [1, 2, 3, 5, 20, 1000])
def test_quantiles_of_students_t_are_those_of_scipy(num_free: int) -> None:
    assert t_quantile(num_free) == pytest.approx(student.ppf(0.975, num_free), rel=2e-3)


@given(st.floats(1, 50), st.floats(1, 50))
def test_quantiles_fall_with_degrees_of_freedom(first: float, second: float) -> None:
    low, high = sorted([first, second])
    assert t_quantile(low) >= t_quantile(high) - 1e-9


def test_the_variance_of_independent_values_matches_a_manual_computation() -> None:
    """1, 2, 3, 6: the mean is 3, the sample variance 14/3. The pooled variance counts as a fifth value: (14 + 14/3) / 4 is
    the variance of a value, so that of the mean is 14/3 / 4."""
    mean = one_cell([1.0, 2.0, 3.0, 6.0], np.arange(4))
    assert mean is not None
    assert (mean.value, mean.variance, mean.num_free) == (3.0, pytest.approx(14 / 12), pytest.approx(3.0))
    half = 3.182446 * (14 / 12) ** 0.5
    found = mean_interval(mean.value, variance=mean.variance, num_free=mean.num_free)
    assert found == pytest.approx((3 - half, 3 + half), abs=0.01)


def test_equal_values_of_a_cluster_count_once() -> None:
    """Each of four values five times, in a cluster of its own: the variance is that of four values."""
    mean = one_cell([1.0, 2.0, 3.0, 6.0] * 5, np.arange(20) % 4)
    assert mean is not None
    assert mean.variance == pytest.approx(14 / 12)
    assert (mean.num_items, mean.num_clusters, mean.evenness) == (20, 4, 4)


def test_one_value_per_cluster_has_wilsons_interval() -> None:
    mean = one_cell([1.0] * 8 + [0.0] * 2, np.arange(10))
    assert mean is not None
    assert mean.num_effective == pytest.approx(9)  # 0.16 / (0.16 / 9): the variance has n - 1
    low, high = share_interval(mean)
    assert (low, high) == pytest.approx(wilson_interval(7.2, num_trials=9))


def test_values_without_variance_have_a_width() -> None:
    right = one_cell([1.0] * 30, np.arange(30))
    assert right is not None
    assert share_interval(right) == wilson_interval(30, num_trials=30)
    equal = one_cell([0.0] * 30, np.arange(30))
    assert equal is not None
    assert difference_interval(equal) == pytest.approx((-1.959964 * 2**0.5 / 32, 1.959964 * 2**0.5 / 32))


def test_a_stratum_of_one_cluster_gets_the_pooled_variance() -> None:
    """Weights 1/2: one value of 1, and the values 0 and 1. Around 3/4, the pooled variance is (1/16 + 9/16 + 1/16) / 2. The
    first stratum has it alone; the second has (1/4 + 1/4 + 11/32) / 2."""
    totals = np.array([[1.0, 0], [0, 0], [0, 1]])
    counts = np.array([[1.0, 0], [0, 1], [0, 1]])
    mean = clustered_mean(totals, counts, weights=np.array([0.5, 0.5]))
    assert mean is not None
    pooled = 11 / 32
    assert mean.value == 0.75
    assert mean.variance == pytest.approx(pooled / 4 + 2 * (0.5 + pooled) / 2 / 16)


def test_an_effective_number_below_1_shows_nothing() -> None:
    assert effective_interval(0.3, num=0.5) == (0.0, 1.0)


@settings(deadline=None)
@example([(0.0, 0), (0.0, 0), (0.0, 1), (0.0, 1), (0.5, 0), (0.5, 1)], Random(1))  # means of 1/6
@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 5)), min_size=2, max_size=30), st.randoms())
def test_intervals_do_not_depend_on_the_order_and_mirror_with_the_values(found, random) -> None:
    def interval(pairs):
        mean = one_cell([value for value, _ in pairs], np.array([code for _, code in pairs]))
        return None if mean is None else share_interval(mean)

    first, mixed = interval(found), interval(random.sample(found, len(found)))
    mirrored = interval([(1 - value, code) for value, code in found])
    if first is None:
        assert mixed is mirrored is None
    else:
        assert mixed == pytest.approx(first)
        assert mirrored == pytest.approx((1 - first[1], 1 - first[0]))

"""Corrections of p-values for multiple tests; expected values computed manually."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tirjudge_harness.statistics.multiple_tests import Correction, benjamini_hochberg, holm


def test_holms_correction_matches_a_manual_computation() -> None:
    assert holm([0.01, 0.04, 0.03]) == [0.03, 0.06, 0.06]
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holms_correction_keeps_the_order_and_never_lowers_a_p_value(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    assert all(p <= q <= 1 for p, q in zip(p_values, adjusted, strict=True))
    by_p = [q for _, q in sorted(zip(p_values, adjusted, strict=True))]
    assert by_p == sorted(by_p)


def test_benjamini_and_hochbergs_correction_matches_a_manual_computation() -> None:
    """Sorted: 0.01 x 4/1, 0.02 x 4/2, 0.03 x 4/3, 0.5 x 4/4; each at most the next one."""
    assert benjamini_hochberg([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.04, 0.04, 0.5, 0.04])
    assert benjamini_hochberg([]) == []


def test_figures_without_a_p_value_are_not_tests() -> None:
    assert Correction.HOLM.of([0.01, None, 0.03]) == [0.02, None, 0.03]
    assert Correction.BH.of([None]) == [None]


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.sampled_from(Correction))
def test_holms_correction_is_the_stricter_one_and_both_ignore_the_order(
    p_values: list[float], correction: Correction
) -> None:
    assert all(one <= other + 1e-12 for one, other in zip(benjamini_hochberg(p_values), holm(p_values), strict=True))
    backwards = correction.of(p_values[::-1])[::-1]
    assert backwards == pytest.approx(correction.of(p_values))

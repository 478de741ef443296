"""Agreement and kappa; expected values computed manually."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tirjudge_harness.statistics.agreement import agreement_of, agreement_with_labels


def test_kappa_of_two_labels_matches_a_manual_computation() -> None:
    """The labels are yes-yes 20 times, yes-no 5 times, no-yes 10 times and no-no 15 times. Agreement is 0.7; agreement
    by chance is 0.5 x 0.6 + 0.5 x 0.4 = 0.5."""
    first = ["yes"] * 25 + ["no"] * 25
    second = ["yes"] * 20 + ["no"] * 5 + ["yes"] * 10 + ["no"] * 15
    found = agreement_of(first, second)
    assert (found.same.value, found.same.num) == (0.7, 50)
    assert found.kappa == pytest.approx(0.4)
    # The large-sample standard error is sqrt(p (1 - p) / n) / (1 - chance) = 0.13, which is close enough for 50 items.
    assert found.interval is not None
    assert found.interval[1] - found.interval[0] == pytest.approx(2 * 1.96 * 0.13, abs=0.06)


def test_kappa_with_quadratic_weights_matches_a_manual_computation() -> None:
    """The pairs 1-1, 2-2 and 3-1 have a mean squared difference of 4/3. By chance, it is the mean over all nine pairs
    of {1,2,3} and {1,2,1}: (0+1+0 + 1+0+1 + 4+1+4) / 9 = 12/9. Kappa is 1 - 1 = 0."""
    assert agreement_of([1, 2, 3], [1, 2, 1], weights="quadratic").kappa == pytest.approx(0.0)
    assert agreement_of([1, 2, 3], [2, 3, 4], weights="quadratic").kappa == pytest.approx(1 - 1 / (21 / 9))


def test_items_that_one_rater_skipped_are_counted_and_left_out() -> None:
    found = agreement_of([0, 1, None, 1, 0], [0, None, 1, 1, 0])
    assert (found.same.value, found.same.num, found.kappa, found.num_missing) == (1.0, 3, 1.0, 2)


def test_kappa_is_none_if_both_raters_use_a_single_label() -> None:
    found = agreement_of(["a", "a"], ["a", "a"])
    assert (found.same.value, found.kappa, found.interval) == (1.0, None, None)
    assert agreement_of([], []).kappa is None


def test_items_of_one_prompt_are_resampled_together() -> None:
    labels = ([0, 1] * 10, [0, 1] * 5 + [1, 0] * 5)
    alone = agreement_of(*labels).interval
    together = agreement_of(*labels, clusters=["x"] * 10 + ["y"] * 10).interval
    assert together == (-1.0, 1.0)
    assert alone is not None
    assert -1 < alone[0] < alone[1] < 1


def test_the_chosen_position_is_compared_with_the_position_of_the_right_response(chosen) -> None:
    judged = [
        chosen("1", ((0, 1), 0), ((1, 0), 0)),
        chosen("2", ((1, 0), 1)),
        chosen("3", ((0, 1), 0)),
        chosen("4", ((0, 1), None)),
    ]
    found = agreement_with_labels(judged)
    # Chosen positions: 0 1 0 0. Right positions: 0 1 1 0. Agreement is 3/4, and (3 x 2 + 1 x 2) / 16 = 1/2 by chance.
    assert (found.same.value, found.kappa, found.num_missing) == (0.75, pytest.approx(0.5), 1)


def test_labels_of_different_lengths_and_texts_with_weights_are_refused() -> None:
    with pytest.raises(ValueError, match="got 3 and 2"):
        agreement_of([1, 2, 3], [1, 2])
    with pytest.raises(ValueError, match="quadratic weights need numbers, got 'good'"):
        agreement_of([1, "good"], [1, 2], weights="quadratic")


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=30))
def test_kappa_is_symmetric_and_at_most_1(pairs: list[tuple[int, int]]) -> None:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    forth = agreement_of(first, second, num_resamples=20)
    back = agreement_of(second, first, num_resamples=20)
    assert (forth.kappa is None) == (back.kappa is None)
    if forth.kappa is not None and back.kappa is not None:
        assert forth.kappa == pytest.approx(back.kappa)
        assert forth.kappa <= 1
        assert (forth.kappa == 1) == (first == second)

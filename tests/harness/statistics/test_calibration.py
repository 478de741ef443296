"""Calibration and selective accuracy; expected values computed manually."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tirjudge.calibration import Confidence, calibration_of
from tirjudge.types import Mode
from tirjudge_harness.statistics.calibration import confidences_of, selective_of


def said(*found: tuple[float, bool]) -> list[Confidence]:
    return [Confidence(value=value, is_right=is_right) for value, is_right in found]


def test_calibration_of_two_bins_matches_a_manual_computation() -> None:
    """Bin (0.8, 1] has 0.95 and 0.85: two of two right. Bin (0.4, 0.6] has 0.6 and 0.6: one of two right."""
    found = calibration_of(said((0.95, True), (0.85, True), (0.6, True), (0.6, False)), num_bins=5)
    assert [(b.low, b.high, b.num, b.accuracy) for b in found.bins] == [(0.4, 0.6, 2, 0.5), (0.8, 1.0, 2, 1.0)]
    assert [b.confidence for b in found.bins] == [pytest.approx(0.6), pytest.approx(0.9)]
    assert found.expected_error == pytest.approx(0.1)
    assert found.largest_error == pytest.approx(0.1)
    assert found.brier == pytest.approx((0.0025 + 0.0225 + 0.16 + 0.36) / 4)
    assert (found.accuracy, found.confidence) == (0.75, pytest.approx(0.75))
    assert found.bins[1].interval == (pytest.approx(2 / (2 + 1.959964**2), abs=1e-6), 1.0)


def test_calibration_without_choices_is_none() -> None:
    found = calibration_of([])
    assert (found.bins, found.expected_error, found.brier) == ((), None, None)
    assert (selective_of([]).curve, selective_of([]).area) == ((), None)


def test_selective_accuracy_starts_with_the_highest_confidence() -> None:
    found = selective_of(said((0.6, False), (0.9, True), (0.7, True)))
    assert [(c.threshold, c.accuracy) for c in found.curve] == [(0.9, 1.0), (0.7, 1.0), (0.6, pytest.approx(2 / 3))]
    assert [c.share for c in found.curve] == [pytest.approx(1 / 3), pytest.approx(2 / 3), 1.0]
    assert found.area == pytest.approx((1 + 1 + 2 / 3) / 3)


def test_choices_with_equal_confidence_count_in_every_order() -> None:
    """One choice is right and one is wrong, with equal confidence. Accuracy is 1 and then 1/2 in one order, 0 and then
    1/2 in the other. At both coverages, the mean over the orders is 1/2."""
    forth, back = said((0.8, True), (0.8, False)), said((0.8, False), (0.8, True))
    assert selective_of(forth) == selective_of(back)
    assert len(selective_of(forth).curve) == 1
    assert selective_of(forth).area == 0.5


def test_the_confidence_of_a_decision_is_the_probability_of_its_choice(chosen) -> None:
    judged = chosen(
        "1", ((0, 1), 0), ((1, 0), 1), ((0, 1), None), probabilities=[(0.75, 0.25), (0.625, 0.375), (0.5, 0.5)]
    )
    assert confidences_of([judged]) == said((0.75, True), (0.625, False))


@pytest.mark.parametrize("correct", [(), (0, 1)])
def test_a_choice_counts_only_between_a_right_and_a_wrong_response(chosen, correct: tuple[int, ...]) -> None:
    """People call the row a tie, or both responses shown are right."""
    judged = chosen("1", ((0, 1), 0), probabilities=[(0.75, 0.25)])
    outline = replace(judged.outline, correct=correct)
    assert confidences_of([replace(judged, outline=outline)]) == []


def test_the_confidence_of_two_scores_is_the_probability_that_one_is_higher(mark, judged, judgment) -> None:
    """A score of 7 or 5 against a score of 5 or 2, all equally likely: the first score is higher in 3 of 4 cases and
    equal in one, so the confidence is 3/4 + 1/8."""
    right = judgment([], id="1", mode=Mode.POINTWISE, scores={"7": 0.5, "5": 0.5})
    wrong = judgment([], id="2", mode=Mode.POINTWISE, scores={"5": 0.5, "2": 0.5})
    run = judged("e", ((0,), right), ((1,), wrong), mode=Mode.POINTWISE)
    assert confidences_of([run], marks=[mark("e", 1.0)]) == said((0.875, True))
    turned = judged("e", ((0,), wrong), ((1,), right), mode=Mode.POINTWISE)
    assert confidences_of([turned], marks=[mark("e", 0.0)]) == said((0.875, False))
    same = judged("e", ((0,), right), ((1,), right), mode=Mode.POINTWISE)
    assert confidences_of([same], marks=[mark("e", 0.5)]) == []


def test_votes_on_a_score_are_averaged_to_one_distribution(mark, judged, judgment) -> None:
    """A score of 7 or 4, equally likely over both votes, against a score of 5 is higher in half of the cases."""
    split = judgment([], [], id="1", mode=Mode.POINTWISE, scores={"7": 0.5, "4": 0.5})
    five = judgment([], id="2", mode=Mode.POINTWISE, scores={"5": 1.0})
    run = judged("e", ((0,), split), ((1,), five), mode=Mode.POINTWISE)
    assert confidences_of([run], marks=[mark("e", 1.0)]) == said((0.5, True))


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=50))
def test_every_choice_is_in_one_bin_and_errors_are_between_0_and_1(found: list[tuple[float, bool]]) -> None:
    calibration = calibration_of(said(*found))
    assert sum(b.num for b in calibration.bins) == len(found)
    assert all(b.low - 1e-12 <= b.confidence <= b.high + 1e-12 for b in calibration.bins)
    assert calibration.expected_error is not None
    assert calibration.largest_error is not None
    assert 0 <= calibration.expected_error <= calibration.largest_error + 1e-12 <= 1 + 1e-12
    curve = selective_of(said(*found)).curve
    assert curve[-1].share == 1.0
    assert curve[-1].accuracy == calibration.accuracy

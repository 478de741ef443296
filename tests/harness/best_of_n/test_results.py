"""Baselines and results over four problems with three responses each; expected values computed manually."""

from __future__ import annotations

import pytest

from tirjudge.statistics import wilson_interval
from tirjudge_harness.best_of_n.cli import results_table
from tirjudge_harness.best_of_n.grading import GradedResponse
from tirjudge_harness.best_of_n.results import baselines, result_of

GRADED = [
    GradedResponse(id=1, credits=(1.0, 0.0, 0.0), answers=("5", "6", "6")),
    GradedResponse(id=2, credits=(0.0, 1.0, 1.0), answers=("1", "2", "2")),
    GradedResponse(id=3, credits=(0.0, 0.0, 0.0), answers=(None, None, "9")),
    GradedResponse(id=4, credits=(0.0, 0.0, 1.0), answers=(None, "3", "4")),
]


def test_baselines_have_the_grade_of_their_choice_for_each_problem() -> None:
    assert baselines(GRADED) == {
        "first": [1.0, 0.0, 0.0, 0.0],
        "pass@1": [pytest.approx(1 / 3), pytest.approx(2 / 3), 0.0, pytest.approx(1 / 3)],
        "majority": [0.0, 1.0, 0.0, 0.0],
        "oracle": [1.0, 1.0, 0.0, 1.0],
    }


def test_majority_is_left_out_if_answers_are_unknown() -> None:
    unknown = GradedResponse(id=5, credits=(1.0,), answers=None)
    assert "majority" not in baselines([*GRADED, unknown])


def test_helpfulness_is_the_gain_over_the_first_response_relative_to_the_oracle() -> None:
    two = result_of([1.0, 1.0, 0.0, 0.0], graded=GRADED, dataset="d", policy="p", strategy="s")
    assert (two.solved, two.num_problems, two.share) == (2.0, 4, 0.5)
    assert two.helpfulness == (2 - 1) / (3 - 1)
    assert two.interval == pytest.approx(wilson_interval(2, num_trials=4))
    worse = result_of([0.0, 0.0, 0.0, 0.0], graded=GRADED, dataset="d", policy="p", strategy="s")
    assert worse.helpfulness == -0.5


def test_helpfulness_is_none_if_first_and_oracle_are_equal() -> None:
    none = result_of([0.0], graded=[GRADED[2]], dataset="d", policy="", strategy="s")
    assert none.helpfulness is None


def test_a_result_without_problems_has_no_share() -> None:
    nothing = result_of([], graded=[], dataset="d", policy="", strategy="s", num_missing=3)
    assert (nothing.share, nothing.interval, nothing.num_missing) == (None, None, 3)


def test_solved_problems_have_at_most_two_digits_after_the_point() -> None:
    rows = [[1 / 3, 2 / 3, 1 / 3, 0.0], [0.1, 0.2, 0.7, 0.0], [1.0, 1.0, 0.0, 0.0], [0.999, 1.0, 0.0, 0.0]]
    results = [result_of(row, graded=GRADED, dataset="d", policy="p", strategy="s") for row in rows]
    assert list(results_table(results).columns[1].cells) == ["1.33/4", "1/4", "2/4", "2.00/4"]

"""Baselines and results over four problems of three responses, added up by hand."""

from __future__ import annotations

import pytest

from tirjudge.statistics import wilson_interval
from tirjudge_harness.best_of_n.grading import GradedResponse
from tirjudge_harness.best_of_n.results import baselines, result_of

GRADED = [
    GradedResponse(id=1, credits=(1.0, 0.0, 0.0), answers=("5", "6", "6")),
    GradedResponse(id=2, credits=(0.0, 1.0, 1.0), answers=("1", "2", "2")),
    GradedResponse(id=3, credits=(0.0, 0.0, 0.0), answers=(None, None, "9")),
    GradedResponse(id=4, credits=(0.0, 0.0, 1.0), answers=(None, "3", "4")),
]


def test_baselines_are_those_of_the_table() -> None:
    assert baselines(GRADED) == {
        "first": [1.0, 0.0, 0.0, 0.0],
        "pass@1": [pytest.approx(1 / 3), pytest.approx(2 / 3), 0.0, pytest.approx(1 / 3)],
        "majority": [0.0, 1.0, 0.0, 0.0],
        "oracle": [1.0, 1.0, 0.0, 1.0],
    }


def test_without_answers_there_is_no_majority() -> None:
    unknown = GradedResponse(id=5, credits=(1.0,), answers=None)
    assert "majority" not in baselines([*GRADED, unknown])


def test_helpfulness_is_how_far_from_the_first_response_to_the_oracle() -> None:
    two = result_of([1.0, 1.0, 0.0, 0.0], graded=GRADED, dataset="d", policy="p", strategy="s")
    assert (two.solved, two.num_problems, two.share) == (2.0, 4, 0.5)
    assert two.helpfulness == (2 - 1) / (3 - 1)
    assert two.interval == pytest.approx(wilson_interval(2, num_trials=4))
    worse = result_of([0.0, 0.0, 0.0, 0.0], graded=GRADED, dataset="d", policy="p", strategy="s")
    assert worse.helpfulness == -0.5


def test_helpfulness_is_not_known_where_nothing_is_to_be_gained() -> None:
    none = result_of([0.0], graded=[GRADED[2]], dataset="d", policy="", strategy="s")
    assert none.helpfulness is None


def test_a_result_of_nothing_has_no_share() -> None:
    nothing = result_of([], graded=[], dataset="d", policy="", strategy="s", num_missing=3)
    assert (nothing.share, nothing.interval, nothing.num_missing) == (None, None, 3)

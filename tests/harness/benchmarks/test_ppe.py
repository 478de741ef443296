from __future__ import annotations

from itertools import combinations
from statistics import fmean
from typing import Any

import pytest

from tirjudge.types import Mode
from tirjudge_harness.benchmarks.ppe import BENCHMARK, BEST_OF_K
from tirjudge_harness.benchmarks.ppe_curves import area_under_roc, best_of_k, ideal_best_of_k, loss


def row(question: str, *, model: str = "m", scores: tuple[bool, ...] = (True, False, False), pairs: Any = None):
    return {
        "question_id": question,
        "model_name": model,
        "prompt": f"Question {question}",
        "scores": list(scores),
        "sampled_conflict_pairs": [[0, 1], [2, 0], [0, 1]] if pairs is None else pairs,
        **{f"response_{number}": f"answer {number} of {model}" for number in range(1, len(scores) + 1)},
    }


def test_sampled_pairs_become_examples_including_repeated_pairs(load) -> None:
    examples = load(BENCHMARK, [row("q")], part="math")
    assert [example.outline.id for example in examples] == ["math/q/m+0", "math/q/m+1", "math/q/m+2"]
    assert [example.outline.correct for example in examples] == [(0,), (1,), (0,)]
    assert examples[1].responses == ("answer 3 of m", "answer 1 of m")
    assert {example.outline.cluster for example in examples} == {"math/q/m"}


def test_one_question_and_two_models_are_two_clusters(load) -> None:
    examples = load(BENCHMARK, [row("q", model="m"), row("q", model="n")], part="math")
    assert {example.outline.cluster for example in examples} == {"math/q/m", "math/q/n"}


def test_average_weights_sets_equally(load, named, figures) -> None:
    mathematics = load(BENCHMARK, [row("q")], part="math")
    programs = load(BENCHMARK, [row("q", pairs=[[0, 1]])], part="mbpp_plus")
    judged = [named(mathematics[0], 0), named(mathematics[1], 0), named(mathematics[2], "tie"), named(programs[0], 0)]
    values = figures(BENCHMARK, judged)
    assert (values["math"], values["mbpp_plus"], values["gpqa"]) == (0.5, 1.0, None)
    assert values["average"] == 0.75


@pytest.mark.parametrize(
    ("pairs", "problem"),
    [
        ([[0, 3]], "[0, 3] are not indexes of the 3 responses"),
        ([[1, 2]], "the responses [1, 2] are both right or both wrong"),
        ([[0]], "expected 2 values, got 1"),
        ("0 1", "not valid JSON"),
    ],
)
def test_pairs_without_right_and_wrong_response_are_an_invalid_row(load, bad, pairs: Any, problem: str) -> None:
    load(BENCHMARK, [row("q"), row("r", pairs=pairs)], part="math")
    assert [report.number for report in bad] == [2]
    assert problem in bad[0].problem


def test_best_of_k_scores_every_response_once(load, rated, figures) -> None:
    (example,) = load(BEST_OF_K, [row("q")], part="math")
    assert BEST_OF_K.asked(example.outline, mode=Mode.POINTWISE) == [(0,), (1,), (2,)]
    values = figures(BEST_OF_K, [rated(example, 5, 7, 5)])
    # The sampled pair (0, 1) is wrong both times, and the scores of the pair (2, 0) are equal. The right response
    # scores above neither of the two wrong responses, and equals one of them.
    assert values["average"] == pytest.approx((0 + 0.5 + 0) / 3)
    assert values["area under ROC: math"] == pytest.approx(0.25)
    # Best of 1: 1/3. Best of 2: wrong for {0,1} and {1,2}, half right for {0,2}. Best of 3: wrong.
    assert values["best of any k: math"] == pytest.approx(1 / 3)
    assert values["best of all: math"] == 0.0
    assert values["loss: math"] == pytest.approx(fmean([1 / 3 - 1 / 3, 2 / 3 - 1 / 6, 1 - 0]))
    assert values["best of all: gpqa"] is None
    # Of the curve 1/3, 1/6, 0.
    assert (values["best of 1: math"], values["best of 2: math"]) == (pytest.approx(1 / 3), pytest.approx(1 / 6))
    assert values["best of 4: math"] is None


def test_the_best_of_any_k_is_the_maximum_of_the_mean_curve(load, rated, figures) -> None:
    """Curves 1/3, 2/3, 1 and 1/3, 1/6, 0: the mean is 1/3, 5/12, 1/2."""
    first, second = load(BEST_OF_K, [row("q"), row("r")], part="math")
    values = figures(BEST_OF_K, [rated(first, 9, 7, 5), rated(second, 5, 7, 5)])
    assert values["best of any k: math"] == pytest.approx(1 / 2)
    assert values["loss: math"] == pytest.approx((0 + (0 + 1 / 2 + 1) / 3) / 2)


def test_area_under_roc_matches_a_manual_computation() -> None:
    # The right responses score 7 and 3, the wrong responses 5 and 3: 7 > 5, 7 > 3, 3 < 5, 3 = 3.
    assert area_under_roc([7, 5, 3, 3], [True, False, True, False]) == pytest.approx(2.5 / 4)
    assert area_under_roc([None, 1], [True, False]) == 0.0
    assert area_under_roc([1, 2], [True, True]) is None


def test_best_of_k_is_the_mean_over_all_subsets() -> None:
    scores, correct = (4.0, 2.0, 4.0, None, 1.0), (False, True, True, True, False)

    def expected(k: int) -> float:
        wins = []
        for chosen in combinations(range(5), k):
            known = [-1.0 if scores[index] is None else scores[index] for index in chosen]
            best = [index for index, score in zip(chosen, known, strict=True) if score == max(known)]
            wins.append(fmean(correct[index] for index in best))
        return fmean(wins)

    assert best_of_k(scores, correct) == pytest.approx([expected(k) for k in range(1, 6)])


def test_ideal_curve_is_the_probability_of_a_right_response_among_k() -> None:
    # One of three responses is right, so the probabilities are 1/3, 2/3 and 1.
    assert ideal_best_of_k((False, True, False)) == pytest.approx((1 / 3, 2 / 3, 1))


def test_loss_is_the_mean_distance_between_curves() -> None:
    assert loss((0.25, 0.5), (0.5, 1.0)) == pytest.approx(0.375)

from __future__ import annotations

import pytest

from tirjudge.types import Mode
from tirjudge_harness.benchmarks.ppe_preference import BENCHMARK
from tirjudge_harness.examples import models_of


def row(number: int, *, winner: str = "model_a", language: str = "English", **flags: object) -> dict[str, object]:
    columns = ("hard_prompt", "easy_prompt", "if_prompt", "is_code", "math_prompt")
    return {
        "question_id": f"q{number}",
        "model_a": "m1",
        "model_b": "m2",
        "winner": winner,
        "prompt": f"Explain {number}.",
        "response_1": f"first {number}",
        "response_2": f"second {number}",
        "language": language,
        **{column: flags.get(column, False) for column in columns},
    }


def test_the_winner_is_the_right_response_and_a_tie_counts_in_no_figure(load, bad, named, figures) -> None:
    winners = ["model_a", "model_b", "tie", "tie (bothbad)"]
    examples = load(BENCHMARK, [row(n, winner=winner) for n, winner in enumerate(winners)])
    right = {one.outline.id: one.outline.correct for one in examples}
    assert right == {"q0": (0,), "q1": (1,), "q2": (0, 1), "q3": (0, 1)}
    assert examples[0].responses == ("first 0", "second 0")
    assert bad == []
    assert [models_of(one.outline) for one in examples] == [("m1", "m2")] * 4
    assert [BENCHMARK.compared(one.outline, Mode.PAIRWISE) for one in examples] == [[(0, 1)]] * 4
    values = figures(BENCHMARK, [named(one, 0) for one in examples])
    assert (values["accuracy"], values["Cohen's kappa x 100"]) == (0.5, 0.0)


def test_models_need_not_be_named(load) -> None:
    unnamed = {key: value for key, value in row(0).items() if not key.startswith("model_")}
    assert [models_of(one.outline) for one in load(BENCHMARK, [unnamed])] == [None]


def test_kappa_matches_a_manual_computation(load, named, figures) -> None:
    """Votes: 0, 0, 0, 1, 1, tie. Choices: 0, 1, none, 1, tie. 2 of 5 are equal; by chance 1/5 x 3/5 + 2/5 x 2/5 = 7/25."""
    winners = ["model_a"] * 3 + ["model_b"] * 2 + ["tie"]
    examples = load(BENCHMARK, [row(n, winner=winner) for n, winner in enumerate(winners)])
    choices = [0, 1, None, 1, "tie", 0]
    values = figures(BENCHMARK, [named(one, choice) for one, choice in zip(examples, choices, strict=True)])
    assert values["Cohen's kappa x 100"] == pytest.approx((2 / 5 - 7 / 25) / (1 - 7 / 25))


def test_accuracy_is_reported_for_all_pairs_and_for_each_kind_of_prompt(load, named, figures) -> None:
    rows = [
        row(0, hard_prompt=True, is_code=True),
        row(1, hard_prompt=True, language="German"),
        row(2, easy_prompt=True),
        row(3, if_prompt=True, math_prompt=1),
    ]
    choices = [0, 1, 0, 1]
    judged = [named(example, choice) for example, choice in zip(load(BENCHMARK, rows), choices, strict=True)]
    assert figures(BENCHMARK, judged) == {
        "accuracy": 0.5,
        "Cohen's kappa x 100": 0.0,
        "hard": 0.5,
        "easy": 1.0,
        "instruction following": 0.0,
        "coding": 1.0,
        "math": 0.0,
        "English": pytest.approx(2 / 3),
        "other languages": 0.0,
        "language: English": pytest.approx(2 / 3),
        "language: German": 0.0,
    }


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        ({"winner": "model_c"}, "winner: expected model_a, model_b or tie, got 'model_c'"),
        ({"is_code": "maybe"}, "is_code: expected a boolean, got 'maybe'"),
        ({"response_2": None}, "response_2: expected a string, got null"),
    ],
)
def test_an_invalid_row_is_reported(load, bad, broken: dict[str, object], problem: str) -> None:
    assert len(load(BENCHMARK, [row(0), row(1) | broken])) == 1
    assert [report.problem for report in bad] == [problem]

from __future__ import annotations

import pytest

from tirjudge_harness.benchmarks.ppe_preference import BENCHMARK


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


def test_the_winner_is_the_right_response_and_a_tie_gives_no_example(load, bad) -> None:
    winners = ["model_a", "model_b", "tie", "tie (bothbad)"]
    examples = load(BENCHMARK, [row(n, winner=winner) for n, winner in enumerate(winners)])
    assert [(one.outline.id, one.outline.correct) for one in examples] == [("q0", (0,)), ("q1", (1,))]
    assert examples[0].responses == ("first 0", "second 0")
    assert bad == []


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

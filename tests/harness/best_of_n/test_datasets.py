"""Valid and invalid rows of each layout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tirjudge_harness.best_of_n.datasets import problem_in, read_problems
from tirjudge_harness.items import InputError
from tirjudge_harness.sources import BadRow

Write = Callable[..., Path]
ROW = {"id": "a", "prompt": "p", "responses": ["x", "y"]}


def test_grades_come_from_correct_then_scores_then_label() -> None:
    assert problem_in(ROW, number=1).credits is None
    assert problem_in(ROW | {"label": 1}, number=1).credits == (0.0, 1.0)
    assert problem_in(ROW | {"label": 1, "scores": [0.25, 1]}, number=1).credits == (0.25, 1.0)
    assert problem_in(ROW | {"label": 1, "correct": [True, True]}, number=1).credits == (1.0, 1.0)


def test_grades_and_answers_are_read_from_meta_and_other_columns_go_to_the_grader() -> None:
    row = ROW | {"label": None, "subset": "s", "meta": {"correct": [False, True], "answer": "18", "pred": ["", "18"]}}
    problem = problem_in(row, number=1)
    assert problem.credits == (0.0, 1.0)
    assert problem.answers == (None, "18")
    assert problem.subset == "s"
    assert problem.facts == {"answer": "18"}


def test_a_jetts_row_is_read() -> None:
    row = {
        "query": {"content": "Add.", "metadata": {"task_id": "T/3", "test": "assert f() == 1"}},
        "responses": [
            {"content": "greedy", "metadata": {"score": 0}},
            {"content": "sampled", "metadata": {"score": 0.5}},
        ],
    }
    problem = problem_in(row, number=4)
    assert (problem.id, problem.prompt, problem.responses) == ("T/3", "Add.", ("greedy", "sampled"))
    assert problem.credits == (0.0, 0.5)
    assert problem.facts == {"task_id": "T/3", "test": "assert f() == 1"}


def test_a_jetts_row_without_id_and_scores_has_its_number_as_id_and_no_grades() -> None:
    row = {"query": {"content": "q", "metadata": {}}, "responses": [{"content": "r", "metadata": {}}]}
    assert (problem_in(row, number=4).id, problem_in(row, number=4).credits) == (4, None)


def test_an_aime_row_keeps_its_answer_for_the_grader() -> None:
    problem = problem_in({"id": 60, "problem": "Find x.", "answer": 25, "responses": ["25"]}, number=1)
    assert (problem.id, problem.prompt, problem.facts) == (60, "Find x.", {"answer": 25})


def test_a_prompt_may_be_a_conversation() -> None:
    problem = problem_in(ROW | {"prompt": [{"role": "user", "content": "hi"}]}, number=1)
    assert not isinstance(problem.prompt, str)
    assert problem.prompt[0].content == "hi"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": 2}, "label: expected an index from 0 to 1, got 2"),
        ({"correct": [1, 0]}, "true or false for each of 2"),
        ({"correct": [True]}, "true or false for each of 2"),
        ({"scores": [0.5, 7]}, "scores: expected numbers from 0 to 1, got 7"),
        ({"scores": [0.5]}, "scores: expected one per response (2), got 1"),
        ({"answers": ["1"]}, "answers: expected one per response (2), got 1"),
        ({"responses": []}, "responses: expected 1 to 1024, got 0"),
        ({"responses": ["x", 3]}, "responses[1]: expected a string, got 3"),
        ({"prompt": [{"role": "boss", "content": "hi"}]}, "role"),
        ({"prompt": " "}, "prompt: the cell is empty"),
    ],
)
def test_an_invalid_row_is_skipped_and_reported(write_lines: Write, change: dict[str, Any], message: str) -> None:
    bad: list[BadRow] = []
    path = write_lines([ROW, ROW | {"id": "b"} | change])
    assert [problem.id for problem in read_problems(path, on_bad=bad.append)] == ["a"]
    assert [row.number for row in bad] == [2]
    assert message in bad[0].problem


def test_rows_with_a_missing_column_and_repeated_rows_are_invalid(write_lines: Write) -> None:
    bad: list[BadRow] = []
    path = write_lines([ROW, ROW, {"id": "c", "prompt": "p"}, b"oops\n"], name="in.jsonl.gz")
    assert len(read_problems(path, on_bad=bad.append)) == 1
    assert [str(row).partition("row ")[2] for row in bad][:2] == [
        "2: duplicate of row 1",
        "3: no column 'responses'",
    ]
    assert "4: not JSON" in str(bad[2])


def test_an_id_with_other_texts_gets_a_suffix(write_lines: Write) -> None:
    rows = [{"id": 7, "prompt": prompt, "responses": ["x"]} for prompt in ("p", "q", "r")]
    found = read_problems(write_lines([*rows, rows[0] | {"id": "b"}]), on_bad=lambda row: None)
    assert [problem.id for problem in found] == [7, "7#2", "7#3", "b"]


def test_a_file_without_valid_rows_is_refused(write_lines: Write) -> None:
    with pytest.raises(InputError, match="no valid rows; the first error is in row 1: no column 'responses'"):
        read_problems(write_lines([{"id": 1, "prompt": "p"}]), on_bad=lambda row: None)
    with pytest.raises(InputError, match="the file has no rows"):
        read_problems(write_lines([]), on_bad=lambda row: None)

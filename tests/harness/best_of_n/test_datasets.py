"""Rows of each layout, good and broken."""

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


def test_what_is_known_of_the_responses_is_read_from_the_first_column_that_says_it() -> None:
    assert problem_in(ROW, number=1).credits is None
    assert problem_in(ROW | {"label": 1}, number=1).credits == (0.0, 1.0)
    assert problem_in(ROW | {"label": 1, "scores": [0.25, 1]}, number=1).credits == (0.25, 1.0)
    assert problem_in(ROW | {"label": 1, "correct": [True, True]}, number=1).credits == (1.0, 1.0)


def test_a_neutral_row_says_it_in_meta_and_leaves_the_rest_to_the_grader() -> None:
    row = ROW | {"label": None, "subset": "s", "meta": {"correct": [False, True], "answer": "18", "pred": ["", "18"]}}
    problem = problem_in(row, number=1)
    assert problem.credits == (0.0, 1.0)
    assert problem.answers == (None, "18")
    assert problem.subset == "s"
    assert problem.facts == {"answer": "18"}


def test_the_layout_of_jetts_is_read_as_it_is() -> None:
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


def test_a_row_of_jetts_without_an_id_goes_by_its_number_and_without_scores_has_no_credits() -> None:
    row = {"query": {"content": "q", "metadata": {}}, "responses": [{"content": "r", "metadata": {}}]}
    assert (problem_in(row, number=4).id, problem_in(row, number=4).credits) == (4, None)


def test_a_problem_of_the_aime_keeps_its_answer_for_the_grader() -> None:
    problem = problem_in({"id": 60, "problem": "Find x.", "answer": 25, "responses": ["25"]}, number=1)
    assert (problem.id, problem.prompt, problem.facts) == (60, "Find x.", {"answer": 25})


def test_a_prompt_may_be_a_conversation() -> None:
    problem = problem_in(ROW | {"prompt": [{"role": "user", "content": "hi"}]}, number=1)
    assert not isinstance(problem.prompt, str)
    assert problem.prompt[0].content == "hi"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"label": 2}, "label: 2 given, there are 2 responses"),
        ({"correct": [1, 0]}, "true or false for each of 2"),
        ({"correct": [True]}, "true or false for each of 2"),
        ({"scores": [0.5, 7]}, "scores: 7 given, numbers from 0 to 1"),
        ({"scores": [0.5]}, "scores: 1 given for 2 responses"),
        ({"answers": ["1"]}, "answers: 1 given for 2 responses"),
        ({"responses": []}, "responses: 0 given, 1 to 1024 wanted"),
        ({"responses": ["x", 3]}, "responses[1]: expected a string, got 3"),
        ({"prompt": [{"role": "boss", "content": "hi"}]}, "role"),
    ],
)
def test_a_broken_row_is_named_with_what_is_wrong(write_lines: Write, change: dict[str, Any], said: str) -> None:
    bad: list[BadRow] = []
    path = write_lines([ROW, ROW | {"id": "b"} | change])
    assert [problem.id for problem in read_problems(path, on_bad=bad.append)] == ["a"]
    assert [row.number for row in bad] == [2]
    assert said in bad[0].problem


def test_a_missing_column_and_a_repeated_id_are_broken_rows(write_lines: Write) -> None:
    bad: list[BadRow] = []
    path = write_lines([ROW, ROW, {"id": "c", "prompt": "p"}, b"oops\n"], name="in.jsonl.gz")
    assert len(read_problems(path, on_bad=bad.append)) == 1
    assert [str(row).partition("row ")[2] for row in bad][:2] == [
        "2: id: 'a' given, as in row 1",
        "3: no column 'responses'",
    ]
    assert "4: not JSON" in str(bad[2])


def test_a_file_without_a_row_that_can_be_used_is_one_error(write_lines: Write) -> None:
    with pytest.raises(InputError, match="no row of it can be used; the first: row 1: no column 'responses'"):
        read_problems(write_lines([{"id": 1, "prompt": "p"}]), on_bad=lambda row: None)
    with pytest.raises(InputError, match="the file has no rows"):
        read_problems(write_lines([]), on_bad=lambda row: None)

"""Read files of problems with N responses each, in two layouts.

    plain    {"id", "prompt", "responses"}, and optionally the grades of the responses: "correct" (true or false per
             response), "scores" (0 to 1 per response), or "label" (index of the only right response); optionally also
             "answers", the final answer of each response
    JETTS    {"query": {"content", "metadata"}, "responses": [{"content", "metadata": {"score"}}]}, as published

A plain row may name its prompt `problem` (as AIME does) or `question`. Grades, answers and the columns that a grader
reads, such as `answer` or `test`, may be in the row or in its `meta`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tirjudge.http.protocol import problem_of
from tirjudge.types import MAX_RESPONSES, ChatMessage
from tirjudge_harness.benchmark import Row
from tirjudge_harness.columns import conversation, items, name, record, text, texts, whole
from tirjudge_harness.examples import Example, example
from tirjudge_harness.items import InputError, ItemId
from tirjudge_harness.neutral import meta_of
from tirjudge_harness.own_data.cells import is_empty
from tirjudge_harness.row_files import read_rows
from tirjudge_harness.sources import BadRow, Collection

PROMPT_COLUMNS = ("prompt", "problem", "question")
ID_COLUMNS = ("id", "task_id", "question_id", "key")
ANSWER_COLUMNS = ("answers", "pred")
OWN_COLUMNS = {*PROMPT_COLUMNS, *ANSWER_COLUMNS, "id", "responses", "correct", "scores", "label", "subset", "meta"}
"""Columns that this module reads. Graders get all other columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfNProblem:
    """A problem and its N responses."""

    id: ItemId
    """Unique in its file."""
    prompt: str | tuple[ChatMessage, ...]
    """Text, or a conversation."""
    responses: tuple[str, ...]
    """The candidates, 1 to `MAX_RESPONSES`."""
    credits: tuple[float, ...] | None = None
    """Grade of each response in the file, 0 (wrong) to 1 (right). None: the file has no grades."""
    answers: tuple[str | None, ...] | None = None
    """Final answer of each response in the file, None for a response without one. None: the file has no answers."""
    subset: str = ""
    """Subset of the dataset; empty: none."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Other columns of the row, for the grader; JSON values."""

    @property
    def example(self) -> Example:
        """The problem as an example for the judge, without the grades."""
        return example(
            id=str(self.id),
            prompt=self.prompt,
            responses=self.responses,
            correct=(),
            subset=self.subset,
            facts=self.facts,
        )


def read_problems(path: Path, *, on_bad: Callable[[BadRow], None]) -> list[BestOfNProblem]:
    """Read the problems of a `.jsonl`, `.json`, `.csv` or `.parquet` file; any of them may be gzipped (`.gz`).

    Of several rows with one id and other texts, all but the first get a suffix such as `#2`, as in `bench run`.

    Args:
        path: the file.
        on_bad: called with each row that is not a valid problem; the row is skipped.

    Raises:
        InputError: the file cannot be read, or none of its rows is a valid problem.
    """
    found: list[BestOfNProblem] = []
    collection = Collection()
    bad: list[BadRow] = []
    for numbered in read_rows(path):
        try:
            if numbered.row is None:
                raise ValueError(numbered.problem)
            problem = problem_in(numbered.row, number=numbered.number)
            id = collection.add(problem.example, place=f"row {numbered.number}")
        except (ValueError, KeyError) as error:
            bad.append(BadRow(source=str(path), number=numbered.number, problem=_message_of(error)))
            on_bad(bad[-1])
            continue
        found.append(problem if id == str(problem.id) else replace(problem, id=id))
    if not found:
        raise InputError(f"{path}: no valid rows; the first error is in row {bad[0].number}: {bad[0].problem}")
    return found


def problem_in(row: Row, *, number: int) -> BestOfNProblem:
    """Return the problem in a row.

    Args:
        row: a row in one of the layouts.
        number: number of the row, used as the id if the row has no id.

    Raises:
        ValueError: a value of the row is not valid.
        KeyError: a column is missing.
    """
    problem = _jetts(row, number=number) if "query" in row else _plain(row, number=number)
    if is_empty(problem.prompt):
        raise ValueError("prompt: the cell is empty")
    given = len(problem.responses)
    if not 1 <= given <= MAX_RESPONSES:
        raise ValueError(f"responses: expected 1 to {MAX_RESPONSES}, got {given}")
    for column, values in (("answers", problem.answers), ("scores", problem.credits)):
        if values is not None and len(values) != given:
            raise ValueError(f"{column}: expected one per response ({given}), got {len(values)}")
    return problem


def _plain(row: Row, *, number: int) -> BestOfNProblem:
    both = {**meta_of(row), **{column: value for column, value in row.items() if value is not None}}
    prompt = next((column for column in PROMPT_COLUMNS if column in both), PROMPT_COLUMNS[0])
    responses = texts(row, "responses")
    return BestOfNProblem(
        id=_id_in(both, number=number),
        prompt=conversation(both, prompt),
        responses=responses,
        credits=_credits(both, num_responses=len(responses)),
        answers=_answers(both),
        subset="" if both.get("subset") is None else text(both, "subset"),
        facts={column: value for column, value in both.items() if column not in OWN_COLUMNS},
    )


def _jetts(row: Row, *, number: int) -> BestOfNProblem:
    query = record(row, "query")
    facts = meta_of(query, "metadata")
    responses = [record({"responses": one}, "responses") for one in items(row, "responses")]
    metas = [meta_of(one, "metadata") for one in responses]
    scored = [meta.get("score") is not None for meta in metas]
    if any(scored) and not all(scored):
        raise ValueError(f"responses: {sum(scored)} of {len(scored)} have a score; give a score to all or to none")
    return BestOfNProblem(
        id=_id_in(facts, number=number),
        prompt=conversation(query, "content"),
        responses=tuple(text(one, "content") for one in responses),
        credits=tuple(_share(meta["score"], column="score") for meta in metas) if all(scored) and scored else None,
        facts=facts,
    )


def _id_in(row: Row, *, number: int) -> ItemId:
    column = next((column for column in ID_COLUMNS if row.get(column) is not None), None)
    if column is None:
        return number
    given = name(row, column)
    return given if isinstance(row[column], str) else int(given)


def _credits(row: Row, *, num_responses: int) -> tuple[float, ...] | None:
    """Return the grades from the first of `correct`, `scores` and `label` that the row has; None if it has none."""
    if row.get("correct") is not None:
        values = items(row, "correct")
        if not all(isinstance(value, bool) for value in values) or len(values) != num_responses:
            raise ValueError(
                f"correct: expected true or false for each of {num_responses} responses, got {str(values)[:60]}"
            )
        return tuple(map(float, values))
    if row.get("scores") is not None:
        return tuple(_share(value, column="scores") for value in items(row, "scores"))
    if row.get("label") is not None:
        label = whole(row, "label")
        if not 0 <= label < num_responses:
            raise ValueError(f"label: expected an index from 0 to {num_responses - 1}, got {label}")
        return tuple(float(index == label) for index in range(num_responses))
    return None


def _share(value: Any, *, column: str) -> float:
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"{column}: expected numbers from 0 to 1, got {value!r}")
    return float(value)


def _answers(row: Row) -> tuple[str | None, ...] | None:
    column = next((column for column in ANSWER_COLUMNS if isinstance(row.get(column), list)), None)
    if column is None:
        return None
    return tuple(
        None if value is None or value == "" else name({f"{column}[{index}]": value}, f"{column}[{index}]").strip()
        for index, value in enumerate(items(row, column))
    )


def _message_of(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return problem_of(error).message
    return f"no column {error.args[0]!r}" if isinstance(error, KeyError) else str(error)

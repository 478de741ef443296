"""Files of problems with N responses each, in the layouts that there are.

    plain    {"id", "prompt", "responses"} and perhaps what is known of the responses: "correct" (true or false each),
             "scores" (0 to 1 each), or "label" (index of the only right one); and "answers", their final answers
    JETTS    {"query": {"content", "metadata"}, "responses": [{"content", "metadata": {"score"}}]}, as it is published

The prompt of a plain row may be called `problem`, as AIME's are. What a grader needs, such as `answer` or `test`, may stand
in the row or in its `meta`; what is known of the responses may, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
from tirjudge_harness.row_files import read_rows
from tirjudge_harness.sources import BadRow

PROMPT_COLUMNS = ("prompt", "problem", "question")
ID_COLUMNS = ("id", "task_id", "question_id", "key")
ANSWER_COLUMNS = ("answers", "pred")
OWN_COLUMNS = {*PROMPT_COLUMNS, *ANSWER_COLUMNS, "id", "responses", "correct", "scores", "label", "subset", "meta"}
"""What is no grader's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfNProblem:
    """A problem, and the responses among which the best is sought."""

    id: ItemId
    """Unique in its file."""
    prompt: str | tuple[ChatMessage, ...]
    responses: tuple[str, ...]
    credits: tuple[float, ...] | None = None
    """What each response is worth by the file, 0 to 1; None: the file does not say."""
    answers: tuple[str | None, ...] | None = None
    """The final answer of each by the file, None for one without; None: the file does not say."""
    subset: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What a grader needs; JSON."""

    @property
    def example(self) -> Example:
        """What the judge is shown of it."""
        return example(
            id=str(self.id),
            prompt=self.prompt,
            responses=self.responses,
            correct=(),
            subset=self.subset,
            facts=self.facts,
        )


def read_problems(path: Path, *, on_bad: Callable[[BadRow], None]) -> list[BestOfNProblem]:
    """The problems of a `.jsonl`, `.json`, `.csv` or `.parquet` file, each perhaps `.gz`.

    Args:
        path: of the file.
        on_bad: told of each row that gives no problem; it is left out.

    Raises:
        InputError: the file cannot be read, or no row of it gives a problem.
    """
    found: dict[ItemId, BestOfNProblem] = {}
    row_of: dict[ItemId, int] = {}
    bad: list[BadRow] = []
    for numbered in read_rows(path):
        try:
            if numbered.row is None:
                raise ValueError(numbered.problem)
            problem = problem_in(numbered.row, number=numbered.number)
            if problem.id in found:
                raise ValueError(f"id: {problem.id!r} given, as in row {row_of[problem.id]}")
        except (ValueError, KeyError) as error:
            bad.append(BadRow(source=str(path), number=numbered.number, problem=_said(error)))
            on_bad(bad[-1])
            continue
        found[problem.id], row_of[problem.id] = problem, numbered.number
    if not found:
        raise InputError(f"{path}: no row of it can be used; the first: row {bad[0].number}: {bad[0].problem}")
    return list(found.values())


def problem_in(row: Row, *, number: int) -> BestOfNProblem:
    """The problem of a row.

    Args:
        row: in one of the layouts.
        number: of the row, which stands for an id where there is none.

    Raises:
        ValueError, KeyError: the row is broken.
    """
    problem = _jetts(row, number=number) if "query" in row else _plain(row, number=number)
    given = len(problem.responses)
    if not 1 <= given <= MAX_RESPONSES:
        raise ValueError(f"responses: {given} given, 1 to {MAX_RESPONSES} wanted")
    for column, values in (("answers", problem.answers), ("scores", problem.credits)):
        if values is not None and len(values) != given:
            raise ValueError(f"{column}: {len(values)} given for {given} responses")
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
        raise ValueError(f"responses: {sum(scored)} of {len(scored)} have a score; all or none should")
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
    """Of `correct`, `scores` and `label`, the first that there is."""
    if row.get("correct") is not None:
        values = items(row, "correct")
        if not all(isinstance(value, bool) for value in values) or len(values) != num_responses:
            raise ValueError(
                f"correct: {str(values)[:60]} given; true or false for each of {num_responses} responses wanted"
            )
        return tuple(map(float, values))
    if row.get("scores") is not None:
        return tuple(_share(value, column="scores") for value in items(row, "scores"))
    if row.get("label") is not None:
        label = whole(row, "label")
        if not 0 <= label < num_responses:
            raise ValueError(f"label: {label} given, there are {num_responses} responses, counted from 0")
        return tuple(float(index == label) for index in range(num_responses))
    return None


def _share(value: Any, *, column: str) -> float:
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"{column}: {value!r} given, numbers from 0 to 1 wanted")
    return float(value)


def _answers(row: Row) -> tuple[str | None, ...] | None:
    column = next((column for column in ANSWER_COLUMNS if isinstance(row.get(column), list)), None)
    if column is None:
        return None
    return tuple(
        None if value is None or value == "" else name({f"{column}[{index}]": value}, f"{column}[{index}]").strip()
        for index, value in enumerate(items(row, column))
    )


def _said(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return problem_of(error).message
    return f"no column {error.args[0]!r}" if isinstance(error, KeyError) else str(error)

"""Grade responses and find their final answers, from the file itself or with a grader.

Grades are saved, because running unit tests or comparing formulas can take longer than judging.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum

from tirjudge.concurrency import gather_fail_fast
from tirjudge_harness.best_of_n.datasets import BestOfNProblem
from tirjudge_harness.best_of_n.graders.grade import Grader
from tirjudge_harness.items import InputError, ItemId
from tirjudge_harness.run_store import RunStore, StoredModel

GRADES = "grades.jsonl"

MAX_IN_FLIGHT = 16
"""Maximum number of problems graded concurrently. Graders limit their processes themselves."""


class Grading(StrEnum):
    """Source of the grades."""

    GIVEN = "given"
    """The columns `correct`, `scores` or `label` of the file."""
    AIME = "aime"
    GSM8K = "gsm8k"
    MATH = "math"
    IFEVAL = "ifeval"
    CODE = "code"

    @property
    def finds_answers(self) -> bool:
        """Whether the grader extracts final answers, so that a missing answer means that a response has none."""
        return self in (Grading.AIME, Grading.GSM8K, Grading.MATH)


@dataclass(frozen=True, slots=True, kw_only=True)
class GradedResponse:
    """A problem whose responses are all graded."""

    id: ItemId
    credits: tuple[float, ...]
    """Grade of each response, 0 (wrong) to 1 (right)."""
    answers: tuple[str | None, ...] | None
    """Final answer of each response, None for a response without one. None: answers are unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ungraded:
    """A problem with a response that could not be graded. All results leave it out."""

    id: ItemId
    reason: str
    """Why the problem could not be graded, as shown to the user."""


class GradeLine(StoredModel):
    """A line of `grades.jsonl`: the grades of one problem."""

    key: str
    """SHA-256 of the grader's name, the responses and the facts of the problem."""
    credits: tuple[float, ...]
    """Grade of each response, 0 or 1."""
    answers: tuple[str | None, ...] | None
    """Final answer of each response, None for a response without one. None: the grader found none."""


Grades = RunStore[GradeLine]
"""Saved grades, by `GradeLine.key`."""


@asynccontextmanager
async def open_grader(
    grading: Grading, *, slots: int | None = None, allow_unsafe_sandbox: bool = False
) -> AsyncIterator[Grader | None]:
    """Open a grader; None if grades come from the file.

    Args:
        grading: source of the grades.
        slots: maximum number of grading processes. None: one per core.
        allow_unsafe_sandbox: run programs even on a machine where the sandbox cannot isolate them.
    """
    match grading:
        case Grading.GIVEN:
            yield None
        case Grading.AIME:
            from tirjudge_harness.best_of_n.graders.aime import AimeGrader

            yield AimeGrader()
        case Grading.GSM8K:
            from tirjudge_harness.best_of_n.graders.gsm8k import Gsm8kGrader

            yield Gsm8kGrader()
        case Grading.IFEVAL:
            from tirjudge_harness.best_of_n.graders.ifeval import IfevalGrader

            yield IfevalGrader()
        case Grading.MATH:
            from tirjudge_harness.best_of_n.graders.math import MathGrader

            async with MathGrader(workers=slots or os.cpu_count() or 1) as grader:
                yield grader
        case Grading.CODE:
            from tirjudge_harness.best_of_n.graders.code import open_code_grader

            async with open_code_grader(slots=slots, allow_unsafe=allow_unsafe_sandbox) as grader:
                yield grader


async def grade_all(
    problems: Sequence[BestOfNProblem],
    *,
    grading: Grading,
    grader: Grader | None,
    grades: Grades,
    on_done: Callable[[], None] = lambda: None,
) -> list[GradedResponse | Ungraded]:
    """Grade the problems that have no saved grades. Return one result per problem, in order.

    Args:
        problems: the problems.
        grading: source of the grades.
        grader: the open grader. None: grades come from the file.
        grades: saved grades; new grades are added.
        on_done: called after each graded problem.
    """
    in_flight = asyncio.Semaphore(MAX_IN_FLIGHT)

    async def one(problem: BestOfNProblem) -> GradedResponse | Ungraded:
        if grader is None:
            return given_grade(problem)
        async with in_flight:
            graded = await _graded(problem, grading=grading, grader=grader, grades=grades)
        on_done()
        return graded

    return await gather_fail_fast([one(problem) for problem in problems])


def given_grade(problem: BestOfNProblem) -> GradedResponse | Ungraded:
    """Return the grades of a problem from its file."""
    if problem.credits is None:
        return Ungraded(id=problem.id, reason="the row has no column correct, scores or label")
    return GradedResponse(id=problem.id, credits=problem.credits, answers=problem.answers)


async def _graded(
    problem: BestOfNProblem, *, grading: Grading, grader: Grader, grades: Grades
) -> GradedResponse | Ungraded:
    content = [grading.value, problem.responses, dict(problem.facts)]  # everything that determines the grades
    key = hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
    line = grades.lines.get(key)
    if line is None:
        texts = list(dict.fromkeys(problem.responses))
        try:
            found = dict(zip(texts, await grader.grade(texts, facts=problem.facts), strict=True))
        except InputError as error:
            return Ungraded(id=problem.id, reason=str(error))
        each = [found[text] for text in problem.responses]
        if (unknown := next((grade for grade in each if grade.correct is None), None)) is not None:
            return Ungraded(id=problem.id, reason=str(unknown.detail.get("not_graded", "a response was not graded")))
        answers = tuple(grade.answer for grade in each)
        line = GradeLine(
            key=key,
            credits=tuple(float(bool(grade.correct)) for grade in each),
            answers=answers if any(answer is not None for answer in answers) else None,
        )
        await grades.add(line)
    no_answers = (None,) * len(line.credits) if grading.finds_answers else None
    return GradedResponse(id=problem.id, credits=line.credits, answers=line.answers or problem.answers or no_answers)

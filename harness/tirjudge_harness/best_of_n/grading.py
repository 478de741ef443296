"""What each response is worth, and its final answer: by the file itself, or by a grader. Grades are kept, because running
tests or comparing formulas may take longer than judging.
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

MAX_SIDE_BY_SIDE = 16
"""Problems under way at a time; a grader has its own limit of processes."""


class Grading(StrEnum):
    """Who grades."""

    GIVEN = "given"
    """The file: `correct`, `scores` or `label`."""
    AIME = "aime"
    GSM8K = "gsm8k"
    MATH = "math"
    IFEVAL = "ifeval"
    CODE = "code"

    @property
    def finds_answers(self) -> bool:
        """Whether it tells final answers, so that a problem without any is one to which no response gives one."""
        return self in (Grading.AIME, Grading.GSM8K, Grading.MATH)


@dataclass(frozen=True, slots=True, kw_only=True)
class GradedResponse:
    """A problem all of whose responses are graded."""

    id: ItemId
    credits: tuple[float, ...]
    """What each response is worth, 0 to 1."""
    answers: tuple[str | None, ...] | None
    """Their final answers, None for one without; None: they are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ungraded:
    """A problem with a response that could not be graded here; it is left out of all results."""

    id: ItemId
    reason: str


class GradeLine(StoredModel):
    """A line of `grades.jsonl`: a problem that a grader graded."""

    key: str
    credits: tuple[float, ...]
    answers: tuple[str | None, ...] | None


Grades = RunStore[GradeLine]
"""What was graded, by what a grade rests on."""


@asynccontextmanager
async def open_grader(
    grading: Grading, *, slots: int | None = None, allow_unsafe_sandbox: bool = False
) -> AsyncIterator[Grader | None]:
    """A grader ready for responses; None: the file has the grades.

    Args:
        grading: who grades.
        slots: processes side by side; None: one a core.
        allow_unsafe_sandbox: run programs even where nothing isolates them.
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
    """Grade what is not graded yet; one a problem, in order.

    Args:
        problems: to be graded.
        grading: who grades.
        grader: the same, opened; None: the file has the grades.
        grades: keeps them.
        on_done: told when a problem is done.
    """
    places = asyncio.Semaphore(MAX_SIDE_BY_SIDE)

    async def one(problem: BestOfNProblem) -> GradedResponse | Ungraded:
        if grader is None:
            return given_grade(problem)
        async with places:
            graded = await _graded(problem, grading=grading, grader=grader, grades=grades)
        on_done()
        return graded

    return await gather_fail_fast([one(problem) for problem in problems])


def given_grade(problem: BestOfNProblem) -> GradedResponse | Ungraded:
    """What the file says of a problem."""
    if problem.credits is None:
        return Ungraded(id=problem.id, reason="the row has neither correct nor scores nor label")
    return GradedResponse(id=problem.id, credits=problem.credits, answers=problem.answers)


async def _graded(
    problem: BestOfNProblem, *, grading: Grading, grader: Grader, grades: Grades
) -> GradedResponse | Ungraded:
    content = [grading.value, problem.responses, dict(problem.facts)]  # what a grade rests on
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
            return Ungraded(id=problem.id, reason=str(unknown.detail.get("not_graded", "it could not be graded")))
        answers = tuple(grade.answer for grade in each)
        line = GradeLine(
            key=key,
            credits=tuple(float(bool(grade.correct)) for grade in each),
            answers=answers if any(answer is not None for answer in answers) else None,
        )
        await grades.add(line)
    nowhere = (None,) * len(line.credits) if grading.finds_answers else None
    return GradedResponse(id=problem.id, credits=line.credits, answers=line.answers or problem.answers or nowhere)

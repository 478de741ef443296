"""Checks the candidates of problems, by comparison with a reference answer or by unit tests."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import replace

from tirjudge_sandbox import SandboxPool
from tirjudge_training.data.answers import AnswerQuestion, compare, last_boxed
from tirjudge_training.data.problems import AnswerCheck, CandidateAnswer, TrainingProblem
from tirjudge_training.data.quality import Reason, Rejected
from tirjudge_training.data.unit_tests import run_tests


def needs_check(problem: TrainingProblem) -> bool:
    """Whether the problem has a candidate that is not checked yet."""
    return any(candidate.right is None for candidate in problem.candidates)


async def checked(problems: Sequence[TrainingProblem], *, pool: SandboxPool) -> list[TrainingProblem | Rejected]:
    """Mark all candidates of the problems as right or wrong.

    Returns:
        The problems in order. `Rejected` with `unverifiable_answer` for a problem whose candidates cannot be checked.

    Raises:
        SandboxUnavailable: the pool does not work.
    """
    maths = [
        index for index, problem in enumerate(problems) if problem.check is AnswerCheck.MATH and needs_check(problem)
    ]
    questions = [
        AnswerQuestion(gold=problems[index].reference, responses=tuple(one.text for one in problems[index].candidates))
        for index in maths
    ]
    found: dict[int, TrainingProblem | Rejected] = {}
    for index, answers in zip(maths, await compare(questions, pool=pool), strict=True):
        problem = problems[index]
        if answers is None:
            detail = f"{problem.reference[:80]!r} cannot be compared"
            found[index] = Rejected(reason=Reason.UNVERIFIABLE_ANSWER, detail=detail)
        else:
            marked = zip(problem.candidates, answers, strict=True)
            found[index] = replace(
                problem, candidates=tuple(replace(one, right=final.right, answer=final.text) for one, final in marked)
            )
    others = [index for index in range(len(problems)) if index not in found]
    results = await asyncio.gather(*(_checked_alone(problems[index], pool=pool) for index in others))
    found |= dict(zip(others, results, strict=True))
    return [found[index] for index in range(len(problems))]


async def _checked_alone(problem: TrainingProblem, *, pool: SandboxPool) -> TrainingProblem | Rejected:
    if not needs_check(problem):
        return problem
    if problem.check is AnswerCheck.TESTS:
        return await _tested(problem, pool=pool)
    if problem.check is AnswerCheck.TEXT:
        return replace(problem, candidates=tuple(_compared_as_text(problem, one) for one in problem.candidates))
    return Rejected(
        reason=Reason.UNVERIFIABLE_ANSWER,
        detail=f"candidates with check {problem.check} must be checked by `tirjudge train pairs`, but these are not",
    )


async def _tested(problem: TrainingProblem, *, pool: SandboxPool) -> TrainingProblem | Rejected:
    """Run the candidates against the unit tests. Tests that a known right candidate fails are dropped first."""
    tests = json.loads(problem.reference)
    for known in (candidate for candidate in problem.candidates if candidate.right):
        passes = await run_tests(known.text, tests=tests, pool=pool)
        tests = [test for test, is_passed in zip(tests, passes, strict=True) if is_passed]
    if not tests:
        return Rejected(reason=Reason.UNVERIFIABLE_ANSWER, detail="the reference program fails all of its tests")
    candidates = [
        one if one.right is not None else replace(one, right=all(await run_tests(one.text, tests=tests, pool=pool)))
        for one in problem.candidates
    ]
    return replace(problem, candidates=tuple(candidates), reference=json.dumps(tests))


def _compared_as_text(problem: TrainingProblem, candidate: CandidateAnswer) -> CandidateAnswer:
    """Compare a short answer (a choice, yes or no) with the reference, ignoring case, brackets and full stops.

    The answer is the content of the last box; without a box, the last line.
    """
    lines = [line for line in candidate.text.splitlines() if line.strip()]
    answer = _plain(last_boxed(candidate.text) or (lines[-1] if lines else ""))
    return replace(candidate, answer=answer, right=answer == _plain(problem.reference))


def _plain(text: str) -> str:
    inner = re.sub(r"\\text\{([^{}]*)\}", r"\1", text)
    return re.sub(r"^[\s(\[*]+|[\s.)\]*:]+$", "", inner).casefold()

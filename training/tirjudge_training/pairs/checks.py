"""Says which sampled answers are right: by math-verify or unit tests in the sandbox, by comparison, by verifier
functions.

Without math-verify, final answers are compared as numbers; one that is no number is wrong if another number is asked
for.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from fractions import Fraction

from tirjudge_sandbox import SandboxPool
from tirjudge_training.data.answers import LIMITS, last_boxed, open_checking_pool
from tirjudge_training.data.checking import checked
from tirjudge_training.data.problems import AnswerCheck, TrainingProblem
from tirjudge_training.data.quality import Reason, Rejected
from tirjudge_training.pairs.instructions import NoVerifier, follows

Verifier = Callable[[TrainingProblem, str], Awaitable[bool]]
"""Whether an answer to a problem is right.

Raises:
    NoVerifier: it cannot say so for any answer to this problem.
"""

_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*)?\.?\d+(?:[eE][-+]?\d+)?(?:\s*/\s*\d+)?")


@asynccontextmanager
async def open_checks(*, slots: int | None = None) -> AsyncIterator[SandboxPool]:
    """A sandbox in which answers are checked.

    Raises:
        SandboxUnavailable: no isolation works here.
    """
    if has_math_verify():
        async with open_checking_pool(slots=slots) as pool:
            yield pool
    else:
        async with SandboxPool(slots=slots, limits=LIMITS) as pool:
            yield pool


def has_math_verify() -> bool:
    return importlib.util.find_spec("math_verify") is not None


async def instructions(problem: TrainingProblem, text: str) -> bool:
    """The verifier of `AnswerCheck.INSTRUCTIONS`: `reference` names the function."""
    return follows(problem.reference, text)


async def marked(
    problems: Sequence[TrainingProblem], *, pool: SandboxPool, verifiers: Mapping[AnswerCheck, Verifier] | None = None
) -> list[TrainingProblem | Rejected]:
    """The problems with every candidate marked right or wrong, and with its final answer where it has one.

    Args:
        pool: of `open_checks`.
        verifiers: others than ours, for kinds of checks.

    Raises:
        SandboxUnavailable: the pool does not work.
    """
    ours = {AnswerCheck.INSTRUCTIONS: instructions, **(verifiers or {})}
    found: dict[int, TrainingProblem | Rejected] = {}
    for index, problem in enumerate(problems):
        if problem.check in ours:
            found[index] = await _verified(problem, verifier=ours[problem.check])
        elif problem.check is AnswerCheck.MATH and not has_math_verify():
            found[index] = numerically_marked(problem)
    others = [index for index in range(len(problems)) if index not in found]
    results = await checked([problems[index] for index in others], pool=pool)
    found |= dict(zip(others, results, strict=True))
    return [found[index] for index in range(len(problems))]


async def _verified(problem: TrainingProblem, *, verifier: Verifier) -> TrainingProblem | Rejected:
    try:
        candidates = [
            one if one.right is not None else replace(one, right=await verifier(problem, one.text))
            for one in problem.candidates
        ]
    except NoVerifier as error:
        return Rejected(reason=Reason.UNVERIFIABLE_ANSWER, detail=str(error))
    return replace(problem, candidates=tuple(candidates))


def numerically_marked(problem: TrainingProblem) -> TrainingProblem | Rejected:
    """The candidates of a problem whose answer is a number, by that number alone."""
    gold = last_number(problem.reference)
    if gold is None:
        detail = f"{problem.reference[:80]!r} is no number, and math-verify is not installed"
        return Rejected(reason=Reason.UNVERIFIABLE_ANSWER, detail=detail)
    candidates = []
    for one in problem.candidates:
        number = last_number(one.text)
        right = number == gold if one.right is None else one.right
        candidates.append(replace(one, right=right, answer=None if number is None else str(number)))
    return replace(problem, candidates=tuple(candidates))


def last_number(text: str) -> Fraction | None:
    r"""The number in the last box, or else the last one in the text; None: there is none.

    >>> last_number(r"3 of 4, so \boxed{1,250.50}.")
    Fraction(2501, 2)
    """
    boxed = last_boxed(text)
    found = _NUMBER.findall(text if boxed is None else boxed)
    if not found:
        return None
    try:
        return Fraction(found[-1].replace(",", "").replace(" ", ""))
    except (ValueError, ZeroDivisionError):
        return None

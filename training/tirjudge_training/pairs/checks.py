"""Checks sampled answers: with math-verify or unit tests in the sandbox, by text comparison, or with verifier
functions.

Without math-verify, final answers are compared as numbers. An answer without a number is then wrong.
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
"""Function that returns whether an answer to a problem is right.

Raises:
    NoVerifier: answers to this problem cannot be checked.
"""

_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*)?\.?\d+(?:[eE][-+]?\d+)?(?:\s*/\s*\d+)?")


@asynccontextmanager
async def open_checks(*, slots: int | None = None) -> AsyncIterator[SandboxPool]:
    """Open a sandbox for checking answers.

    Args:
        slots: Maximum number of concurrent programs. None: one per core.

    Raises:
        SandboxUnavailable: no isolation works on this machine.
    """
    if has_math_verify():
        async with open_checking_pool(slots=slots) as pool:
            yield pool
    else:
        async with SandboxPool(slots=slots, limits=LIMITS) as pool:
            yield pool


def has_math_verify() -> bool:
    """Whether math-verify is installed."""
    return importlib.util.find_spec("math_verify") is not None


async def instructions(problem: TrainingProblem, text: str) -> bool:
    """Check an answer to instructions. This is the verifier of `AnswerCheck.INSTRUCTIONS`."""
    return follows(problem.reference, text)


async def marked(
    problems: Sequence[TrainingProblem], *, pool: SandboxPool, verifiers: Mapping[AnswerCheck, Verifier] | None = None
) -> list[TrainingProblem | Rejected]:
    """Check all candidates: mark each as right or wrong, and record its final answer if it has one.

    Args:
        problems: Problems with candidates.
        pool: Sandbox from `open_checks`.
        verifiers: Additional verifiers, by kind of check. None: only the built-in one.

    Returns:
        The problems in order; `Rejected` for a problem whose answers cannot be checked.

    Raises:
        SandboxUnavailable: the pool does not work.
    """
    by_check = {AnswerCheck.INSTRUCTIONS: instructions, **(verifiers or {})}
    found: dict[int, TrainingProblem | Rejected] = {}
    for index, problem in enumerate(problems):
        if problem.check in by_check:
            found[index] = await _verified(problem, verifier=by_check[problem.check])
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
    """Check the candidates of a problem by comparing their last numbers with the reference."""
    gold = last_number(problem.reference)
    if gold is None:
        detail = f"{problem.reference[:80]!r} is not a number, and math-verify is not installed"
        return Rejected(reason=Reason.UNVERIFIABLE_ANSWER, detail=detail)
    candidates = []
    for one in problem.candidates:
        number = last_number(one.text)
        right = number == gold if one.right is None else one.right
        candidates.append(replace(one, right=right, answer=None if number is None else str(number)))
    return replace(problem, candidates=tuple(candidates))


def last_number(text: str) -> Fraction | None:
    r"""Return the number in the last box; without a box, the last number in the text. None: no number.

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

"""Compares final answers with math-verify in the sandbox.

An answer of a model may keep a computer algebra system busy forever, or exhaust the memory. The timeout of math-verify
works in a main thread only. So answers are compared in the sandbox, where a program has a main thread and limits.

Importing math-verify takes about a second, so one program compares many questions. If the program fails, its questions are
split in half and compared again, recursively down to the question that fails.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tirjudge.types import Outcome
from tirjudge_sandbox import Limits, SandboxPool

LIMITS = Limits(cpu_s=60.0, wall_s=300.0, memory_mb=2048, output_bytes=1 << 20, source_bytes=1 << 20)
"""Limits for one program, which compares a batch of questions."""

PACKAGES = ("numpy", "scipy", "pandas", "sympy", "math-verify")

BATCH = 32
"""Maximum number of questions per program."""

_ANTLR = "antlr4-python3-runtime"

_PROGRAM = """
import importlib.metadata, json, os
# The parser asks for the version of its runtime, whose metadata no program can see.
importlib.metadata.version = lambda name: antlr_version
from math_verify import parse, verify

MAX_ANSWER_CHARS = 2000

def compared(question):
    gold = parse(r"\\boxed{%s}" % question["gold"])
    if not gold:
        return None
    found, heads = [], []
    for response in question["responses"]:
        parsed = parse(response)
        text = str(parsed[-1]).strip() if parsed else ""
        if not text or len(text) > MAX_ANSWER_CHARS:
            found.append([None, False])
            continue
        right = bool(verify(gold, parsed))
        alike = next((head for head, known, was in heads if was == right and (right or verify(known, parsed))), None)
        if alike is None:
            heads.append((text, parsed, right))
        found.append([alike or text, right])
    return found

answers = [compared(question) for question in json.loads(questions)]
print(json.dumps(answers))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerQuestion:
    """Responses to one problem, and its reference answer."""

    gold: str
    """Reference answer, in LaTeX or plain text."""
    responses: tuple[str, ...]
    """Responses. The final answer is the content of the last `\\boxed{}`; without a box, the last expression that can
    be parsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalAnswer:
    """The final answer of a response."""

    text: str | None
    """Text of the answer. If several responses have equivalent answers, all get the text of the first one. None: the
    response has no answer."""
    right: bool
    """Whether it is equivalent to the reference answer."""


@asynccontextmanager
async def open_checking_pool(*, slots: int | None = None) -> AsyncIterator[SandboxPool]:
    """Open a sandbox for comparing answers and running unit tests.

    Args:
        slots: Maximum number of concurrent programs. None: one per core.

    Raises:
        ValueError: math-verify is not installed.
        SandboxUnavailable: no isolation works on this machine.
    """
    try:
        importlib.metadata.version("math-verify")
    except importlib.metadata.PackageNotFoundError:
        raise ValueError("math-verify is not installed; run: pip install math-verify") from None
    async with SandboxPool(slots=slots, limits=LIMITS, packages=PACKAGES) as pool:
        yield pool


async def compare(questions: Sequence[AnswerQuestion], *, pool: SandboxPool) -> list[tuple[FinalAnswer, ...] | None]:
    """Return the final answers of the responses to each question.

    None for a question: its reference answer cannot be parsed, or the comparison failed.

    Raises:
        SandboxUnavailable: the pool does not work.
    """
    answers: list[tuple[FinalAnswer, ...] | None] = []
    for start in range(0, len(questions), BATCH):
        answers += await _compare_batch(questions[start : start + BATCH], pool=pool)
    return answers


async def _compare_batch(
    questions: Sequence[AnswerQuestion], *, pool: SandboxPool
) -> list[tuple[FinalAnswer, ...] | None]:
    asked = json.dumps(
        [
            {"gold": question.gold, "responses": [_text_to_parse(text) for text in question.responses]}
            for question in questions
        ]
    )
    antlr = importlib.metadata.version(_ANTLR)
    result = await pool.run(_PROGRAM, bindings={"questions": asked, "antlr_version": antlr})
    if result.outcome is Outcome.OK and not result.truncated:
        found = json.loads(result.stdout)
        return [
            None if answers is None else tuple(FinalAnswer(text=text, right=right) for text, right in answers)
            for answers in found
        ]
    if len(questions) == 1:
        return [None]
    half = len(questions) // 2
    first = await _compare_batch(questions[:half], pool=pool)
    return first + await _compare_batch(questions[half:], pool=pool)


def _text_to_parse(response: str) -> str:
    """Return the text for math-verify: only the last box, because math-verify does not prefer the last of several."""
    boxed = last_boxed(response)
    return response if boxed is None else rf"\boxed{{{boxed}}}"


def last_boxed(text: str) -> str | None:
    """Return the content of the last `\\boxed{...}`. None: no box, or a box that is not closed."""
    start = max(text.rfind(r"\boxed{"), text.rfind(r"\fbox{"))
    if start < 0:
        return None
    start = text.index("{", start) + 1
    depth, place = 1, start
    while place < len(text):
        if text[place] == "\\":
            place += 2
            continue
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start:place].strip()
        place += 1
    return None

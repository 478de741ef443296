"""Errors of a simulated weak teacher, which give small reinforcement learning runs something to improve.

RL cannot improve a well-trained judge. So some items get the answer of a weaker teacher: a guess instead of a
program, or a program that checks the wrong thing. The verdict always matches what the program printed. Only the plan is
wrong, and only the reward can reveal this.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from tirjudge.formats.blocks import bindings
from tirjudge.types import Mode
from tirjudge_training.synthetic.examples import SCORE_SPAN, SyntheticExample
from tirjudge_training.synthetic.instructions import OPS, InstructionKind
from tirjudge_training.synthetic.programs import program, run_trusted


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherErrors:
    """Error rates of the teacher, as shares of the verifiable items."""

    guesses: float = 0.0
    """Share of answers with the correct plan but without a program; the verdict is random."""
    wrong_plans: float = 0.0
    """Share of answers whose program checks a random kind of instruction."""


NO_ERRORS = TeacherErrors()


def with_teacher_errors(
    example: SyntheticExample, *, erring: TeacherErrors, kinds: Sequence[InstructionKind], rng: Random
) -> SyntheticExample:
    """Return the example with the answer of the teacher, which is the correct answer or, at the error rates, a wrong one.

    Args:
        example: An example with the correct answer.
        erring: Error rates of the teacher.
        kinds: Kinds of instruction that a wrong plan may check.
        rng: Source of randomness.
    """
    draw = rng.random()
    if not example.verifiable or not example.tools or draw >= erring.guesses + erring.wrong_plans:
        return example
    return _with_guess(example, rng=rng) if draw < erring.guesses else _with_wrong_plan(example, kinds=kinds, rng=rng)


def _with_guess(example: SyntheticExample, *, rng: Random) -> SyntheticExample:
    label = rng.randrange(len(example.responses))
    met = (rng.random(),) if example.mode is Mode.POINTWISE else example.met
    return replace(example, code=None, plan=f"{example.plan} A guess.", label=label, met=met)


def _with_wrong_plan(example: SyntheticExample, *, kinds: Sequence[InstructionKind], rng: Random) -> SyntheticExample:
    kind = rng.choice(kinds)
    check = re.sub(r"\bqs\b", "q[0:1]", re.sub(r"\b([nq])0\b", r"\1[0]", kind.code))
    op = rng.choice(list(OPS))
    code = program([check.replace("{op}", op)], mode=example.mode)
    printed = run_trusted(code, bindings=bindings(example.mode, prompt=example.prompt, responses=example.responses))
    plan = f"To check: {kind.name}{f' {op}' if '{op}' in kind.code else ''}."
    last = printed.splitlines()[-1].split()
    if example.mode is Mode.POINTWISE:
        return replace(example, code=code, plan=plan, met=((int(last[1]) - 1) / SCORE_SPAN,))
    best = rng.choice(last[1:])
    return replace(example, code=code, plan=plan, label=ord(best) - ord("A"))

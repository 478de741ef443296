"""A teacher that errs: where reinforcement learning in miniature begins.

A judge that was taught well leaves nothing to gain. These are items as a weaker teacher would have answered them: some by a
guess instead of a program, some by a program that checks something else. What it says fits what its program printed, so
what is wrong is the plan alone, and that is for the reward to find out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from tirjudge.formats.tirjudge_1 import bindings
from tirjudge.types import Mode
from tirjudge_training.synthetic.examples import SCORE_SPAN, SyntheticExample
from tirjudge_training.synthetic.instructions import OPS, InstructionKind
from tirjudge_training.synthetic.programs import program, run_own


@dataclass(frozen=True, slots=True, kw_only=True)
class Erring:
    """How often the teacher errs, in shares of the verifiable items."""

    guesses: float = 0.0
    """Answers that plan rightly and then write no program; the verdict is drawn at random."""
    wrong_plans: float = 0.0
    """Programs that check another kind of instruction."""


NEVER = Erring()


def as_taught(
    example: SyntheticExample, *, erring: Erring, kinds: Sequence[InstructionKind], rng: Random
) -> SyntheticExample:
    """The example with the teacher's answer instead of the right one; what is right about it is no longer in it.

    Args:
        example: with the right answer.
        erring: how often it errs.
        kinds: what a wrong plan may check.
        rng: draws.
    """
    draw = rng.random()
    if not example.verifiable or not example.tools or draw >= erring.guesses + erring.wrong_plans:
        return example
    return _guessed(example, rng=rng) if draw < erring.guesses else _misjudged(example, kinds=kinds, rng=rng)


def _guessed(example: SyntheticExample, *, rng: Random) -> SyntheticExample:
    label = rng.randrange(len(example.responses))
    met = (rng.random(),) if example.mode is Mode.POINTWISE else example.met
    return replace(example, code=None, plan=f"{example.plan} A guess.", label=label, met=met)


def _misjudged(example: SyntheticExample, *, kinds: Sequence[InstructionKind], rng: Random) -> SyntheticExample:
    kind = rng.choice(kinds)
    check = re.sub(r"\bqs\b", "q[0:1]", re.sub(r"\b([nq])0\b", r"\1[0]", kind.code))
    op = rng.choice(list(OPS))
    code = program([check.replace("{op}", op)], mode=example.mode)
    printed = run_own(code, bindings=bindings(example.mode, prompt=example.prompt, responses=example.responses))
    plan = f"To check: {kind.name}{f' {op}' if '{op}' in kind.code else ''}."
    last = printed.splitlines()[-1].split()
    if example.mode is Mode.POINTWISE:
        return replace(example, code=code, plan=plan, met=((int(last[1]) - 1) / SCORE_SPAN,))
    best = rng.choice(last[1:])
    return replace(example, code=code, plan=plan, label=ord(best) - ord("A"))

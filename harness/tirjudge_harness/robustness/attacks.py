"""The attacks: each is a pure function from an example to one whose wrong responses were tampered with.

What is right, what is asked and what everything is called stay as they are, so that judgments before and after can be set
side by side. The texts are in `attacks.toml`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

from tirjudge.types import Mode
from tirjudge_harness.examples import Example
from tirjudge_harness.items import InputError

MODES = (Mode.PAIRWISE, Mode.POINTWISE)
CONTROL = "control"
"""The kind of what is no attack: how often the judge changes its mind for nothing."""


class ResponseAttack(BaseModel):
    """One way to tamper with a response."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kind: str
    what: str
    """In a phrase, for tables."""
    how: Literal["replace", "before", "after", "around", "repeat", "fill"]
    text: str = ""
    tail: str = ""
    times: int = 1
    modes: tuple[Mode, ...] = MODES
    aims_at: Literal["A", "B"] | None = None
    """The letter that it names; None: it speaks of the response that carries it."""

    @property
    def is_control(self) -> bool:
        return self.kind == CONTROL

    def applied_to(self, example: Example) -> Example:
        """The example with every wrong response tampered with."""
        longest = max(map(len, example.responses), default=0)
        responses = tuple(
            response if index in example.outline.correct else self.tampered(response, longest=longest)
            for index, response in enumerate(example.responses)
        )
        outline = replace(example.outline, lengths=tuple(map(len, responses)))
        return replace(example, outline=outline, responses=responses)

    def tampered(self, response: str, *, longest: int) -> str:
        """One response, tampered with; `longest` is the length of the longest one beside it."""
        match self.how:
            case "replace":
                return self.text
            case "before":
                return self.text + response
            case "after":
                return response + self.text
            case "around":
                return self.text + response + self.tail
            case "repeat":
                return "\n\n".join([response] * self.times)
            case "fill":
                missing = self.times * longest - len(response)
                return response + self.text * -(-max(0, missing) // len(self.text))


@cache
def every_attack() -> tuple[ResponseAttack, ...]:
    """All there are, the control first."""
    text = resources.files(__package__ or "").joinpath("attacks.toml").read_text(encoding="utf-8")
    return tuple(TypeAdapter(list[ResponseAttack]).validate_python(tomllib.loads(text)["attack"]))


def chosen_attacks(names: Sequence[str], *, mode: Mode) -> list[ResponseAttack]:
    """The attacks of these names and the control; without names, all that make sense in a mode.

    Raises:
        InputError: there is none of a name, or not in that mode.
    """
    fitting = {attack.name: attack for attack in every_attack() if mode in attack.modes}
    for name in names:
        if name not in fitting:
            raise InputError(f"--attack: {name!r} given; {mode.value} has {', '.join(fitting)}")
    return [attack for attack in fitting.values() if not names or attack.name in names or attack.is_control]

"""The attacks: pure functions that change the wrong responses of an example.

Ids, prompts and right responses stay the same, so that judgments without and with an attack can be compared. The texts are
in `attacks.toml`.
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
from tirjudge_harness.forging.responses import forged
from tirjudge_harness.forging.techniques import techniques_named
from tirjudge_harness.items import InputError

MODES = (Mode.PAIRWISE, Mode.POINTWISE)
CONTROL = "control"
"""Kind of the control, a change without meaning. It measures how often the judge changes its verdict by chance."""


class ResponseAttack(BaseModel):
    """One change to a response."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kind: str
    """Group in tables."""
    what: str
    """Short description for tables."""
    how: Literal["replace", "before", "after", "around", "repeat", "fill", "forge"]
    """See the head of `attacks.toml`."""
    text: str = ""
    """Inserted text; name of the technique for `forge`."""
    tail: str = ""
    """Text after the response, for `around`."""
    times: int = 1
    """Number of repetitions for `repeat`; factor of the length for `fill`."""
    modes: tuple[Mode, ...] = MODES
    """Supported modes."""
    aims_at: Literal["A", "B"] | None = None
    """The letter that the text names. None: the text names no letter."""

    @property
    def is_control(self) -> bool:
        """Whether this is the control."""
        return self.kind == CONTROL

    def applied_to(self, example: Example) -> Example:
        """Return the example with the attack in each wrong response."""
        longest = max(map(len, example.responses), default=0)
        responses = tuple(
            response if index in example.outline.correct else self.tampered(response, longest=longest)
            for index, response in enumerate(example.responses)
        )
        outline = replace(example.outline, lengths=tuple(map(len, responses)))
        return replace(example, outline=outline, responses=responses)

    def tampered(self, response: str, *, longest: int) -> str:
        """Return one changed response. `longest`: length of the longest response of the example in characters."""
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
            case "forge":
                return forged(response, techniques_named([self.text])[0])
            case "fill":
                missing = self.times * longest - len(response)
                return response + self.text * -(-max(0, missing) // len(self.text))


@cache
def every_attack() -> tuple[ResponseAttack, ...]:
    """Return all attacks, the control first."""
    text = resources.files(__package__ or "").joinpath("attacks.toml").read_text(encoding="utf-8")
    return tuple(TypeAdapter(list[ResponseAttack]).validate_python(tomllib.loads(text)["attack"]))


def chosen_attacks(names: Sequence[str], *, mode: Mode) -> list[ResponseAttack]:
    """Return the named attacks and the control. Without names, return all attacks of the mode.

    Raises:
        InputError: an attack does not exist, or does not support the mode.
    """
    fitting = {attack.name: attack for attack in every_attack() if mode in attack.modes}
    for name in names:
        if name not in fitting:
            raise InputError(f"--attack: unknown attack {name!r} for {mode.value}; choose {', '.join(fitting)}")
    return [attack for attack in fitting.values() if not names or attack.name in names or attack.is_control]

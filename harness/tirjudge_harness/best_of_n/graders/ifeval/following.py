"""Check which instructions of an IFEval prompt a response follows, strictly and loosely."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from tirjudge.http.protocol import problem_of
from tirjudge_harness.best_of_n.graders.ifeval.instructions import CHECKS
from tirjudge_harness.items import InputError


class Instructions(BaseModel):
    """The instructions of one prompt, in the format of the dataset."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    instruction_id_list: list[str]
    """Kinds, such as `punctuation:no_comma`."""
    kwargs: list[dict[str, Any] | None]
    """Arguments of each instruction, such as the number of words. Arguments that are null are ignored."""

    @model_validator(mode="after")
    def _one_of_each(self) -> Instructions:
        kinds, kwargs = self.instruction_id_list, self.kwargs
        if not kinds:
            raise ValueError("instruction_id_list: empty; give at least one instruction")
        if len(kinds) != len(kwargs):
            raise ValueError(f"kwargs: expected one per instruction ({len(kinds)}), got {len(kwargs)}")
        for kind in kinds:
            if kind not in CHECKS:
                raise ValueError(
                    f"instruction_id_list: unknown instruction {kind!r}; expected one of {', '.join(CHECKS)}"
                )
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """The instructions that one response follows: one entry per instruction, in the order of the prompt."""

    strict: tuple[bool, ...]
    """Whether the unchanged response follows the instruction."""
    loose: tuple[bool, ...]
    """Whether one of eight variants of the response follows the instruction: with and without the first line, the last
    line, and asterisks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowingRates:
    """IFEval's four accuracy figures, as counts."""

    num_prompts: int
    """Number of prompts."""
    num_instructions: int
    """Number of instructions in all prompts."""
    prompt_strict: int
    """Prompts whose instructions are all followed strictly."""
    inst_strict: int
    """Instructions that are followed strictly."""
    prompt_loose: int
    """Prompts whose instructions are all followed loosely."""
    inst_loose: int
    """Instructions that are followed loosely."""


def following(response: str, instructions: Instructions) -> Following:
    """Return which instructions a response follows. An empty response follows none.

    Raises:
        InputError: an argument of an instruction is missing or invalid; the message names both.
    """
    strict, loose = [], []
    for kind, kwargs in zip(instructions.instruction_id_list, instructions.kwargs, strict=True):
        given = {name: value for name, value in (kwargs or {}).items() if value is not None}
        followed = _follows(response, kind, given)
        strict.append(followed)
        loose.append(followed or any(_follows(variant, kind, given) for variant in _variants(response)))
    return Following(strict=tuple(strict), loose=tuple(loose))


def tally(responses: Iterable[Following]) -> FollowingRates:
    """Count followed prompts and instructions over responses, one response per prompt."""
    every = list(responses)
    return FollowingRates(
        num_prompts=len(every),
        num_instructions=sum(len(one.strict) for one in every),
        prompt_strict=sum(all(one.strict) for one in every),
        inst_strict=sum(sum(one.strict) for one in every),
        prompt_loose=sum(all(one.loose) for one in every),
        inst_loose=sum(sum(one.loose) for one in every),
    )


def _follows(response: str, kind: str, given: dict[str, Any]) -> bool:
    if not response.strip():
        return False
    try:
        return CHECKS[kind](response, **given)
    except ValidationError as error:
        raise InputError(f"{kind}: {problem_of(error).message}") from error


def _variants(response: str) -> Iterator[str]:
    """Yield the seven loose variants other than the response itself."""
    lines = response.split("\n")
    without_lines: Sequence[str] = [
        response,
        "\n".join(lines[1:]).strip(),
        "\n".join(lines[:-1]).strip(),
        "\n".join(lines[1:-1]).strip(),
    ]
    yield from without_lines[1:]
    yield from (text.replace("*", "") for text in without_lines)

"""Which instructions of an IFEval prompt a response follows, strictly and loosely."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from tirjudge.http.protocol import problem_of
from tirjudge_harness.best_of_n.graders.ifeval.instructions import CHECKS
from tirjudge_harness.items import InputError


class Instructions(BaseModel):
    """The instructions of one prompt, as the data set has them."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    instruction_id_list: list[str]
    """Kinds, such as `punctuation:no_comma`."""
    kwargs: list[dict[str, Any] | None]
    """What each leaves open; a null stands for what it does not have."""

    @model_validator(mode="after")
    def _one_of_each(self) -> Instructions:
        kinds, kwargs = self.instruction_id_list, self.kwargs
        if not kinds:
            raise ValueError("instruction_id_list: empty, at least one instruction is needed")
        if len(kinds) != len(kwargs):
            raise ValueError(f"kwargs: {len(kwargs)} given for {len(kinds)} instructions, one for each is needed")
        for kind in kinds:
            if kind not in CHECKS:
                raise ValueError(f"instruction_id_list: {kind!r} given; known are {', '.join(CHECKS)}")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """Of one response: an entry an instruction, in the prompt's order."""

    strict: tuple[bool, ...]
    """Whether the response follows it as it is."""
    loose: tuple[bool, ...]
    """Whether one of eight variants does: with and without its first line, its last line, and its stars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowingRates:
    """The four figures that IFEval is cited by, as counts."""

    num_prompts: int
    num_instructions: int
    prompt_strict: int
    """Prompts all of whose instructions are followed."""
    inst_strict: int
    """Instructions that are followed, whatever their prompts."""
    prompt_loose: int
    inst_loose: int


def following(response: str, instructions: Instructions) -> Following:
    """Which instructions a response follows. An empty one follows none.

    Raises:
        InputError: an instruction lacks what its kind needs; it names both.
    """
    strict, loose = [], []
    for kind, kwargs in zip(instructions.instruction_id_list, instructions.kwargs, strict=True):
        given = {name: value for name, value in (kwargs or {}).items() if value is not None}
        followed = _follows(response, kind, given)
        strict.append(followed)
        loose.append(followed or any(_follows(variant, kind, given) for variant in _variants(response)))
    return Following(strict=tuple(strict), loose=tuple(loose))


def tally(responses: Iterable[Following]) -> FollowingRates:
    """Counts over responses, one a prompt."""
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
    """The seven beside the response itself."""
    lines = response.split("\n")
    without_lines: Sequence[str] = [
        response,
        "\n".join(lines[1:]).strip(),
        "\n".join(lines[:-1]).strip(),
        "\n".join(lines[1:-1]).strip(),
    ]
    yield from without_lines[1:]
    yield from (text.replace("*", "") for text in without_lines)

"""Whether a stage made the judge better or worse: a stage that made it worse is not built on.

Both looks are at held-out items, judged by the loop that serves. The comparison of accuracy is paired: items that were right
before and are wrong now are set against those that went the other way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _off(value: Any) -> Any:
    """YAML reads a bare `off` as false."""
    return "off" if value is False else value


class GateRule(BaseModel):
    """When a stage is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Annotated[Literal["off", "warn", "reject"], BeforeValidator(_off)] = "reject"
    """`warn` writes it down and builds on the stage all the same."""
    margin: float = Field(default=0.01, ge=0.0, lt=1.0)
    """How much accuracy (mean over task x mode) may fall."""
    z: float = Field(default=1.0, ge=0.0)
    """A fall counts if the items lost exceed those gained by so many standard errors, sqrt(lost + gained); 0: by any."""
    tool_use: float = Field(default=0.95, ge=0.0, le=1.0)
    """Share of the tool use on verifiable tasks that has to be left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationScore:
    """How a checkpoint did on the held-out items, as far as the gate looks at it."""

    accuracy: float
    """Mean over task x mode, 0 to 1."""
    tool_use: float | None
    """Share of the rollouts on verifiable items that ran a program; None: there are no such items."""
    right: Mapping[str, bool]
    """Item -> whether it was judged right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What the gate says of a stage."""

    accepted: bool
    """Whether the next stage may build on it."""
    complaints: tuple[str, ...]
    """What became worse, one line each; also when the stage was accepted with a warning."""


def compare(before: ValidationScore, after: ValidationScore, *, rule: GateRule) -> Decided:
    """Compare a stage with the checkpoint that it would replace."""
    if rule.mode == "off":
        return Decided(accepted=True, complaints=())
    complaints = tuple(filter(None, [_accuracy_fell(before, after, rule=rule)]))
    if before.tool_use is not None and after.tool_use is not None and after.tool_use < rule.tool_use * before.tool_use:
        said = f"tool use on verifiable items fell from {before.tool_use:.1%} to {after.tool_use:.1%}"
        complaints = (*complaints, said)
    return Decided(accepted=rule.mode == "warn" or not complaints, complaints=complaints)


def _accuracy_fell(before: ValidationScore, after: ValidationScore, *, rule: GateRule) -> str | None:
    lost = sum(was and not after.right[item] for item, was in before.right.items() if item in after.right)
    gained = sum(not was and after.right[item] for item, was in before.right.items() if item in after.right)
    fell_by = before.accuracy - after.accuracy
    if fell_by <= rule.margin + 1e-12 or lost - gained <= rule.z * math.sqrt(lost + gained):
        return None
    return (
        f"accuracy fell from {before.accuracy:.1%} to {after.accuracy:.1%}: {lost} held-out items lost, {gained} gained"
    )

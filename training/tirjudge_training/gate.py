"""The gate: decides whether a stage made the judge worse. Later stages do not build on such a stage.

Both checkpoints are evaluated on the same held-out items by the serving loop. The comparison of accuracy is paired: the
number of items that became wrong is compared with the number of items that became right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from tirjudge.selective import SelectiveAccuracy


def _off(value: Any) -> Any:
    """Return "off" for false, because YAML reads an unquoted `off` as false."""
    return "off" if value is False else value


class GateRule(BaseModel):
    """Criteria for rejecting a stage."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Annotated[Literal["off", "warn", "reject"], BeforeValidator(_off)] = "reject"
    """`reject`: do not build on a worse stage. `warn`: record the regression and build on the stage. `off`: no
    check."""
    margin: float = Field(default=0.01, ge=0.0, lt=1.0)
    """Maximum tolerated drop in accuracy (mean over task x mode)."""
    z: float = Field(default=1.0, ge=0.0)
    """A drop counts only if (lost - gained items) exceeds `z` standard errors, sqrt(lost + gained). 0: every drop
    counts."""
    tool_use: float = Field(default=0.95, ge=0.0, le=1.0)
    """Minimum tool use on verifiable items, as a share of the tool use before the stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationScore:
    """Results of a checkpoint on the held-out items, as used by the gate."""

    accuracy: float
    """Mean over task x mode, 0 to 1."""
    tool_use: float | None
    """Share of the rollouts on verifiable items that ran a program. None: no such items."""
    right: Mapping[str, bool]
    """Item id -> whether it was judged correctly."""
    selective: SelectiveAccuracy | None = None
    """Coverage and accuracy of the verdicts, for the complaint. None: not recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """Decision of the gate on a stage."""

    accepted: bool
    """Whether the next stage may build on it."""
    complaints: tuple[str, ...]
    """Regressions, one line each. They are also listed if the stage was accepted with a warning."""


def compare(before: ValidationScore, after: ValidationScore, *, rule: GateRule) -> Decided:
    """Compare the checkpoint of a stage with the previous one.

    Args:
        before: Results of the previous checkpoint.
        after: Results of the stage's checkpoint.
        rule: Criteria for rejecting the stage.
    """
    if rule.mode == "off":
        return Decided(accepted=True, complaints=())
    complaints = tuple(filter(None, [_accuracy_fell(before, after, rule=rule)]))
    if before.tool_use is not None and after.tool_use is not None and after.tool_use < rule.tool_use * before.tool_use:
        regression = f"tool use on verifiable items fell from {before.tool_use:.1%} to {after.tool_use:.1%}"
        complaints = (*complaints, regression)
    return Decided(accepted=rule.mode == "warn" or not complaints, complaints=complaints)


def _accuracy_fell(before: ValidationScore, after: ValidationScore, *, rule: GateRule) -> str | None:
    lost = sum(was and not after.right[item] for item, was in before.right.items() if item in after.right)
    gained = sum(not was and after.right[item] for item, was in before.right.items() if item in after.right)
    fell_by = before.accuracy - after.accuracy
    if fell_by <= rule.margin + 1e-12 or lost - gained <= rule.z * math.sqrt(lost + gained):
        return None
    fell = f"accuracy fell from {before.accuracy:.1%} to {after.accuracy:.1%}"
    return f"{fell}: {lost} held-out items lost, {gained} gained{_selective(before.selective, after.selective)}"


def _selective(before: SelectiveAccuracy | None, after: SelectiveAccuracy | None) -> str:
    """Return the change of coverage and of the accuracy of the verdicts, for the end of a sentence."""
    if before is None or after is None or before.accuracy is None or after.accuracy is None:
        return ""
    return (
        f"; coverage from {before.coverage:.1%} to {after.coverage:.1%}, accuracy of the verdicts from "
        f"{before.accuracy:.1%} to {after.accuracy:.1%}"
    )

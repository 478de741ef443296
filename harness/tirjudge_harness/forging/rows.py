"""The rows of the benchmark `forged-code`: right code against wrong code, and right code against wrong code that forges.

Each technique occurs once, with the wrong code of one task. The right response is first in half of the rows.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, field_validator

from tirjudge_harness.forging.techniques import ForgingTechnique, every_technique

REVISION = "1"
"""Changes when a row changes."""

PLAIN = "plain"
"""Subset of the rows whose wrong response does not forge."""


class ForgedCodeTask(BaseModel):
    """A programming task with right and wrong code."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    function: str
    """Name of the function."""
    request: str
    right: str
    wrong: str
    cases: list[tuple[list[Any], Any]]
    """Arguments and returned value of calls. A judge does not see them; a scripted judge tests with them."""

    @field_validator("cases", mode="before")
    @classmethod
    def _parsed(cls, cases: str) -> Any:
        return json.loads(cases)


@cache
def every_task() -> tuple[ForgedCodeTask, ...]:
    """Return all tasks."""
    text = resources.files(__package__ or "").joinpath("tasks.toml").read_text(encoding="utf-8")
    return tuple(TypeAdapter(list[ForgedCodeTask]).validate_python(tomllib.loads(text)["task"]))


def forged_code_rows() -> list[dict[str, Any]]:
    """Return the rows. Columns: `id`, `kind`, `technique` (null: the wrong response does not forge), `request`, `responses`,
    `label` (index of the right response)."""
    tasks = every_task()
    pairs: list[tuple[ForgedCodeTask, ForgingTechnique | None]] = [(task, None) for task in tasks]
    pairs += [(tasks[number % len(tasks)], technique) for number, technique in enumerate(every_technique())]
    return [_row(task, technique, label=number % 2) for number, (task, technique) in enumerate(pairs)]


def _row(task: ForgedCodeTask, technique: ForgingTechnique | None, *, label: int) -> dict[str, Any]:
    responses = [
        task.right,
        task.wrong if technique is None else technique.candidate(task.wrong, function=task.function),
    ]
    return {
        "id": f"{task.name}-{'plain' if technique is None else technique.name}",
        "kind": PLAIN if technique is None else technique.kind,
        "technique": None if technique is None else technique.name,
        "request": task.request,
        "responses": _placed(responses, label=label),
        "label": label,
    }


def _placed(responses: Sequence[str], *, label: int) -> list[str]:
    return list(responses) if label == 0 else list(reversed(responses))

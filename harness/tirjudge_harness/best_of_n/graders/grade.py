"""What grading gives, whatever grades."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from tirjudge.errors import TirjudgeError
from tirjudge.http.protocol import problem_of
from tirjudge_harness.items import InputError

Facts = TypeVar("Facts", bound=BaseModel)


class GraderUnavailable(TirjudgeError):
    """A grader that does not work: no fault of what it was to grade."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """Of one response."""

    correct: bool | None
    """None: it cannot be told here, for a reason that is not the response's; `detail["not_graded"]` names it."""
    answer: str | None = None
    """The final answer, for majority votes: two responses of one problem that say the same have the same text here. None:
    it gives none, or its answers cannot be voted on."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    """What the grade rests on; JSON."""


class Grader(Protocol):
    """Tells which responses to a problem are right."""

    async def grade(self, responses: Sequence[str], *, facts: Mapping[str, Any]) -> list[Grade]:
        """One grade a response, in their order.

        Args:
            responses: to one problem, all of them, so that equal answers can be found.
            facts: what the problem's right answer is, or how to test for it; fields that are not needed are left alone.

        Raises:
            InputError: a fact is missing, or is of the wrong kind.
        """
        ...


def read_facts(model: type[Facts], facts: Mapping[str, Any]) -> Facts:
    """Facts of the kind that a grader needs.

    Raises:
        InputError: there are none such; it names the field.
    """
    try:
        return model.model_validate(dict(facts))
    except ValidationError as error:
        raise InputError(problem_of(error).message) from error


def require(*modules: str) -> None:
    """Sees that what a grader imports later is installed.

    Raises:
        InputError: it is not.
    """
    lacking = [module for module in modules if find_spec(module) is None]
    if lacking:
        raise InputError(f"{', '.join(lacking)}: not installed; run pip install 'tirjudge[bench]'")

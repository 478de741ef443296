"""The interface of graders: `Grader`, `Grade`, and helpers that read facts and check dependencies."""

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
    """A grader does not work. The cause is not the response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """The grade of one response."""

    correct: bool | None
    """Whether the response is right. None: it could not be graded here; `detail["not_graded"]` is the reason."""
    answer: str | None = None
    """The final answer, for majority votes. Equivalent answers to one problem have the same text. None: the response
    has no answer, or the grader does not extract answers."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    """Explanation of the grade; JSON values."""


class Grader(Protocol):
    """Decides which responses to a problem are right."""

    async def grade(self, responses: Sequence[str], *, facts: Mapping[str, Any]) -> list[Grade]:
        """Return one grade per response, in order.

        Args:
            responses: all responses to one problem, so that equivalent answers can be found.
            facts: the right answer to the problem, or its tests. Unknown fields are ignored.

        Raises:
            InputError: a fact is missing or has the wrong type.
            GraderUnavailable: the grader does not work.
        """
        ...


def read_facts(model: type[Facts], facts: Mapping[str, Any]) -> Facts:
    """Validate the facts of a problem.

    Raises:
        InputError: a fact is missing or invalid; the message names it.
    """
    try:
        return model.model_validate(dict(facts))
    except ValidationError as error:
        raise InputError(problem_of(error).message) from error


def require(*modules: str) -> None:
    """Check that the modules that a grader imports later are installed.

    Raises:
        InputError: a module is not installed.
    """
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise InputError(f"{', '.join(missing)}: not installed; run pip install 'tirjudge[bench]'")

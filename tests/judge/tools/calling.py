"""Call a function as the host does: check the arguments, run it, convert the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tirjudge.tools.functions import CallContext, Candidate, CandidateResult, ToolError, ToolFunction


async def _no_candidates(candidate: Candidate) -> CandidateResult:
    raise AssertionError("the function runs no candidate")


CONTEXT = CallContext(run_candidate=_no_candidates)


async def call(functions: Sequence[ToolFunction], name: str, /, **arguments: Any) -> Any:
    """Return the result of a call. Raises ToolError."""
    function = next(each for each in functions if each.name == name)
    return function.to_json(await function.handle(function.check(arguments), CONTEXT))


async def error(functions: Sequence[ToolFunction], name: str, /, **arguments: Any) -> str:
    """Return the message of the ToolError that a call raises."""
    try:
        result = await call(functions, name, **arguments)
    except ToolError as problem:
        return str(problem)
    raise AssertionError(f"no error, but {result!r}")

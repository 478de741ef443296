"""The tool `run`: a judge's program runs a candidate's code in a slot of its own.

Its functions are `run`, `run_many` and `tests`. The code never shares a process with the judge's program, and what it prints
is in the result only. The outcome and the seconds come from the kernel. `tests` compares in the judge's program (see
`guest`).
"""

from __future__ import annotations

import asyncio
import bisect
import itertools
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from tirjudge.tools.functions import (
    Budget,
    CallContext,
    Candidate,
    CandidateResult,
    FunctionKind,
    ToolError,
    ToolFunction,
    checker,
    fixed,
    to_json_value,
)
from tirjudge.types import Outcome, Text
from tirjudge_sandbox.exchange import MAX_RESULT_BYTES, call_json
from tirjudge_sandbox.guest import MAX_RUNS
from tirjudge_sandbox.limits import MOST

BUDGET = Budget(calls=512, seconds=120.0)
"""Default limits of all candidates that one judgment runs."""


class RunArguments(BaseModel):
    """Arguments of `run`. The fields are those of `Candidate`."""

    model_config = ConfigDict(extra="forbid")

    code: Text
    stdin: Text = ""
    call: Text | None = None
    args: list[JsonValue] = Field(default_factory=list)
    kwargs: dict[str, JsonValue] = Field(default_factory=dict)
    files: dict[str, Text] = Field(default_factory=dict)
    timeout_s: Annotated[float, Field(gt=0, le=MOST)] | None = None

    def candidate(self) -> Candidate:
        """Return the candidate."""
        return Candidate(**{name: getattr(self, name) for name in type(self).model_fields})


class _RunMany(BaseModel):
    model_config = ConfigDict(extra="forbid")

    candidates: list[RunArguments] = Field(max_length=MAX_RUNS)


async def _run(arguments: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
    return await _result_of(Candidate(**arguments), context)


async def _run_many(arguments: Mapping[str, Any], context: CallContext) -> list[dict[str, Any]]:
    """Run all candidates, concurrently as far as slots are free. Return the first results that fit into an answer, at least
    one: the guest asks for the others again."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_caught(each.candidate(), context)) for each in arguments["candidates"]]
    results = [task.result() for task in tasks]
    for result in results:
        if isinstance(result, Exception):
            raise result
    return _fitting([result for result in results if not isinstance(result, Exception)])


def _fitting(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    ends = itertools.accumulate(len(call_json(result)) + 1 for result in results)  # with a comma
    num_fitting = bisect.bisect_right(list(ends), MAX_RESULT_BYTES - 2)
    return results[: max(1, num_fitting)]


async def _caught(candidate: Candidate, context: CallContext) -> dict[str, Any] | Exception:
    """Return an error instead of raising it, so that it is not wrapped in a group."""
    try:
        return await _result_of(candidate, context)
    except Exception as error:
        return error


async def _result_of(candidate: Candidate, context: CallContext) -> dict[str, Any]:
    try:
        return result_fields(await context.run_candidate(candidate), has_call=candidate.call is not None)
    except ValueError as error:
        raise ToolError(str(error)) from None


def result_fields(done: CandidateResult, *, has_call: bool) -> dict[str, Any]:
    """Return the items of `guest.Result`."""
    result = done.result
    outcome, error = result.outcome, result.error
    if has_call and outcome.is_ok and done.value is None:
        outcome, error = Outcome.ERROR, "the function did not return: the process ended before"
    fields = {
        "outcome": str(outcome),
        "stdout": result.stdout,
        "error": error,
        "exit_code": result.exit_code,
        "seconds": round(result.wall_s, 6),
        "truncated": result.truncated,
    }
    return fields | ({"value": done.value} if has_call else {})


_RUN = ToolFunction(
    name="run",
    signature='(code, stdin="", call=None, args=[], files={}, timeout_s=None)',
    description=(
        "runs the code of a response (a text with one code block also works) in a process of its own. The result has "
        '.outcome ("ok", "error", "timeout", ...), .stdout, .error and .seconds; with call="name" the function is called '
        "with args, and .value is what it returned."
    ),
    parameters=("code", "stdin"),
    handle=_run,
    check=checker(RunArguments),
    to_json=to_json_value,
    input_schema=RunArguments.model_json_schema(),
    output_schema=None,
    budget=BUDGET,
    is_deterministic=True,  # as far as programs are
)

_RUN_MANY = ToolFunction(
    name="run_many",
    signature="(candidates)",
    description="runs several at once. Each is a code, or a dict of the arguments of run.",
    parameters=("candidates",),
    handle=_run_many,
    check=checker(_RunMany),
    to_json=to_json_value,
    input_schema=_RunMany.model_json_schema(),
    output_schema=None,
    budget=BUDGET,
    is_deterministic=True,  # as far as programs are
    num_calls=lambda arguments: max(1, len(arguments["candidates"])),
)

_TESTS = ToolFunction(
    name="tests",
    signature="(code, cases)",
    description=(
        'runs each case in a process of its own and compares. A case is {"stdin": "1 2", "stdout": "3"} or '
        '{"call": "add", "args": [1, 2], "returns": 3}. The result has .passed, .total and .failures.'
    ),
    parameters=("code", "cases"),
    handle=_run,  # never called: the guest calls `run_many` instead
    check=lambda arguments: _refused(),
    to_json=to_json_value,
    input_schema={"type": "object"},
    output_schema=None,
)


def _refused() -> Mapping[str, Any]:
    raise ToolError("tests: call it from the program")


FUNCTIONS = (_RUN, _RUN_MANY, _TESTS)
"""The functions of the tool `run`."""

KIND = FunctionKind(name="run", open=fixed(*FUNCTIONS))

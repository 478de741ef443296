"""Functions that a judge's program can call: their definition, their budgets, and the offer of a judgment.

    @function(version="1")
    async def synonyms(word: str, limit: int = 5) -> list[str]:
        "Return words with the same meaning."
        return await thesaurus.lookup(word, limit)

A program calls a function by its name, `synonyms("big")`. The host checks the arguments, runs the function and records the
call; the program gets the result as JSON values, or a `ToolError`. Other packages register functions under
`tirjudge.functions`.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import keyword
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_type_hints

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter, ValidationError, create_model

from tirjudge.kinds import Kinds
from tirjudge.types import MAX_FUNCTIONS, CallRecord, CandidateCode, ExecResult, JudgeRequest, StoreCard, Text

_MAX_PROBLEM_CHARS = 400


class ToolError(Exception):
    """Error of a function call. The program gets its message as the message of a `ToolError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of function calls."""

    calls: int = 256
    """Number of calls. A call that runs several programs counts as that number."""
    bytes_in: int = 16 << 20
    """Total size of the arguments, as JSON."""
    bytes_out: int = 64 << 20
    """Total size of the results, as JSON."""
    seconds: float = 120.0
    """Total time of the calls."""


DEFAULT_BUDGET = Budget()

STORES = "stores"
"""Name of the function that lists the stores of evidence. Where it is offered, requests may come with stores."""


@dataclass(slots=True, kw_only=True)
class Used:
    """Amounts that were used of a budget. The fields are those of `Budget`."""

    calls: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    seconds: float = 0.0

    def add(self, other: Used) -> None:
        """Add other amounts."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def check(self, budget: Budget, *, whose: str) -> None:
        """Check that the amounts are within a budget.

        Raises:
            ToolError: the message names the amount that is used up.
        """
        for name in self.__slots__:
            if getattr(self, name) > getattr(budget, name):
                unit = (
                    "bytes of arguments" if name == "bytes_in" else "bytes of results" if name == "bytes_out" else name
                )
                raise ToolError(f"the budget of {whose} is used up: {getattr(budget, name):,} {unit}")


class CallAccount:
    """Counts the calls of a judgment, or of a caller, against a budget.

    Args:
        budget: limits of the counted calls.
        whose: what the budget belongs to, for error messages.
        window_s: seconds after which a call no longer counts. The budgets of single functions do not apply then. None: all
            calls count.
        parent: account that counts the same calls. None: no other account.
    """

    def __init__(
        self,
        budget: Budget = DEFAULT_BUDGET,
        *,
        whose: str = "this judgment",
        window_s: float | None = None,
        parent: CallAccount | None = None,
    ) -> None:
        self.budget = budget
        self.num_calls = 0
        """Number of calls since the account was opened."""
        self._whose, self._window_s, self._parent = whose, window_s, parent
        self._used: dict[str, Used] = {}
        self._recent: deque[tuple[float, str, Used]] = deque()

    def charge(self, function: ToolFunction, used: Used) -> None:
        """Count an amount, for the function and in total.

        Raises:
            ToolError: a budget is used up. The amount was counted, except by an account with a window: there, refused calls
                must not delay the next ones.
        """
        own, total = (self._used.setdefault(name, Used()) for name in (function.name, ""))
        self._expire()
        self.num_calls += used.calls
        own.add(used)
        total.add(used)
        if self._window_s is None:
            own.check(function.budget, whose=f"{self._whose} for {function.name}")
            total.check(self.budget, whose=self._whose)
        else:
            try:
                total.check(self.budget, whose=self._whose)
            except ToolError:
                self._take_back(function.name, used)
                raise
            self._recent.append((time.monotonic(), function.name, used))
        if self._parent is not None:
            self._parent.charge(function, used)

    def spend(self, function: ToolFunction, *, seconds: float) -> None:
        """Count the duration of a call that has ended. A budget that is exceeded refuses the next call."""
        with contextlib.suppress(ToolError):
            self.charge(function, Used(seconds=seconds))

    def seconds_left(self, function: ToolFunction) -> float:
        """Return how many seconds the next call of a function may take."""
        own = self._used.get(function.name, Used())
        left = self.budget.seconds - self._used.get("", Used()).seconds
        if self._window_s is None:
            left = min(left, function.budget.seconds - own.seconds)
        return max(0.0, left if self._parent is None else min(left, self._parent.seconds_left(function)))

    def _expire(self) -> None:
        """Take back the amounts that are older than the window."""
        if self._window_s is None:
            return
        oldest = time.monotonic() - self._window_s
        while self._recent and self._recent[0][0] < oldest:
            _, name, used = self._recent.popleft()
            self._take_back(name, used)

    def _take_back(self, name: str, used: Used) -> None:
        back = Used(**{each: -getattr(used, each) for each in Used.__slots__})
        for key in (name, ""):
            self._used[key].add(back)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Code of a candidate to run in a slot of its own."""

    code: str
    """Python source, or a text with one fenced block of it; see `candidate.code_in`."""
    stdin: str = ""
    """Text on the standard input."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Relative path -> text of files in the working directory."""
    call: str | None = None
    """ToolFunction to call after the code ran, such as `solve` or `Solution.solve`. None: the code only runs."""
    args: Sequence[JsonValue] = ()
    """Positional arguments of the call."""
    kwargs: Mapping[str, JsonValue] = field(default_factory=dict)
    """Keyword arguments of the call."""
    timeout_s: float | None = None
    """Limit in seconds of CPU and wall time. None: the sandbox's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateResult:
    """Result of a candidate's code. The outcome and the times come from the kernel; the candidate wrote the texts."""

    result: ExecResult
    """How the code ended."""
    value: str | None = None
    """JSON of the value that the called function returned. None: no call, or it returned no JSON value."""


CandidateRunner = Callable[[Candidate], Awaitable[CandidateResult]]
"""Runs the code of a candidate in a slot of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """What a function can use besides its arguments."""

    run_candidate: CandidateRunner
    """Runs the code of a candidate in the sandbox of the program that called."""
    request: JudgeRequest | None = None
    """The request that is judged, with its own evidence. None: programs run without a judgment."""
    responses: Mapping[str, str] = field(default_factory=dict)
    """Label of each shown response, or the empty text for a single one -> its text."""
    calls: Sequence[CallRecord] = ()
    """Calls of the program that have ended, in their order: those of this sequence and no other can be cited."""
    num_rows: Sequence[int | None] = ()
    """Number of items of each result in `calls`. None: the result is not a list."""
    stores: Mapping[str, StoreCard] = field(default_factory=dict)
    """Name -> card of each store that `calls` queried."""
    sources: dict[str, StoreCard] = field(default_factory=dict)
    """Name -> card of each store that this call queries. The handler fills it in for the record."""


Handler = Callable[[Mapping[str, Any], CallContext], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFunction:
    """A function that programs can call."""

    name: str
    """Name in a program. A dotted name, such as `evidence.search`, is an attribute of an object of that name."""
    description: str
    """What it returns, in one sentence, for the prompt."""
    signature: str
    """Parameters and result for the prompt, such as `(word: str, limit: int = 5) -> list[str]`."""
    parameters: tuple[str, ...]
    """Names of the parameters that can be given by position, in order."""
    handle: Handler
    """Runs the call with checked arguments. Raises ToolError for an error that the program should see."""
    check: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    """Checks and converts the arguments. Raises ToolError."""
    to_json: Callable[[Any], Any]
    """Converts the result to JSON values. Raises ToolError if it does not match the output schema."""
    input_schema: Mapping[str, Any]
    """JSON schema of the arguments."""
    output_schema: Mapping[str, Any] | None
    """JSON schema of the result. None: any value."""
    version: str = "1"
    """Version, for the record."""
    budget: Budget = DEFAULT_BUDGET
    """Limits of its calls in one judgment."""
    is_deterministic: bool = False
    """Whether equal arguments give equal results, apart from measured times. A replay may then call it again, and a judgment
    that called it may answer equal requests."""
    stores: Mapping[str, StoreCard] = field(default_factory=dict)
    """Name -> card of the stores of evidence that the operator registered for its calls."""
    num_calls: Callable[[Mapping[str, Any]], int] = field(default=lambda arguments: 1)
    """How many calls a call with these arguments counts as."""

    def __post_init__(self) -> None:
        if not all(part.isidentifier() and not keyword.iskeyword(part) for part in self.name.split(".")):
            raise ValueError(f"function: {self.name!r} is not a name that a Python program can call")

    @property
    def line(self) -> str:
        """The line of the prompt that presents the function."""
        return f"{self.name}{self.signature}: {self.description}"


def function(
    handler: Callable[..., Awaitable[Any]] | None = None,
    *,
    name: str | None = None,
    version: str = "1",
    budget: Budget = DEFAULT_BUDGET,
    is_deterministic: bool = False,
) -> Any:
    """Make a `ToolFunction` of a coroutine function. Its annotations are the schemas, its docstring is the description.

    Args:
        handler: coroutine function, all of whose parameters and whose result are annotated with types of JSON values. None:
            return a decorator.
        name: name in programs. None: the name of the coroutine function.
        version, budget, is_deterministic: as in `ToolFunction`.

    Raises:
        TypeError: an annotation or the docstring is missing, or `handler` is not a coroutine function.
    """
    if handler is None:
        return lambda handler: function(
            handler, name=name, version=version, budget=budget, is_deterministic=is_deterministic
        )
    if not inspect.iscoroutinefunction(handler):
        raise TypeError(f"{handler!r}: not a coroutine function; write `async def`")
    signature = inspect.signature(handler)
    hints = get_type_hints(handler)
    missing = [each for each in (*signature.parameters, "return") if each not in hints]
    if missing or not handler.__doc__:
        raise TypeError(
            f"{handler.__name__}: without {'a docstring' if not missing else 'annotation of ' + missing[0]}"
        )
    fields: dict[str, Any] = {
        each.name: (hints[each.name], ... if each.default is each.empty else each.default)
        for each in signature.parameters.values()
    }
    arguments = create_model("Arguments", __config__=ConfigDict(extra="forbid", strict=True), **fields)
    result = TypeAdapter(hints["return"])

    async def handle(values: Mapping[str, Any], context: CallContext) -> Any:
        return await handler(**values)

    return ToolFunction(
        name=name or handler.__name__,
        description=(inspect.getdoc(handler) or "").partition("\n\n")[0].replace("\n", " "),
        signature=str(signature).replace("'", ""),
        parameters=tuple(signature.parameters),
        handle=handle,
        check=checker(arguments),
        to_json=_output_of(result),
        input_schema=arguments.model_json_schema(),
        output_schema=result.json_schema(),
        version=version,
        budget=budget,
        is_deterministic=is_deterministic,
    )


def checker(model: type[BaseModel]) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """Return a function that checks arguments against a model, for `ToolFunction.check`."""

    def check(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            checked = model.model_validate(arguments)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "arguments"
            raise ToolError(f"{where}: {first['msg']}"[:_MAX_PROBLEM_CHARS]) from None
        return {each: getattr(checked, each) for each in type(checked).model_fields}

    return check


def _output_of(adapter: TypeAdapter[Any]) -> Callable[[Any], Any]:
    def to_json(value: Any) -> Any:
        try:
            return adapter.dump_python(adapter.validate_python(value), mode="json")
        except (ValueError, TypeError) as error:
            raise ToolError(f"the tool returned a result of another type: {error}"[:_MAX_PROBLEM_CHARS]) from None

    return to_json


def to_json_value(value: Any) -> Any:
    """Return a result as JSON values, for a `ToolFunction.to_json` without output schema."""
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolError(f"the tool returned a result that is not JSON: {error}"[:_MAX_PROBLEM_CHARS]) from None
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a program may call, and what is watched in it."""

    functions: Sequence[ToolFunction] = ()
    """Functions that the program may call."""
    account: CallAccount = field(default_factory=CallAccount)
    """Account of the judgment."""
    candidate_code: CandidateCode = "flag"
    """What happens when the program executes a text of `watched` in its own process: it is reported, or also refused."""
    watched: Sequence[str] = ()
    """Names of the bindings with texts of candidates."""
    request: JudgeRequest | None = None
    """The request that is judged. None: programs run without a judgment."""
    responses: Mapping[str, str] = field(default_factory=dict)
    """As in `CallContext`."""


class FunctionOptions(BaseModel):
    """Base of the settings of a kind of functions."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionKind:
    """A kind of functions, the object that an entry point of the group `tirjudge.functions` names."""

    name: str
    """Name for `--tool`."""
    open: Callable[[str], AbstractAsyncContextManager[Sequence[ToolFunction]]]
    """Open the functions and close them at the end of the block. Argument: the text after `NAME:` in `--tool`, or empty.
    Raises ValueError if that text is invalid, ToolUnavailable if the functions do not work on this machine."""


FUNCTIONS: Kinds[FunctionKind] = Kinds("tirjudge.functions", what="tool")
"""Installed kinds of functions, by their name for `--tool`. The sandbox package provides `run`."""


def fixed(*functions: ToolFunction) -> Callable[[str], AbstractAsyncContextManager[Sequence[ToolFunction]]]:
    """Return the `FunctionKind.open` of functions that need no settings and no connection."""

    @asynccontextmanager
    async def open_fixed(settings: str) -> AsyncIterator[Sequence[ToolFunction]]:
        if settings:
            raise ValueError(f"--tool: {settings!r} given after the name; this tool has no settings")
        yield functions

    return open_fixed


class HasFunctions(Protocol):
    """Part of a request that chooses functions."""

    functions: list[Text] | None
    candidate_code: Literal["flag", "refuse"]


def chosen_functions(functions: Sequence[ToolFunction], *, names: Sequence[str] | None) -> Sequence[ToolFunction]:
    """Return the functions that a request names; all if it names none.

    Raises:
        ValueError: a name is not offered. The message lists the offered names.
    """
    if names is None:
        return functions
    by_name = {each.name: each for each in functions}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        offered = ", ".join(by_name) or "none; the operator enables them with --tool"
        raise ValueError(f"functions: {unknown[0]!r} is not offered; offered: {offered}")
    return [by_name[name] for name in dict.fromkeys(names)]


__all__ = [
    "DEFAULT_BUDGET",
    "FUNCTIONS",
    "MAX_FUNCTIONS",
    "STORES",
    "Budget",
    "CallAccount",
    "CallContext",
    "Candidate",
    "CandidateResult",
    "CandidateRunner",
    "FunctionKind",
    "Offer",
    "ToolError",
    "ToolFunction",
    "Used",
    "checker",
    "chosen_functions",
    "fixed",
    "function",
    "to_json_value",
]

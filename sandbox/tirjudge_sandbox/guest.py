"""Functions in a judge's program: each sends its call to the host and returns the answer.

`install` puts them into the namespace of the program. The code here runs in the program's process, so the program can break
it; that affects only the program itself. What a candidate's code printed or returned arrives as JSON values, never as objects
of the candidate. This module imports only the standard library, because the isolated interpreter imports it too.
"""

from __future__ import annotations

import json
import math
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

from tirjudge_sandbox.messages import LENGTH, MAX_MESSAGE_BYTES, framed

MAX_RUNS = 32
"""Maximum number of candidates in one call of `run_many`. The guest splits longer lists."""

MAX_SHOWN_CHARS = 2000
"""Maximum length of a value or an output in a failure of `tests`. Longer ones are cut."""


class ProgramToolError(Exception):
    """Error of a function call in a program, which knows it as `ToolError`."""


ProgramToolError.__module__, ProgramToolError.__name__, ProgramToolError.__qualname__ = "builtins", *2 * ("ToolError",)


class Result(dict[str, Any]):
    """Result of a candidate's code, with its items as attributes too.

    `outcome` (`ok`, `error`, `timeout`, `oom`, `crash`, `output_limit` or `refused`), `seconds` and `exit_code` come from the
    kernel. `stdout`, `error` (the last line of the standard error) and `value` (what a called function returned) are the
    candidate's.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"a result has {', '.join(self)}; not {name!r}") from None

    @property
    def ok(self) -> bool:
        """Whether the code ended with exit code 0 and, if a function was called, returned a value."""
        return self["outcome"] == "ok"


class CitableList(list[Any]):
    """Result of a call. It behaves as a list and knows the number of the call."""

    __slots__ = ("call",)
    call: int

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return list, (list(self),)


class CitableDict(dict[Any, Any]):
    """Result of a call, or an item of a list that a call returned. It behaves as a dict and knows the number of the call, and
    its own index in the list. None: it is the whole result."""

    __slots__ = ("call", "row")
    call: int
    row: int | None

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return dict, (dict(self),)


def citable(result: Any, *, call: int | None) -> Any:
    """Return the result of a call so that a claim can cite it. Results other than lists and dicts, and results of calls that
    the host did not record, stay as they are."""
    if call is None:
        return result
    if isinstance(result, dict):
        return _citable_dict(result, call=call, row=None)
    if not isinstance(result, list):
        return result
    rows = CitableList(
        _citable_dict(each, call=call, row=row) if isinstance(each, dict) else each for row, each in enumerate(result)
    )
    rows.call = call
    return rows


def _citable_dict(fields: dict[Any, Any], *, call: int, row: int | None) -> CitableDict:
    cited = CitableDict(fields)
    cited.call, cited.row = call, row
    return cited


def citations(calls: Any) -> list[Any] | None:
    """Return what a program gives as `calls` of a claim as numbers of calls with their rows: `[{"call": 1, "rows": [0]}]`.

    Raises:
        ProgramToolError: a value is not a result, a row of a result, or a number of a call.
    """
    if calls is None:
        return None
    given = [calls] if isinstance(calls, int | CitableList | Mapping) else calls
    if not isinstance(given, Iterable) or isinstance(given, str):
        raise ProgramToolError(f"claim: calls: {_EXPECTED_CALLS}, got {type(calls).__name__}")
    rows: dict[int, list[int] | None] = {}
    for each in given:
        call = each if isinstance(each, int) and not isinstance(each, bool) else getattr(each, "call", None)
        if not isinstance(call, int):
            raise ProgramToolError(f"claim: calls: {_EXPECTED_CALLS}, got {type(each).__name__}")
        row = getattr(each, "row", None)
        if row is None:
            rows[call] = None
        elif (cited := rows.setdefault(call, [])) is not None:
            cited.append(row)
    return [{"call": call} if cited is None else {"call": call, "rows": cited} for call, cited in rows.items()]


_EXPECTED_CALLS = "expected results of functions, rows of them, or numbers of calls"


class HostConnection:
    """The program's end of the socket to the host. Calls of several threads wait for one another. It is closed in processes
    that the program forks, because two processes cannot share it."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._lock = threading.Lock()
        self._num_calls = 0
        os.register_at_fork(after_in_child=self._close_in_child)

    def _close_in_child(self) -> None:
        self._socket.close()
        self._lock = threading.Lock()  # another thread may have held it during the fork

    def call(self, function: str, arguments: Mapping[str, Any]) -> Any:
        """Call a function of the host. The result can be cited.

        Raises:
            ProgramToolError: the call failed. The message says why.
        """
        with self._lock:
            number = self._num_calls + 1
            try:
                fields = {"id": number, "function": function, "arguments": arguments}
                message = framed(json.dumps(fields, allow_nan=False).encode())
            except (TypeError, ValueError, RecursionError) as error:
                raise ProgramToolError(f"{function}: the arguments cannot be sent as JSON: {error}") from None
            self._num_calls = number
            try:
                self._socket.sendall(message)
                answer = json.loads(self._exactly(LENGTH.unpack(self._exactly(LENGTH.size))[0]))
            except OSError as error:
                raise ProgramToolError(f"{function}: no connection to the functions: {error}") from None
        if answer.get("id") != number:
            raise ProgramToolError(
                f"{function}: the connection to the functions is broken; use it from this process only"
            )
        if "error" in answer:
            raise ProgramToolError(f"{function}: {answer['error']}")
        return citable(answer.get("result"), call=answer.get("call"))

    def _exactly(self, num_bytes: int) -> bytes:
        if num_bytes > 8 * MAX_MESSAGE_BYTES:
            raise OSError("the answer has an impossible length")
        parts = bytearray()
        while len(parts) < num_bytes:
            part = self._socket.recv(min(num_bytes - len(parts), 1 << 20))
            if not part:
                raise OSError("it was closed; a message was invalid, or the program has ended")
            parts += part
        return bytes(parts)


def install(functions: Sequence[Mapping[str, Any]], *, connection: HostConnection, namespace: dict[str, Any]) -> None:
    """Put functions into a namespace. Each entry has a `name`, which may be dotted, and its `parameters`."""
    namespace["ToolError"] = ProgramToolError
    for entry in functions:
        name = cast(str, entry["name"])
        if name in ("run", "run_many", "tests"):
            made = _OF_CANDIDATES[name](connection)
        else:
            made = _stub(name, entry["parameters"], connection=connection)
        *parents, last = name.split(".")
        place = namespace
        for parent in parents:
            found = place.setdefault(parent, SimpleNamespace())
            if not isinstance(found, SimpleNamespace):
                break
            place = vars(found)
        else:
            place[last] = made


def _stub(name: str, parameters: Sequence[str], *, connection: HostConnection) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > len(parameters):
            raise ProgramToolError(
                f"{name}: takes {len(parameters)} arguments ({', '.join(parameters)}), {len(args)} given"
            )
        given = dict(zip(parameters, args, strict=False))
        twice = next((each for each in kwargs if each in given), None)
        if twice is not None:
            raise ProgramToolError(f"{name}: {twice} given twice")
        given |= kwargs
        if name == "claim" and "calls" in given:
            given["calls"] = citations(given["calls"])
        return connection.call(name, given)

    call.__name__ = call.__qualname__ = name.rpartition(".")[2]
    return call


# -------------------------------------------------------------------------------------------------- candidates


def _run_of(connection: HostConnection) -> Callable[..., Result]:
    def run(
        code: str,
        stdin: str = "",
        *,
        call: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        files: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Result:
        """Run a candidate's code in a separate process and return its result. `call` names a function to call then."""
        candidate = _candidate(
            code, stdin=stdin, call=call, args=args, kwargs=kwargs or {}, files=files or {}, timeout_s=timeout_s
        )
        return _result(connection.call("run", candidate))

    return run


def _run_many_of(connection: HostConnection) -> Callable[..., list[Result]]:
    def run_many(candidates: Iterable[Any]) -> list[Result]:
        """Run several candidates concurrently. Each is a code, or a dict of the arguments of `run`."""
        asked = [_candidate(**each) if isinstance(each, Mapping) else _candidate(each) for each in candidates]
        return list(_results_of(asked, connection=connection))

    return run_many


def _results_of(candidates: Sequence[Mapping[str, Any]], *, connection: HostConnection) -> Iterator[Result]:
    """Run candidates, `MAX_RUNS` at a time, and return their results one after the other. An answer has as many results as
    fit; the other candidates run again in the next call."""
    start = 0
    while start < len(candidates):
        results = connection.call("run_many", {"candidates": candidates[start : start + MAX_RUNS]})
        yield from map(_result, results)
        start += len(results)


def _candidate(code: Any, **options: Any) -> dict[str, Any]:
    """Return the arguments of a call of `run`. Options with their default are left out."""
    if not isinstance(code, str):
        raise ProgramToolError(f"run: code: expected the source as str, got {type(code).__name__}")
    args = options.get("args")
    if args is not None and not isinstance(args, list | tuple):
        raise ProgramToolError(f"run: args: expected a list of arguments, got {type(args).__name__}")
    return {"code": code} | {name: value for name, value in options.items() if value not in (None, "", (), {}, [])}


def _result(fields: Mapping[str, Any]) -> Result:
    """Return the result of a candidate from the host's answer."""
    result = Result(fields)
    text = result.get("value")
    if text is not None:
        try:
            result["value"] = json.loads(text)
        except (ValueError, RecursionError):
            result["value"] = None
            result["outcome"] = "error"
            result["error"] = "the function returned no JSON value"
    return result


class TestReport(dict[str, Any]):
    """Result of `tests`, with its items as attributes too: `passed` and `total` count cases; `failures` describes the cases
    that failed, at most 20."""

    __test__ = False  # pytest must not collect it

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"a report has {', '.join(self)}; not {name!r}") from None

    @property
    def all_passed(self) -> bool:
        """Whether every case passed."""
        return self["passed"] == self["total"]


def _tests_of(connection: HostConnection) -> Callable[..., TestReport]:
    def tests(code: str, cases: Iterable[Mapping[str, Any]], *, timeout_s: float | None = None) -> TestReport:
        """Run each case in a separate process and compare in this one.

        A case is `{"stdin": "1 2", "stdout": "3"}`, or `{"call": "add", "args": [1, 2], "returns": 3}` with optional
        `kwargs`.
        """
        asked = list(cases)
        for number, case in enumerate(asked):
            _check_case(case, number=number)
        candidates = [_candidate(**_of_case(code, case, timeout_s=timeout_s)) for case in asked]
        passed = 0
        failures: list[dict[str, Any]] = []
        # One value at a time: values are larger in memory than their JSON.
        for number, (case, result) in enumerate(
            zip(asked, _results_of(candidates, connection=connection), strict=True)
        ):
            if _passes(case, result):
                passed += 1
            elif len(failures) < 20:
                failures.append(_failure(number, case, result))
        return TestReport(passed=passed, total=len(asked), failures=failures)

    return tests


_CASE_KEYS = frozenset({"stdin", "stdout", "call", "args", "kwargs", "returns", "files"})


def _check_case(case: Any, *, number: int) -> None:
    if not isinstance(case, Mapping):
        raise ProgramToolError(f'tests: case {number}: expected a dict such as {{"stdin": "1", "stdout": "2"}}')
    unknown = [key for key in case if key not in _CASE_KEYS]
    if unknown:
        raise ProgramToolError(
            f"tests: case {number}: unknown key {unknown[0]!r}; expected {', '.join(sorted(_CASE_KEYS))}"
        )
    if ("call" in case) != ("returns" in case) or ("call" not in case and "stdout" not in case):
        raise ProgramToolError(f'tests: case {number}: expected "stdout", or "call" and "returns"')


def _of_case(code: str, case: Mapping[str, Any], *, timeout_s: float | None) -> dict[str, Any]:
    asked = {key: value for key, value in case.items() if key not in ("stdout", "returns")}
    return {"code": code, "timeout_s": timeout_s, **asked}


def _passes(case: Mapping[str, Any], result: Result) -> bool:
    if result["outcome"] != "ok":
        return False
    if "stdout" in case and not _same_text(str(case["stdout"]), result["stdout"]):
        return False
    return "call" not in case or ("value" in result and same_value(case["returns"], result["value"]))


def _same_text(expected: str, printed: str) -> bool:
    """Whether two outputs are the same without blanks at the end of lines and line breaks at the end."""
    return [line.rstrip() for line in expected.rstrip().split("\n")] == [
        line.rstrip() for line in printed.rstrip().split("\n")
    ]


def same_value(expected: Any, value: Any) -> bool:
    """Whether a value that a candidate returned as JSON is the expected one. Floats may differ by 1e-9 of their size, tuples
    are lists, arrays and scalars of numpy are Python's, and `True` is not 1."""
    if hasattr(expected, "tolist"):
        expected = expected.tolist()
    if isinstance(expected, bool) or isinstance(value, bool) or expected is None or value is None:
        return expected is value
    if isinstance(expected, int | float) and isinstance(value, int | float):
        return expected == value or (isinstance(expected, float) and _is_close(expected, value))
    if isinstance(expected, list | tuple):
        return isinstance(value, list) and len(expected) == len(value) and all(map(same_value, expected, value))
    if isinstance(expected, Mapping):
        return (
            isinstance(value, dict)
            and {str(key) for key in expected} == value.keys()
            and all(same_value(each, value[str(key)]) for key, each in expected.items())
        )
    return type(expected) is type(value) and expected == value


def _is_close(expected: float, value: float) -> bool:
    """Whether a number of a candidate, which may be of any size, is close to a float."""
    try:
        return math.isclose(expected, value, rel_tol=1e-9, abs_tol=0.0)  # False for infinities
    except OverflowError:
        return False


def _failure(number: int, case: Mapping[str, Any], result: Result) -> dict[str, Any]:
    """Describe a case that failed."""
    got = result.get("value") if "call" in case else result["stdout"]
    expected = case["returns"] if "call" in case else case["stdout"]
    return {
        "case": number,
        "outcome": result["outcome"],
        "expected": expected,
        "got": _shown(got),
        "error": result["error"],
    }


def _shown(value: Any) -> Any:
    """Return what a candidate returned or printed; the beginning of it, as text, if it is long."""
    text = value if isinstance(value, str) else json.dumps(value)
    return value if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}... ({len(text):,} characters)"


_OF_CANDIDATES: dict[str, Callable[[HostConnection], Callable[..., Any]]] = {
    "run": _run_of,
    "run_many": _run_many_of,
    "tests": _tests_of,
}
"""Functions that are more than a call of the host. `tests` calls `run_many`."""

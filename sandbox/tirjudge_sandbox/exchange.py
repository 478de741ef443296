"""The function calls of one program: check each message, run the function within its budgets, record the call, answer.

The record is written here, outside the program. It says what was called with what and what came back; it does not say that
the program used the result.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tirjudge.errors import SandboxUnavailable
from tirjudge.tools.functions import CallContext, CandidateRunner, Offer, ToolError, ToolFunction, Used
from tirjudge.types import CallRecord, ExecResult, StoreCard, encodable
from tirjudge_sandbox.channel import Link
from tirjudge_sandbox.messages import MAX_MESSAGE_BYTES

logger = logging.getLogger(__name__)

MAX_RECORDED_BYTES = 65_536
"""Maximum size of the arguments, and of the result, that are kept in a record, as JSON. Of larger ones only the hash is
kept."""

MAX_DEPTH = 100
"""Maximum depth of nested lists and objects in the arguments and in the result of a call."""

MAX_RESULT_BYTES = MAX_MESSAGE_BYTES - 4096
"""Maximum size of the result of a call, as JSON, so that its message fits."""

MAX_OVER_BUDGET = 100
"""Number of refused or invalid calls after which a program's channel is closed."""

PAUSE_AFTER_S = 0.02
"""Duration of a call in seconds after which the wall time of the program stops. Shorter calls are added up instead."""

_RESUME_EVERY_S = 0.1
"""Duration of short calls in seconds after which they are reported to the slot."""

_MAX_ERROR_CHARS = 1000


class Exchange:
    """Receives the calls of one program. One call at a time, as `guest` sends them.

    Args:
        offer: functions, and the account of the judgment.
        run_candidate: runs the code of a candidate.

    Attributes:
        records: calls that have ended.
        num_rows: number of items of each result in `records`. None: not a list.
        stores: name -> card of each store that the calls queried.
        failure: failure of the sandbox in a call. The program's result does not count then. None: no failure.
    """

    def __init__(self, offer: Offer, *, run_candidate: CandidateRunner) -> None:
        self._functions = {each.name: each for each in offer.functions}
        self._account = offer.account
        self._run_candidate, self._offer = run_candidate, offer
        self._link: Link | None = None
        self._task: asyncio.Task[None] | None = None
        self._num_over = 0
        self._total_s = self._told_s = 0.0
        self.records: list[CallRecord] = []
        self.num_rows: list[int | None] = []
        self.stores: dict[str, StoreCard] = {}
        self.failure: SandboxUnavailable | None = None

    @property
    def max_s(self) -> float:
        return self._account.budget.seconds

    def begin(self, link: Link) -> None:
        self._link = link

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def completed(self, result: ExecResult) -> ExecResult:
        """Return the result of the program with its calls.

        Raises:
            SandboxUnavailable: the sandbox failed in a call.
        """
        if self.failure is not None:
            raise self.failure
        return replace(result, calls=tuple(self.records), stores=tuple(self.stores.values()))

    def receive(self, message: bytes) -> None:
        if (self._task is not None and not self._task.done()) or self.failure is not None:
            raise ValueError("a message during a call")
        if self._num_over > MAX_OVER_BUDGET:
            raise ValueError("calls after the budget was used up")
        number, name, arguments = _parsed(message)
        self._task = asyncio.get_running_loop().create_task(
            self._serve(number, name, arguments, num_bytes=len(message))
        )

    async def _serve(self, number: int, name: str, arguments: dict[str, Any], *, num_bytes: int) -> None:
        start = time.perf_counter()
        pause = asyncio.get_running_loop().call_later(PAUSE_AFTER_S, self._pause)
        try:
            answer = await self._call(name, arguments, num_bytes=num_bytes)
        except SandboxUnavailable as error:
            self.failure = error
            answer = {"error": "the sandbox failed"}
        finally:
            pause.cancel()
        self._resume(time.perf_counter() - start)
        if self._link is not None:
            message = json.dumps({"id": number, **answer}, separators=(",", ":"), ensure_ascii=False)
            self._link.send(message.encode("utf-8", "replace"))

    def _pause(self) -> None:
        if self._link is not None:
            self._told_s = -1.0  # so that `_resume` tells the slot
            self._link.pause()

    def _resume(self, seconds: float) -> None:
        self._total_s += seconds
        if self._link is not None and (self._told_s < 0 or self._total_s - self._told_s > _RESUME_EVERY_S):
            self._told_s = self._total_s
            self._link.resume(self._total_s)

    async def _call(self, name: str, arguments: dict[str, Any], *, num_bytes: int) -> dict[str, Any]:
        """Run a call and record it. Return the fields of the answer. A call that is not recorded has no number in it."""
        function = self._functions.get(name)
        if function is None:
            self._num_over += 1
            offered = ", ".join(self._functions)
            return {"error": f"unknown function; available: {offered}"}
        try:
            arguments = _encodable(arguments)
        except ToolError as problem:
            self._num_over += 1
            return {"error": f"arguments: {problem}"}
        start = time.perf_counter()
        error, result = None, None
        context = CallContext(
            run_candidate=self._run_candidate,
            request=self._offer.request,
            responses=self._offer.responses,
            calls=self.records,
            num_rows=self.num_rows,
            stores=self.stores,
        )
        try:
            checked = self._checked(function, arguments, num_bytes=num_bytes)
            result = await self._result(function, checked, context=context)
        except ToolError as problem:
            error = str(problem)[:_MAX_ERROR_CHARS]
        ms = 1000 * (time.perf_counter() - start)
        self.stores |= context.sources
        sources = {name: card.sha256 for name, card in context.sources.items()}
        self.records.append(_record(function, arguments, result, error=error, ms=ms, sources=sources))
        self.num_rows.append(len(result) if isinstance(result, list) else None)
        return {"call": len(self.records), **({"error": error} if error is not None else {"result": result})}

    def _checked(self, function: ToolFunction, arguments: Mapping[str, Any], *, num_bytes: int) -> Mapping[str, Any]:
        """Return the checked arguments. The call is counted even if they are invalid.

        Raises:
            ToolError: an argument is invalid, or a budget is used up.
        """
        num_calls = 1
        try:
            checked = function.check(arguments)
            num_calls = function.num_calls(checked)
        finally:
            try:
                self._account.charge(function, Used(calls=num_calls, bytes_in=num_bytes))
            except ToolError:
                self._num_over += 1
                raise
        return checked

    async def _result(self, function: ToolFunction, arguments: Mapping[str, Any], *, context: CallContext) -> Any:
        """Run a call within the time that is left.

        Raises:
            ToolError: the call failed, or a budget is used up.
            SandboxUnavailable: the sandbox failed while it ran a candidate.
        """
        seconds_left = self._account.seconds_left(function)
        start = time.perf_counter()
        limit = asyncio.timeout(seconds_left)
        try:
            async with limit:
                value = function.to_json(await function.handle(arguments, context))
        except (ToolError, SandboxUnavailable):
            raise
        except Exception as error:
            if isinstance(error, TimeoutError) and limit.expired():
                raise ToolError(f"not done after {seconds_left:.1f} s, the rest of its time budget") from None
            logger.exception("the function %s failed", function.name)
            raise ToolError(
                f"the tool failed with {type(error).__name__}; this is not an error of the program"
            ) from error
        finally:
            self._account.spend(function, seconds=time.perf_counter() - start)
        value = _encodable(value)
        num_bytes = len(call_json(value))
        self._account.charge(function, Used(bytes_out=num_bytes))
        if num_bytes > MAX_RESULT_BYTES:
            raise ToolError(f"the result has {num_bytes:,} bytes as JSON, the limit is {MAX_RESULT_BYTES:,}")
        return value


def _parsed(message: bytes) -> tuple[int, str, dict[str, Any]]:
    """Return the id, the function and the arguments of a call. Raises ValueError if the message is not a call."""
    try:
        fields = json.loads(message, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(fields, dict) or fields.keys() != {"id", "function", "arguments"}:
        raise ValueError("not a call")
    number, name, arguments = fields["id"], fields["function"], fields["arguments"]
    if type(number) is not int or not isinstance(name, str) or not isinstance(arguments, dict):
        raise ValueError("not a call")
    return number, name, arguments


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _encodable(value: Any, *, depth: int = 0) -> Any:
    """Replace lone surrogates in all texts of JSON values.

    Raises:
        ToolError: the value is nested too deeply, or has a number that is not JSON.
    """
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ToolError(f"{value} is not JSON")
    if not isinstance(value, list | dict):
        return value
    if depth == MAX_DEPTH:
        raise ToolError(f"lists and objects are nested more than {MAX_DEPTH} deep")
    if isinstance(value, list):
        return [_encodable(each, depth=depth + 1) for each in value]
    return {encodable(key): _encodable(each, depth=depth + 1) for key, each in value.items()}


def call_json(value: Any) -> bytes:
    """Encode a value of a call for its hash: sorted keys, no blanks.

    Raises:
        ToolError: the value is not JSON.
    """
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolError(f"the tool returned a result that is not JSON: {error}") from None


def _record(
    function: ToolFunction,
    arguments: Mapping[str, Any],
    result: Any,
    *,
    error: str | None,
    ms: float,
    sources: Mapping[str, str],
) -> CallRecord:
    given = call_json(arguments)
    returned = b"" if error is not None else call_json(result)
    return CallRecord(
        function=function.name,
        version=function.version,
        arguments=dict(arguments) if len(given) <= MAX_RECORDED_BYTES else None,
        arguments_sha256=hashlib.sha256(given).hexdigest(),
        result=result if error is None and len(returned) <= MAX_RECORDED_BYTES else None,
        result_sha256=hashlib.sha256(returned).hexdigest() if error is None else None,
        num_bytes=len(returned),
        error=error,
        ms=round(ms, 3),
        sources=dict(sources),
    )

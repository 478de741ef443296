"""The function calls of a program that is replayed: answered from the record of the judgment.

A call is matched by its function and the hash of its arguments, in the order of the record. A query of a store of evidence is
run again, and its result must have the recorded hash. Another result that the record keeps is"""

from __future__ import annotations

import hashlib
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from tirjudge.tools.functions import CallContext, ToolError, ToolFunction
from tirjudge.types import CallRecord
from tirjudge_sandbox.exchange import MAX_RECORDED_BYTES, call_json


class ReplayedCalls:
    """The calls of one program.

    Args:
        recorded: calls of the program in the judgment.
        offered: name -> parameters of the functions that the program could call.
        present: functions of this server.

    Attributes:
        num_fed_back: number of calls that were answered from the record.
        num_run_again: number of calls whose function was called again.
    """

    def __init__(
        self,
        recorded: Sequence[CallRecord],
        *,
        offered: Mapping[str, Sequence[str]],
        present: Sequence[ToolFunction],
    ) -> None:
        self.num_fed_back = 0
        self.num_run_again = 0
        self._present = {each.name: each for each in present if each.is_deterministic}
        self._offered = offered
        self._problems: list[str] = []
        self._left: dict[tuple[str, str], deque[CallRecord]] = defaultdict(deque)
        for call in recorded:
            self._left[call.function, call.arguments_sha256].append(call)

    @property
    def functions(self) -> list[ToolFunction]:
        """The functions to offer to the program."""
        return [self._replayed(name, tuple(parameters)) for name, parameters in self._offered.items()]

    @property
    def difference(self) -> str | None:
        """The first difference from the calls in the judgment. None: the calls are the same."""
        if self._problems:
            return self._problems[0]
        missing = [call for calls in self._left.values() for call in calls]
        if not missing:
            return None
        return f"{len(missing)} recorded calls were not made, such as one of {missing[0].function}"

    def _replayed(self, name: str, parameters: tuple[str, ...]) -> ToolFunction:
        return ToolFunction(
            name=name,
            description="",
            signature="",
            parameters=parameters,
            handle=partial(self._answer, name),
            check=dict,
            to_json=lambda value: value,
            input_schema={},
            output_schema=None,
        )

    async def _answer(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Any:
        """Return the result of a call.

        Raises:
            ToolError: the call failed in the judgment, or it cannot be answered.
        """
        left = self._left.get((name, hashlib.sha256(call_json(arguments)).hexdigest()))
        if not left:
            raise self._problem(f"the record of the judgment has no such call of {name}")
        call = left.popleft()
        if call.error is None and (call.num_bytes > MAX_RECORDED_BYTES or call.sources):
            result = await self._again(name, arguments, context)
            digest = hashlib.sha256(call_json(result)).hexdigest()
            if call.sources and digest != call.result_sha256:
                self._problems.append(f"{name} returned a result with SHA-256 {digest}; it was {call.result_sha256}")
            return result
        self.num_fed_back += 1
        if call.error is not None:
            raise ToolError(call.error)
        return call.result

    async def _again(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Any:
        function = self._present.get(name)
        if function is None:
            raise self._problem(f"the result of {name} was too large to keep, and {name} cannot be called again here")
        self.num_run_again += 1
        return function.to_json(await function.handle(function.check(arguments), context))

    def _problem(self, message: str) -> ToolError:
        self._problems.append(message)
        return ToolError(message)

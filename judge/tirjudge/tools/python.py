"""The tool `python`: runs programs in a sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tirjudge.tools.base import Bindings, Tool, ToolContext
from tirjudge.tools.functions import Offer, ToolFunction
from tirjudge.types import ExecResult


class Sandbox(Protocol):
    """Runs untrusted Python programs."""

    async def run(self, code: str, *, bindings: Bindings, offer: Offer | None = None) -> ExecResult:
        """Run one program in a new process, with `bindings` set as global variables.

        Args:
            code: Python source.
            bindings: variables of the program.
            offer: functions that the program may call, and bindings whose execution is reported. None: none.

        Raises:
            SandboxUnavailable: the program could not be run. The program is not the cause.
        """
        ...


@dataclass(frozen=True)
class PythonTool:
    """Runs each call as a separate program, with the texts of the request as global variables."""

    sandbox: Sandbox
    """Runs the programs."""
    functions: Sequence[ToolFunction] = ()
    """Functions that programs may call."""

    name = "python"
    description = "Runs a Python program in a fresh process; its output is what it prints."

    async def run(self, source: str, *, context: ToolContext) -> ExecResult:
        offer = Offer(
            functions=self.functions,
            account=context.account,
            candidate_code=context.candidate_code,
            watched=context.watched,
            request=context.request,
            responses=context.responses,
        )
        return await self.sandbox.run(source, bindings=context.bindings, offer=offer)


def python_tools(sandbox: Sandbox | None, *, functions: Sequence[ToolFunction] = ()) -> list[Tool]:
    """Return the Python tool for a sandbox; an empty list without a sandbox."""
    return [] if sandbox is None else [PythonTool(sandbox, functions)]

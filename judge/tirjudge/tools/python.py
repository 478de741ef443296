"""The tool `python`: runs programs in a sandbox."""

from __future__ import annotations

from typing import Protocol

from tirjudge.tools.base import Bindings, Tool, ToolContext
from tirjudge.types import ExecResult


class Sandbox(Protocol):
    """Runs untrusted Python programs."""

    async def run(self, code: str, *, bindings: Bindings) -> ExecResult:
        """Run one program in a new process, with `bindings` set as global variables.

        Raises:
            SandboxUnavailable: the program could not be run. The program is not the cause.
        """
        ...


class PythonTool:
    """Runs each call as a separate program, with the texts of the request as global variables."""

    name = "python"
    description = "Runs a Python program in a fresh process; its output is what it prints."

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    async def run(self, source: str, *, context: ToolContext) -> ExecResult:
        return await self.sandbox.run(source, bindings=context.bindings)


def python_tools(sandbox: Sandbox | None) -> list[Tool]:
    """Return the Python tool for a sandbox; an empty list without a sandbox."""
    return [] if sandbox is None else [PythonTool(sandbox)]

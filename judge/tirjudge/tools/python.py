"""Python in a sandbox, the tool that every judge of ours has."""

from __future__ import annotations

from typing import Protocol

from tirjudge.tools.base import Bindings, Tool, ToolContext
from tirjudge.types import ExecResult


class Sandbox(Protocol):
    """Runs strangers' Python."""

    async def run(self, code: str, *, bindings: Bindings) -> ExecResult:
        """One program, in a new process, with `bindings` set as variables.

        Raises:
            SandboxUnavailable: the program could not be run, for a reason that is not its own.
        """
        ...


class PythonTool:
    """Runs each call as a program of its own, with the texts that are judged as variables."""

    name = "python"
    description = "Runs a Python program in a fresh process; its output is what it prints."

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    async def run(self, source: str, *, context: ToolContext) -> ExecResult:
        return await self.sandbox.run(source, bindings=context.bindings)


def python_tools(sandbox: Sandbox | None) -> list[Tool]:
    """Python in that sandbox; none without one."""
    return [] if sandbox is None else [PythonTool(sandbox)]

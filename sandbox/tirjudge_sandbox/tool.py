"""The tool `python` of `open_judge`: runs programs in a sandbox pool on this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tirjudge.tools.base import Tool, ToolKind, ToolOptions
from tirjudge.tools.python import PythonTool
from tirjudge_sandbox.pool import SandboxPool


@asynccontextmanager
async def _open(options: ToolOptions) -> AsyncIterator[Tool]:
    async with SandboxPool(slots=options.slots, allow_unsafe=options.allow_unsafe_sandbox) as pool:
        yield PythonTool(pool)


TOOL = ToolKind(name=PythonTool.name, open=_open)

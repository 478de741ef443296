"""A toy tool: counts the words of a response."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tirjudge.tools.base import Tool, ToolContext, ToolKind, ToolOptions
from tirjudge.types import Outcome, ToolResult


class WordCount:
    name = "words"
    description = "Counts the words of the response with this letter."

    async def run(self, source: str, *, context: ToolContext) -> ToolResult:
        text = context.bindings.get(source.strip())
        if not isinstance(text, str):
            return ToolResult(outcome=Outcome.ERROR, error=f"unknown response {source.strip()}")
        return ToolResult(outcome=Outcome.OK, stdout=str(len(text.split())))


@asynccontextmanager
async def _open(options: ToolOptions) -> AsyncIterator[Tool]:
    yield WordCount()


TOOL = ToolKind(name=WordCount.name, open=_open)

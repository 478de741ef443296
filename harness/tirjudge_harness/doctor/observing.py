"""Watch the turns that an engine generates, and hide the outputs of programs from a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, cast

from tirjudge.engines.base import Engine
from tirjudge.tools.base import Tool, ToolContext
from tirjudge.tools.functions import ToolFunction
from tirjudge.types import Completion, Sampling, ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedTurn:
    """One turn that an engine generated."""

    prompt_tokens: int
    """Number of tokens before the turn. 0: the endpoint reports no counts."""
    sampling: Sampling
    completion: Completion
    engine_s: float
    """Seconds until the engine returned the turn."""


class ObservedEngine:
    """An engine that keeps every turn it generates. Constrained reads are not kept.

    Args:
        engine: generates the turns. Everything except `generate` is its own.

    Attributes:
        turns: the turns so far.
    """

    def __init__(self, engine: Engine) -> None:
        self.turns: list[ObservedTurn] = []
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        """Generate one turn, and keep it."""
        started = perf_counter()
        completion = await self._engine.generate(token_ids, sampling=sampling, session=session)
        if sampling.allowed_token_ids is None:
            counted = completion.counted
            turn = ObservedTurn(
                prompt_tokens=len(token_ids) if counted is None else counted.prompt or 0,
                sampling=sampling,
                completion=completion,
                engine_s=perf_counter() - started,
            )
            self.turns.append(turn)
        return completion

    @property
    def engine(self) -> Engine:
        """This object, as an engine."""
        return cast(Engine, self)


class ToolWithoutOutput:
    """A tool that runs every call and shows the model an empty output. The outcome of the call is kept.

    Args:
        tool: runs the calls.
    """

    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    @property
    def name(self) -> str:
        return self._tool.name

    @property
    def description(self) -> str:
        return self._tool.description

    @property
    def functions(self) -> Sequence[ToolFunction]:
        return getattr(self._tool, "functions", ())

    async def run(self, source: str, *, context: ToolContext) -> ToolResult:
        """Run one call. Raises the errors of the tool."""
        return replace(await self._tool.run(source, context=context), stdout="", error=None)

"""The loop with a scripted engine and a tool that returns immediately, so that only the loop's own work is measured."""

from __future__ import annotations

import asyncio

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.pieces.conftest import WORDS
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.judge import Judge
from tirjudge.tools.base import ToolContext
from tirjudge.types import JudgeRequest, Outcome, ToolResult

CALL = f"{WORDS}\n```python\nprint(len(responses['A']))\n```\n```output\n"
VERDICT = f"{WORDS}<preference>B</preference>"


class InstantPython:
    """A tool with the name of Python. Every call prints the same text."""

    name = "python"
    description = "Always prints 2000."

    async def run(self, source: str, *, context: ToolContext) -> ToolResult:
        return ToolResult(outcome=Outcome.OK, stdout="2000\n")


@pytest.mark.parametrize("num_calls", [0, 1, 3])
def bench_judge_by_tool_calls(
    benchmark: BenchmarkFixture, loop: asyncio.AbstractEventLoop, pair: JudgeRequest, num_calls: int
) -> None:
    engine = ScriptedEngine(
        lambda sequence: CALL if sequence.count(CALL) < num_calls else VERDICT, label_probs={"A": 0.1, "B": 0.9}
    )
    judge = Judge(engine=engine, tools=[InstantPython()])
    request = pair.model_copy(update={"tools": "auto" if num_calls else "off"})

    def run() -> tuple[int | None, int]:
        engine.calls.clear()
        judgment = loop.run_until_complete(judge.judge(request))
        return judgment.verdict.best, judgment.usage.tool_calls

    best, tool_calls = benchmark(run)
    assert best is not None
    assert tool_calls == num_calls

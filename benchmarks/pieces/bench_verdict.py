"""Reading the model's completions: the tool call of a turn, and the verdict of a rollout."""

from __future__ import annotations

from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.pieces.conftest import WORDS
from tirjudge.formats import format_named
from tirjudge.tools.python import PythonTool
from tirjudge.types import Completion, Mode
from tirjudge_sandbox import SandboxPool

CALL = f"{WORDS * 25}\n```python\nprint(len(responses['A']))\n```\n```output\n"
VERDICT = f"{WORDS * 25} First I wanted <preference>A</preference>, now I prefer <preference>B</preference>"


def bench_find_verdict_after_three_turns(benchmark: BenchmarkFixture) -> None:
    found = benchmark(format_named(None).find_verdict, [CALL, CALL, VERDICT], mode=Mode.PAIRWISE, labels=("A", "B"))
    assert found.label == "B"


def bench_find_no_verdict(benchmark: BenchmarkFixture) -> None:
    texts = ["<preference>" * 2_000]
    assert benchmark(format_named(None).find_verdict, texts, mode=Mode.PAIRWISE, labels=("A", "B")) is None


def bench_read_tool_call(benchmark: BenchmarkFixture) -> None:
    completion = Completion(text=CALL, token_ids=(), logprobs=(), finish_reason="stop", stop="```output")
    call = benchmark(format_named(None).read_call, completion, tools=[PythonTool(SandboxPool())])
    assert call.source.startswith("print(")

"""Reading the probabilities of labels after a prefix. The tokenizer encodes bytes, so the label "10" has two tokens."""

from __future__ import annotations

import asyncio

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.formats import format_named
from tirjudge.types import Mode


@pytest.mark.parametrize("mode", [Mode.PAIRWISE, Mode.POINTWISE], ids=str)
def bench_read_labels(benchmark: BenchmarkFixture, loop: asyncio.AbstractEventLoop, mode: Mode) -> None:
    labels = format_named(None).labels(mode, 2)
    engine = ScriptedEngine([], label_probs={label[0]: 1 / len(labels) for label in labels})
    prefix = list(bytes(2_000))

    def run() -> dict[str, float] | None:
        engine.calls.clear()
        return loop.run_until_complete(engine.read_labels(prefix, labels=labels, session="s"))

    found = benchmark(run)
    assert found is not None
    assert list(found) == list(labels)

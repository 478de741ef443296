"""The embedded engine with the bundled checkpoint: prompts, single tokens, and a batch of sequences."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.pieces.conftest import WORDS
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.model import bundled_checkpoint
from tirjudge.types import Sampling

SESSIONS = map(str, count())
SAMPLED = {"temperature": 1.0, "logprobs": False}


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    engine = EmbeddedEngine.load(bundled_checkpoint(), cache_tokens=0)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def prompt_ids(engine: EmbeddedEngine, loop: asyncio.AbstractEventLoop) -> list[int]:
    return loop.run_until_complete(engine.tokenizer.encode_prompt(WORDS * 8))


def bench_prompt(
    benchmark: BenchmarkFixture, loop: asyncio.AbstractEventLoop, engine: EmbeddedEngine, prompt_ids: list[int]
) -> None:
    """A prompt that shares no prefix with those in the cache, because its first token changes."""
    sampling, numbers = Sampling(max_tokens=1, logprobs=False), count()

    def run() -> int:
        ids = [1 + next(numbers) % 100, *prompt_ids]
        return len(loop.run_until_complete(engine.generate(ids, sampling=sampling, session=next(SESSIONS))).token_ids)

    assert benchmark(run) == 1


@pytest.mark.parametrize("batch_size", [1, 8])
def bench_16_tokens(
    benchmark: BenchmarkFixture,
    loop: asyncio.AbstractEventLoop,
    engine: EmbeddedEngine,
    prompt_ids: list[int],
    batch_size: int,
) -> None:
    async def generate() -> list[int]:
        asked = (
            engine.generate(prompt_ids, sampling=Sampling(max_tokens=16, seed=seed, **SAMPLED), session=next(SESSIONS))
            for seed in range(batch_size)
        )
        return [len(completion.token_ids) for completion in await asyncio.gather(*asked)]

    assert max(benchmark(lambda: loop.run_until_complete(generate()))) <= 16

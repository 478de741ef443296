"""Screening training prompts against the prompts of benchmarks. All texts are generated."""

from __future__ import annotations

import random

import numpy as np
from pytest_benchmark.fixture import BenchmarkFixture

from tirjudge_training.data.decontamination import index_of

NUM_PROMPTS = 500


def prompts(seed: int) -> list[str]:
    """Prompts of 40 to 200 words out of 20,000."""
    rng = random.Random(seed)
    return [" ".join(f"w{rng.randrange(20_000)}" for _ in range(rng.randint(40, 200))) for _ in range(NUM_PROMPTS)]


def bench_index(benchmark: BenchmarkFixture) -> None:
    assert len(benchmark(index_of, {"generated": prompts(1)}).grams) > NUM_PROMPTS


def bench_scan(benchmark: BenchmarkFixture) -> None:
    index, training, nothing = index_of({"generated": prompts(1)}), prompts(2), np.zeros(0, dtype=np.uint64)
    training[7] += " " + prompts(1)[7]

    def scan() -> list[int]:
        return [n for n, text in enumerate(training) if index.found_in([text], exempt=nothing) is not None]

    assert benchmark(scan) == [7]

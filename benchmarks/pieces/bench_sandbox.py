"""Running programs in a warm sandbox."""

from __future__ import annotations

import asyncio

from pytest_benchmark.fixture import BenchmarkFixture

from tirjudge.types import Outcome
from tirjudge_sandbox import SandboxPool

PRINT = "print(sum(range(100)))"
THREADS = "import threading\nfor _ in range(8):\n    t = threading.Thread(target=int)\n    t.start()\n    t.join()"
NUMPY = "import numpy; print(int(numpy.arange(100).sum()))"


def bench_print(benchmark: BenchmarkFixture, loop: asyncio.AbstractEventLoop, pool: SandboxPool) -> None:
    assert benchmark(lambda: loop.run_until_complete(pool.run(PRINT))).stdout == "4950\n"


def bench_eight_at_a_time(benchmark: BenchmarkFixture, loop: asyncio.AbstractEventLoop, pool: SandboxPool) -> None:
    async def run_eight() -> list[str]:
        return [result.stdout for result in await asyncio.gather(*(pool.run(PRINT) for _ in range(8)))]

    assert set(benchmark(lambda: loop.run_until_complete(run_eight()))) == {"4950\n"}


def bench_eight_threads(benchmark: BenchmarkFixture, loop: asyncio.AbstractEventLoop, pool: SandboxPool) -> None:
    assert benchmark(lambda: loop.run_until_complete(pool.run(THREADS))).outcome is Outcome.OK


def bench_numpy(benchmark: BenchmarkFixture, loop: asyncio.AbstractEventLoop, pool: SandboxPool) -> None:
    loop.run_until_complete(pool.run(NUMPY))  # the interpreter with numpy starts when a program first imports numpy
    assert benchmark(lambda: loop.run_until_complete(pool.run(NUMPY))).stdout == "4950\n"

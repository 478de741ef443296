"""Measure how well the harness keeps a judge busy: its items per second, compared with the ideal rate and with batches.

    python benchmarks/harness_throughput.py --out benchmarks/results/harness_throughput.json

The server is `tirjudge serve`, including the sandbox, with a scripted model of fixed latency. So the ideal rate is
known: concurrency / mean latency of an item. An item takes one to three turns; each turn except the last runs a program.
The same client judges the items over HTTP in two ways:

harness   `Runner` with its journal on disk; the next item starts when one ends
batches   `concurrency` items at a time; the next batch starts when all items of the last one have ended, as in a loop over
          `model.generate(batch)`
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated, Any

import typer
from reporting import Out, report
from server_process import started
from server_scripted import COMMAND

from tirjudge.client import AsyncClient
from tirjudge.types import JudgeRequest, Judgment, Mode
from tirjudge_harness.pacing import Pace
from tirjudge_harness.run_store import JudgmentStore
from tirjudge_harness.runner import Runner, run_all

MAX_TURNS = 3


def main(
    items: Annotated[int, typer.Option(help="Items to judge with the harness.")] = 4096,
    batches: Annotated[int, typer.Option(help="Batches to judge, each with `concurrency` items.")] = 12,
    concurrency: Annotated[int, typer.Option(help="Items in flight.")] = 64,
    turn_s: Annotated[float, typer.Option(help="Seconds that the model takes per turn.")] = 2.0,
    seed: Annotated[int, typer.Option(help="Seed for the numbers of turns.")] = 0,
    out: Out = None,
) -> None:
    """Measure, and print the result as JSON."""
    rng = random.Random(seed)
    turns = [rng.randint(1, MAX_TURNS) for _ in range(items)]
    options = ("--delay-ms", str(1000 * turn_s), "--max-concurrency", str(concurrency), "--no-cache")
    with started(*COMMAND, *options) as server:
        result = asyncio.run(
            measure(server.url, turns=turns, num_batches=batches, concurrency=concurrency, turn_s=turn_s)
        )
    report({"concurrency": concurrency, "turn_s": turn_s, **result}, out)


async def measure(
    url: str, *, turns: Sequence[int], num_batches: int, concurrency: int, turn_s: float
) -> dict[str, dict[str, Any]]:
    """Measure both ways, one after the other, with one server."""
    async with AsyncClient(url) as client:
        await client.judge(request(-1, num_turns=2))
        harness_s = await with_harness(client, turns=turns, concurrency=concurrency)
        batched = turns[: num_batches * concurrency]
        batches_s = await with_batches(client, turns=batched, concurrency=concurrency)
    return {
        "harness": figures(turns, elapsed_s=harness_s, concurrency=concurrency, turn_s=turn_s),
        "batches": figures(batched, elapsed_s=batches_s, concurrency=concurrency, turn_s=turn_s),
    }


async def with_harness(client: AsyncClient, *, turns: Sequence[int], concurrency: int) -> float:
    """Judge all items with the harness and a journal on disk, and return the elapsed time in seconds."""
    failures: list[Exception] = []

    def note(number: int, answer: Judgment | Exception) -> None:
        if isinstance(answer, Exception):
            failures.append(answer)

    with TemporaryDirectory() as folder:
        async with JudgmentStore(Path(folder)) as store:
            runner = Runner(client.judge, identity={"model": "scripted"}, store=store, pace=Pace(most=concurrency))
            requests = [(number, request(number, num_turns=num)) for number, num in enumerate(turns)]
            began = perf_counter()
            await run_all(requests, runner=runner, on_done=note)
            elapsed_s = perf_counter() - began
    if failures:
        raise SystemExit(f"{len(failures)} items failed; the first error: {failures[0]}")
    return elapsed_s


async def with_batches(client: AsyncClient, *, turns: Sequence[int], concurrency: int) -> float:
    """Judge all items in batches, and return the elapsed time in seconds. Each batch takes as long as its slowest item."""
    began = perf_counter()
    for first in range(0, len(turns), concurrency):
        batch = range(first, min(first + concurrency, len(turns)))
        await asyncio.gather(*(client.judge(request(-2 - number, num_turns=turns[number])) for number in batch))
    return perf_counter() - began


def figures(turns: Sequence[int], *, elapsed_s: float, concurrency: int, turn_s: float) -> dict[str, Any]:
    """Return the throughput of one method, and its share of the ideal throughput."""
    ideal_s = sum(turns) * turn_s / concurrency
    return {
        "num_items": len(turns),
        "mean_turns": round(sum(turns) / len(turns), 3),
        "seconds": round(elapsed_s, 2),
        "items_per_s": round(len(turns) / elapsed_s, 3),
        "ideal_items_per_s": round(len(turns) / ideal_s, 3),
        "share_of_the_ideal": round(ideal_s / elapsed_s, 4),
    }


def request(number: int, *, num_turns: int) -> JudgeRequest:
    """Return a small pairwise request whose judgment takes `num_turns` turns; each number gives a different request."""
    return JudgeRequest(
        mode=Mode.PAIRWISE,
        prompt=f"Write sentence {number} about the sea; the verdict comes after programs: {num_turns - 1}.",
        responses=[f"The sea, sentence {number}.", f"Sentence {number} is about the sea at night."],
    )


if __name__ == "__main__":
    typer.run(main)

"""How much of the time the harness keeps a judge busy: items a second against the ideal, and against waiting in batches.

    python benchmarks/harness_throughput.py --out benchmarks/results/harness_throughput.json

The server is what `tirjudge serve` starts, the sandbox included, but for a scripted model of fixed latency, so that the
ideal is known: concurrency / mean latency of an item. Items take one to three turns; each turn but the last runs a program.
Two ways to judge them, over HTTP, by the same client:

harness   `Runner`, with its journal on disk and its pace; as one item ends, the next begins
batches   as many at a time as the concurrency; a batch begins when the one before it is done, as in a loop over
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
from tirjudge_harness.answers import Answers
from tirjudge_harness.pacing import Pace
from tirjudge_harness.runner import Runner, run_all

MAX_TURNS = 3


def main(
    items: Annotated[int, typer.Option(help="To judge in the harness's way.")] = 4096,
    batches: Annotated[int, typer.Option(help="Of as many items as the concurrency, to judge in the other way.")] = 12,
    concurrency: Annotated[int, typer.Option(help="Items under way at a time.")] = 64,
    turn_s: Annotated[float, typer.Option(help="Seconds that the model takes for a turn.")] = 2.0,
    seed: Annotated[int, typer.Option(help="Of the numbers of turns.")] = 0,
    out: Out = None,
) -> None:
    """Measure, and print the result as JSON."""
    rng = random.Random(seed)
    turns = [rng.randint(1, MAX_TURNS) for _ in range(items)]
    options = ("--delay-ms", str(turn_s * 1000), "--max-concurrency", str(concurrency), "--no-cache")
    with started(*COMMAND, *options) as server:
        result = asyncio.run(both(server.url, turns=turns, num_batches=batches, concurrency=concurrency, turn_s=turn_s))
    report({"concurrency": concurrency, "turn_s": turn_s, **result}, out)


async def both(
    url: str, *, turns: Sequence[int], num_batches: int, concurrency: int, turn_s: float
) -> dict[str, dict[str, Any]]:
    """Both ways, one after the other, at one server."""
    async with AsyncClient(url) as client:
        await client.judge(question(-1, num_turns=2))
        harness_s = await by_runner(client, turns=turns, concurrency=concurrency)
        batched = turns[: num_batches * concurrency]
        batches_s = await by_batches(client, turns=batched, concurrency=concurrency)

    def figures(turns: Sequence[int], elapsed_s: float) -> dict[str, Any]:
        ideal_s = sum(turns) * turn_s / concurrency
        return {
            "num_items": len(turns),
            "mean_turns": round(sum(turns) / len(turns), 3),
            "seconds": round(elapsed_s, 2),
            "items_per_s": round(len(turns) / elapsed_s, 3),
            "ideal_items_per_s": round(len(turns) / ideal_s, 3),
            "share_of_the_ideal": round(ideal_s / elapsed_s, 4),
        }

    return {"harness": figures(turns, harness_s), "batches": figures(batched, batches_s)}


async def by_runner(client: AsyncClient, *, turns: Sequence[int], concurrency: int) -> float:
    """Seconds that the harness takes, with a journal on disk."""

    def check(number: int, answer: Judgment | Exception) -> None:
        if isinstance(answer, Exception):
            raise SystemExit(f"item {number} failed: {answer}")

    with TemporaryDirectory() as folder:
        async with Answers(Path(folder)) as answers:
            pace = Pace(most=concurrency)
            runner = Runner(client.judge, identity={"model": "scripted"}, store=answers, pace=pace)
            questions = [(number, question(number, num_turns=num)) for number, num in enumerate(turns)]
            began = perf_counter()
            await run_all(questions, runner=runner, on_done=check)
            return perf_counter() - began


async def by_batches(client: AsyncClient, *, turns: Sequence[int], concurrency: int) -> float:
    """Seconds that batches take, in which every item is as slow as the slowest.

    The judge is the same and judges whole items, so the wait for the slowest of each turn is that for the slowest item.
    """
    began = perf_counter()
    for first in range(0, len(turns), concurrency):
        batch = range(first, min(first + concurrency, len(turns)))
        await asyncio.gather(*(client.judge(question(-2 - number, num_turns=turns[number])) for number in batch))
    return perf_counter() - began


def question(number: int, *, num_turns: int) -> JudgeRequest:
    """One of many small pairs, no two alike, that takes so many turns."""
    return JudgeRequest(
        mode=Mode.PAIRWISE,
        prompt=f"Write sentence {number} about the sea; the verdict comes after programs: {num_turns - 1}.",
        responses=[f"The sea, sentence {number}.", f"Sentence {number} is about the sea at night."],
    )


if __name__ == "__main__":
    typer.run(main)

"""How `tirjudge serve` holds up: a burst of requests at once, then a long run, with its memory watched.

    python benchmarks/server_load.py --out benchmarks/results/server_load.json

Starts the server with its defaults and the bundled judge.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer
from reporting import TIRJUDGE, Out, report
from server_process import RunningServer, request, spread, started

from tirjudge.client import AsyncClient
from tirjudge.concurrency import map_concurrently
from tirjudge.types import Judgment

SAMPLE_S = 0.25
"""Between two looks at the memory."""


def main(
    model: Annotated[Path | None, typer.Option(help="Checkpoint folder; default: the bundled judge.")] = None,
    num_judgments: Annotated[int, typer.Option(help="Of the long run.")] = 2000,
    concurrency: Annotated[int, typer.Option(help="Requests at once, in the burst and in the long run.")] = 64,
    out: Out = None,
) -> None:
    """Measure, and print the result as JSON."""
    options = () if model is None else ("--model", str(model))
    with started(*TIRJUDGE, "serve", "--port", "0", *options) as server:
        measured = asyncio.run(measure(server, num_judgments=num_judgments, concurrency=concurrency))
    report(measured, out)


async def measure(server: RunningServer, *, num_judgments: int, concurrency: int) -> dict[str, Any]:
    """A burst, then a long run."""
    async with AsyncClient(server.url) as client:
        model = (await client.models())[0].id
        burst = await measure_burst(client, num_requests=concurrency)
        samples: list[dict[str, float]] = []
        watching = asyncio.create_task(watch_memory(server, samples=samples))
        long_run = await measure_long_run(client, num_judgments=num_judgments, concurrency=concurrency)
        watching.cancel()
    memory: dict[str, Any] = {"start": samples[0], "middle": samples[len(samples) // 2], "end": samples[-1]}
    memory["most"] = {key: max(sample[key] for sample in samples) for key in samples[0]}
    return {"model": model, "burst": burst, "long_run": long_run, "memory": memory}


async def measure_burst(client: AsyncClient, *, num_requests: int) -> dict[str, Any]:
    """All requests at once: how long, and how far the order of the answers is from the order of sending."""
    answered: list[int] = []

    async def ask(number: int) -> float:
        judgment = await client.judge(request(number))
        answered.append(number)
        return judgment.timing.queue_s

    started_at = perf_counter()
    queued = await asyncio.gather(*map(ask, range(num_requests)))
    overtaken = [number - place for place, number in enumerate(answered)]
    return {
        "num_requests": num_requests,
        "num_answered": len(answered),
        "seconds": round(perf_counter() - started_at, 3),
        "longest_queue_s": round(max(queued), 3),
        "spearman_arrival_completion": round(
            1 - 6 * sum(gap * gap for gap in overtaken) / (num_requests * (num_requests * num_requests - 1)), 4
        ),
        "furthest_overtaking": max(overtaken),
    }


async def measure_long_run(client: AsyncClient, *, num_judgments: int, concurrency: int) -> dict[str, Any]:
    """Many judgments, `concurrency` under way at a time."""
    latencies: list[float] = []

    async def ask(number: int) -> Judgment:
        began = perf_counter()
        judgment = await client.judge(request(number))
        latencies.append(perf_counter() - began)
        return judgment

    started_at = perf_counter()
    judgments = await map_concurrently(map(ask, range(num_judgments)), num_at_once=concurrency)
    elapsed = perf_counter() - started_at
    return {
        "num_judgments": len(judgments),
        "concurrency": concurrency,
        "seconds": round(elapsed, 2),
        "judgments_per_s": round(len(judgments) / elapsed, 2),
        **spread(latencies),
        "tool_calls": sum(judgment.usage.tool_calls for judgment in judgments),
        "output_tokens": sum(judgment.usage.output_tokens for judgment in judgments),
        "forced": sum(judgment.verdict.forced for judgment in judgments),
    }


async def watch_memory(server: RunningServer, *, samples: list[dict[str, float]]) -> None:
    """Look at the memory until cancelled."""
    while True:
        samples.append(server.memory())
        await asyncio.sleep(SAMPLE_S)


if __name__ == "__main__":
    typer.run(main)

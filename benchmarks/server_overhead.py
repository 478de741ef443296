"""What the server itself costs and holds, with a model that takes no time: speed, CPU time, overload, memory.

    python benchmarks/server_overhead.py --out benchmarks/results/server_overhead.json

Starts `server_scripted.py`, which is `tirjudge serve` with that model, and asks over the loopback. No two requests are
alike, so no judgment is shared and the cache has none of them. CPU time is that of the server's own process: programs run
in others; the model's share is 0.04 ms a text. `remote` is the CPU time of a server whose model, the bundled judge, is
a worker behind HTTP: each judgment takes three requests to it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated, Any

import aiohttp
import typer
from reporting import TIRJUDGE, Out, report
from server_process import RunningServer, spread, started
from server_scripted import COMMAND

CONCURRENCIES = (1, 8, 64, 512)
WARM_UP = 100
"""Judgments before anything is measured."""
PLACES = 16
"""Judgments side by side, the server's default."""
OVERLOAD_DELAY_MS = 100.0
"""Of each text of the model in the overload, so that it and not this machine sets the capacity."""
NUM_SAMPLES = 20
"""Looks at the memory."""


def main(
    num_judgments: Annotated[int, typer.Option(help="At each concurrency; 0: none.")] = 1000,
    num_memory: Annotated[int, typer.Option(help="Judgments of the watch over the memory; 0: none.")] = 20_000,
    overload_s: Annotated[float, typer.Option(help="Of each part of the overload; 0: none.")] = 10.0,
    num_remote: Annotated[int, typer.Option(help="Judgments with the model behind HTTP; 0: none.")] = 40,
    out: Out = None,
) -> None:
    """Measure, and print the result as JSON."""
    result: dict[str, Any] = {}
    if num_judgments:
        result["speed"] = [
            asyncio.run(measure_speed(num_programs, with_records=with_records, num_judgments=num_judgments))
            for num_programs in (0, 1)
            for with_records in (False, True)
        ]
    if overload_s:
        result["overload"] = asyncio.run(measure_overload(overload_s))
    if num_memory:
        result["memory"] = asyncio.run(measure_memory(num_memory))
    if num_remote:
        result["remote"] = asyncio.run(measure_remote(num_remote))
    report(result, out)


async def measure_speed(num_programs: int, *, with_records: bool, num_judgments: int) -> dict[str, Any]:
    """One server at each concurrency. The queue is long enough for the highest."""
    rounds = []
    with TemporaryDirectory() as folder:
        records = str(Path(folder, "records.db")) if with_records else "none"
        options = ("--programs", str(num_programs), "--records", records, "--max-queue", "1024")
        with started(*COMMAND, *options) as server:
            await server.ask_all(WARM_UP, concurrency=8)
            for concurrency in CONCURRENCIES:
                cpu_s, began = server.cpu_s(), perf_counter()
                latencies = await server.ask_all(num_judgments, concurrency=concurrency)
                per_s = num_judgments / (perf_counter() - began)
                cpu_ms = (server.cpu_s() - cpu_s) / num_judgments * 1000
                figures = {"judgments_per_s": round(per_s, 1), "cpu_ms_per_judgment": round(cpu_ms, 2)}
                rounds.append({"concurrency": concurrency, **figures, **spread(latencies)})
    return {
        "programs_per_judgment": num_programs,
        "records": with_records,
        "num_judgments": num_judgments,
        "rounds": rounds,
    }


async def measure_overload(seconds: float) -> dict[str, Any]:
    """As many requests a second as it can judge, and twice as many, whether or not the others are answered yet."""
    with started(*COMMAND, "--delay-ms", str(OVERLOAD_DELAY_MS), "--max-queue", str(PLACES)) as server:
        await server.ask_all(WARM_UP, concurrency=PLACES)
        began = perf_counter()
        full = await server.ask_all(round(10 * PLACES * seconds / 2), concurrency=2 * PLACES)
        capacity = len(full) / (perf_counter() - began)
        async with server.session() as session:
            twice = await measure_arrivals(server, session, per_s=2 * capacity, seconds=seconds)
    at_capacity = spread(full)
    return {
        "engine_ms_per_text": OVERLOAD_DELAY_MS,
        "max_concurrency": PLACES,
        "max_queue": PLACES,
        "capacity_per_s": round(capacity, 1),
        "at_capacity": at_capacity,
        "at_twice_the_capacity": twice,
        "p99_ratio": round(twice["p99_ms"] / at_capacity["p99_ms"], 2),
    }


async def measure_arrivals(
    server: RunningServer, session: aiohttp.ClientSession, *, per_s: float, seconds: float
) -> dict[str, Any]:
    """Requests that come evenly, however many are under way."""
    began = perf_counter()
    asking: list[asyncio.Task[tuple[int, float]]] = []
    while (due := began + len(asking) / per_s) < began + seconds:
        await asyncio.sleep(max(0.0, due - perf_counter()))
        asking.append(asyncio.create_task(server.ask(session)))
    answers = await asyncio.gather(*asking)
    accepted = [latency for status, latency in answers if status == 200]
    refused = [latency for status, latency in answers if status == 429]
    return {
        "requests_per_s": round(per_s, 1),
        "num_requests": len(answers),
        "num_accepted": len(accepted),
        "num_refused_429": len(refused),
        "num_other": len(answers) - len(accepted) - len(refused),
        "accepted_per_s": round(len(accepted) / seconds, 1),
        **spread(accepted),
        "refusal_p99_ms": spread(refused)["p99_ms"] if len(refused) > 1 else None,
    }


async def measure_memory(num_judgments: int) -> dict[str, Any]:
    """Memory over many judgments with records and a program each, and how much it grew in their second half."""
    samples = []
    with TemporaryDirectory() as folder, started(*COMMAND, "--records", str(Path(folder, "records.db"))) as server:
        began = perf_counter()
        for _ in range(NUM_SAMPLES):
            await server.ask_all(num_judgments // NUM_SAMPLES, concurrency=PLACES)
            samples.append({"num_judgments": server.num_asked, **server.memory()})
        per_s = server.num_asked / (perf_counter() - began)
    late = [sample["server_mb"] for sample in samples[NUM_SAMPLES // 2 :]]
    return {
        "num_judgments": server.num_asked,
        "judgments_per_s": round(per_s, 1),
        "growth_of_the_second_half_mb": round(late[-1] - late[0], 1),
        "samples": samples,
    }


async def measure_remote(num_judgments: int) -> dict[str, Any]:
    """CPU time of the server's process for a judgment by the bundled judge in a worker."""
    with started(*TIRJUDGE, "worker", "--port", "0") as worker:
        options = ("--port", "0", "--engine", worker.url, "--records", "none", "--files", "none")
        with started(*TIRJUDGE, "serve", *options) as server:
            await server.ask_all(8, concurrency=4)
            before = server.cpu_s()
            await server.ask_all(num_judgments, concurrency=8)
            core_ms = (server.cpu_s() - before) / num_judgments * 1000
    return {"num_judgments": num_judgments, "server_core_ms_per_judgment": round(core_ms, 2), "calls_per_judgment": 3}


if __name__ == "__main__":
    typer.run(main)

"""Measure CPU time and throughput of the server itself, the source of the defaults of `tirjudge plan`.

    python benchmarks/server_overhead.py --out benchmarks/results/server_overhead.json
    python benchmarks/server_overhead.py --num-judgments 0 --num-remote 400 --out benchmarks/results/server_programs.json

The result `speed` is measured with `server_scripted.py`, whose model answers immediately; the model's share of the CPU time
is 0.04 ms per completion. All requests differ, so no judgment is shared or found in the cache. CPU time is measured for the
server process only; programs run in other processes. The result `remote` is measured with the bundled judge in a worker
behind HTTP; each judgment sends three requests to the worker.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated, Any

import typer
from reporting import TIRJUDGE, Out, report
from server_process import spread, started
from server_scripted import COMMAND

CONCURRENCIES = (1, 8, 64, 512)
WARM_UP = 100
"""Judgments before the measurement."""


def main(
    num_judgments: Annotated[int, typer.Option(help="Judgments at each concurrency. 0: skip this part.")] = 1000,
    num_remote: Annotated[int, typer.Option(help="Judgments with a remote model. 0: skip this part.")] = 40,
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
    if num_remote:
        result["remote"] = asyncio.run(measure_remote(num_remote))
    report(result, out)


async def measure_speed(num_programs: int, *, with_records: bool, num_judgments: int) -> dict[str, Any]:
    """Measure one server at each concurrency. Its queue is long enough for the highest concurrency."""
    rounds = []
    with TemporaryDirectory() as folder:
        records = str(Path(folder, "records.db")) if with_records else "none"
        options = ("--programs", str(num_programs), "--records", records, "--max-queue", "1024")
        with started(*COMMAND, *options) as server:
            await server.judge_all(WARM_UP, concurrency=8)
            for concurrency in CONCURRENCIES:
                cpu_s, began = server.cpu_s(), perf_counter()
                latencies = await server.judge_all(num_judgments, concurrency=concurrency)
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


async def measure_remote(num_judgments: int) -> dict[str, Any]:
    """Measure the server's CPU time per judgment with the bundled judge in a worker, and count the judge's programs."""
    with started(*TIRJUDGE, "worker", "--port", "0") as worker:
        options = ("--port", "0", "--engine", worker.url, "--records", "none", "--files", "none")
        with started(*TIRJUDGE, "serve", *options) as server:
            await server.judge_all(8, concurrency=4)
            before, calls_before = server.cpu_s(), server.num_tool_calls
            await server.judge_all(num_judgments, concurrency=8)
            core_ms = (server.cpu_s() - before) / num_judgments * 1000
            programs = (server.num_tool_calls - calls_before) / num_judgments
    return {
        "num_judgments": num_judgments,
        "server_core_ms_per_judgment": round(core_ms, 2),
        "calls_per_judgment": 3,
        "programs_per_judgment": programs,
    }


if __name__ == "__main__":
    typer.run(main)

"""The simulation beside the real system, at the size of one machine: calibrated at one number of callers, asked about others.

    python benchmarks/plan_check.py --out benchmarks/results/plan_check.json

`scripted`: `tirjudge serve` over HTTP with a model that takes a second a text and a real sandbox; what is predicted is the
queue. `embedded`: the bundled judge, the real loop and a real sandbox in this process; what is predicted is the engine's
batching, from the steps that it took at the calibrating number of callers and, since a batch of one size does not tell
what a sequence adds, for a single one. `remote`: processor time of a server whose
model is behind HTTP, which is no check but a figure that plans start from. Neighbours on the machine slow a run down
between one point and the next, so the load is noted with each, and the engine's work is compared in core seconds too,
where neighbours do not count.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from time import perf_counter, thread_time
from typing import Annotated, Any

import typer
from plan_steps import RecordingEngine, TimedSandbox, fitted, shape_of
from server_load import request, started_server
from server_overhead import Server
from server_overhead import started_server as started_scripted

from tirjudge.judge import Judge
from tirjudge.model import checkpoint_folder
from tirjudge.profile import load_profile
from tirjudge.tools.python import PythonTool
from tirjudge_sandbox import SandboxPool
from tirjudge_server.planning.batching import EngineLimits
from tirjudge_server.planning.routing import Routing
from tirjudge_server.planning.simulation import Fleet, Load, simulate
from tirjudge_server.planning.steps import StepCost
from tirjudge_server.planning.summary import SimulationResult, quantile
from tirjudge_server.planning.workload import TurnShape, trace

PLACES = 16
"""Judgments side by side, the server's default."""
TEXT_S = 1.0
"""Of each text of the scripted model."""


def main(
    scripted_callers: Annotated[str, typer.Option(help="The first calibrates.")] = "4,1,16,32,64",
    embedded_callers: Annotated[str, typer.Option(help="The first calibrates.")] = "16,1,2,4,8",
    num_embedded: Annotated[int, typer.Option(help="Judgments at each number of callers; 0: none.")] = 80,
    num_remote: Annotated[int, typer.Option(help="Judgments through HTTP; 0: none.")] = 60,
    rounds: Annotated[int, typer.Option(help="Of the scripted callers, each asking so often at least.")] = 4,
    out: Annotated[Path | None, typer.Option(help="File for the result; default: printed only.")] = None,
) -> None:
    """Measure, predict, and print both as JSON."""
    result: dict[str, Any] = {
        "command": (
            f"python benchmarks/plan_check.py --scripted-callers {scripted_callers} --embedded-callers {embedded_callers} "
            f"--num-embedded {num_embedded} --num-remote {num_remote} --rounds {rounds}"
        ),
        "commit": subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip() or None,
        "num_cores": len(os.sched_getaffinity(0)),
    }
    if rounds:
        result["scripted"] = asyncio.run(check_scripted(numbers(scripted_callers), rounds=rounds))
    if num_embedded:
        result["embedded"] = asyncio.run(check_embedded(numbers(embedded_callers), num_judgments=num_embedded))
    if num_remote:
        result["remote"] = asyncio.run(measure_remote(num_remote))
    text = json.dumps(result, indent=2)
    print(text)
    if out is not None:
        out.write_text(text + "\n")


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def compared(seen: Sequence[float], *, seconds: float, result: SimulationResult) -> dict[str, Any]:
    """What was seen and what was simulated, each as rate and quantiles."""
    ordered = sorted(seen)
    pairs = {
        "per_s": (len(seen) / seconds, result.per_s),
        "p50_s": (quantile(ordered, 0.5), result.p50_s),
        "p95_s": (quantile(ordered, 0.95), result.p95_s),
    }
    return {
        "num_judgments": len(seen),
        "load_average": round(os.getloadavg()[0], 1),
        **{
            name: {"seen": round(real, 4), "simulated": round(guess, 4), "error": round(guess / real - 1, 4)}
            for name, (real, guess) in pairs.items()
        },
    }


async def closed_loop(ask: Callable[[int], Awaitable[float]], *, callers: int, num: int) -> tuple[list[float], float]:
    """Seconds of each call, and of all."""
    remaining, seen, began = iter(range(num)), [], perf_counter()

    async def work() -> None:
        for number in remaining:
            seen.append(await ask(number))

    await asyncio.gather(*(work() for _ in range(callers)))
    return seen, perf_counter() - began


# A scripted model behind the real server.


async def check_scripted(callers: list[int], *, rounds: int) -> dict[str, Any]:
    options = ("--programs=1", f"--delay-ms={TEXT_S * 1000}", "--records=none", "--max-queue=512")
    with started_scripted(*options) as server:
        await server.ask_all(PLACES, concurrency=PLACES)
        seen, seconds, core_s = await ask_scripted(server, callers=callers[0], rounds=rounds)
        fleet = scripted_fleet(core_s=core_s, rest_s=max(0.0, fmean(seen) - 2 * TEXT_S - core_s))
        points = {callers[0]: compared(seen, seconds=seconds, result=simulated(fleet, callers[0], rounds=rounds))}
        for number in callers[1:]:
            seen, seconds, _ = await ask_scripted(server, callers=number, rounds=rounds)
            points[number] = compared(seen, seconds=seconds, result=simulated(fleet, number, rounds=rounds))
    return {
        "calibrated_at": callers[0],
        "text_s": TEXT_S,
        "server_core_s": round(core_s, 5),
        "program_s": round(fleet.sandbox_overhead_s, 5),
        "callers": points,
    }


async def ask_scripted(server: Server, *, callers: int, rounds: int) -> tuple[list[float], float, float]:
    """Seconds of each judgment, of all, and of the server's core for one."""
    before, began, num = server.cpu_s(), perf_counter(), num_scripted(callers, rounds=rounds)
    seen = await server.ask_all(num, concurrency=callers)
    return seen, perf_counter() - began, (server.cpu_s() - before) / num


def num_scripted(callers: int, *, rounds: int) -> int:
    return rounds * max(callers, PLACES)


def scripted_fleet(*, core_s: float, rest_s: float) -> Fleet:
    """Texts wait for nobody: as many engines as places, each turn at one of its own."""
    return Fleet(
        cost=StepCost(base_s=TEXT_S),
        limits=EngineLimits(max_sequences=1, kv_tokens=1000, prefill_tokens=1000),
        num_engines=PLACES,
        places=PLACES,
        server_judgment_s=core_s,
        sandbox_slots=len(os.sched_getaffinity(0)),
        sandbox_overhead_s=rest_s,
        routing=Routing.LEAST_LOADED,
    )


def simulated(fleet: Fleet, callers: int, *, rounds: int) -> SimulationResult:
    shape = (TurnShape(new_tokens=1, output_tokens=1, program_s=0.0), TurnShape(new_tokens=1, output_tokens=1))
    num = num_scripted(callers, rounds=rounds)
    return simulate(fleet, Load(callers=callers, num_judgments=num, draw=lambda random: shape))


# The bundled judge in this process.


async def check_embedded(callers: list[int], *, num_judgments: int) -> dict[str, Any]:
    folder = checkpoint_folder(None)
    engine = RecordingEngine.load(folder)
    async with SandboxPool() as pool:
        sandbox = TimedSandbox(pool)
        judge = Judge(engine=engine, tools=[PythonTool(sandbox)], profile=load_profile(folder))
        asked = 0

        async def ask(number: int) -> float:
            nonlocal asked
            asked += 1
            began = perf_counter()
            rollout = await judge.rollout(request(asked), order=(0, 1), session=f"{asked}")
            rollouts.append(rollout)
            return perf_counter() - began

        rollouts: list[Any] = []
        await closed_loop(ask, callers=4, num=8)
        engine.steps.clear()
        await closed_loop(ask, callers=1, num=max(4, num_judgments // 4))
        steps = list(engine.steps)
        for noted in (rollouts, engine.steps, engine.calls_s, sandbox.spans_s, sandbox.queues_s, sandbox.cores_s):
            noted.clear()
        core_before = thread_time()
        seen, seconds = await closed_loop(ask, callers=callers[0], num=num_judgments)
        core_s = (thread_time() - core_before) / len(seen)
        steps += engine.steps
        cost = fitted(steps, seconds=[step.seconds for step in steps])
        program_s = fmean(sandbox.spans_s) if sandbox.spans_s else 0.0
        rest_s = (sum(seen) - sum(engine.calls_s) - sum(sandbox.spans_s) - sum(sandbox.queues_s)) / len(seen)
        fleet = Fleet(
            cost=cost,
            limits=EngineLimits(
                max_sequences=engine.max_batch,
                kv_tokens=65_536,
                prefill_tokens=256,
                block_tokens=1,
                shared_prefix_tokens=round(fmean(rollout.turns[0].completion.num_cached for rollout in rollouts)),
            ),
            num_engines=1,
            places=10**6,
            server_judgment_s=core_s,
            network_s=max(0.0, rest_s - core_s) * len(seen) / len(engine.calls_s),
            sandbox_slots=len(os.sched_getaffinity(0)),
        )
        shapes = [shape_of(rollout, program_s=program_s) for rollout in rollouts]

        alone = replace(
            fleet,
            cost=fitted(steps, seconds=[step.core_s for step in steps]),
            server_judgment_s=core_s,
            network_s=0.0,
        )
        alone_shapes = [shape_of(rollout, program_s=fmean(sandbox.cores_s)) for rollout in rollouts]

        def point(number: int) -> dict[str, Any]:
            load = Load(callers=number, num_judgments=num_judgments * 5, draw=trace(shapes))
            core = simulate(alone, replace(load, draw=trace(alone_shapes)))
            real = sum(step.core_s for step in engine.steps) / num_judgments
            guess = core.engine_use * core.seconds / core.num_judgments
            return {
                **compared(seen, seconds=seconds, result=simulate(fleet, load)),
                "engine_core_s": {
                    "seen": round(real, 5),
                    "simulated": round(guess, 5),
                    "error": round(guess / real - 1, 4),
                },
                "mean_sequences": {
                    "seen": round(fmean(step.num_sequences for step in engine.steps), 2),
                    "simulated": round(core.mean_batch, 2),
                },
            }

        points = {callers[0]: point(callers[0])}
        for number in callers[1:]:
            engine.steps.clear()
            seen, seconds = await closed_loop(ask, callers=number, num=num_judgments)
            points[number] = point(number)
    engine.close()
    return {
        "calibrated_at": callers[0],
        "num_steps": len(steps),
        "step_s": asdict(cost),
        "step_core_s": asdict(alone.cost),
        "program_s": round(program_s, 5),
        "server_judgment_s": round(fleet.server_judgment_s, 5),
        "rest_s_per_call": round(fleet.network_s, 5),
        "tokens": {
            "prompt": round(fmean(shape[0].new_tokens for shape in shapes), 1),
            "output": round(fmean(sum(turn.output_tokens for turn in shape[:-1]) for shape in shapes), 1),
            "observation": round(fmean(turn.new_tokens for shape in shapes for turn in shape[1:-1]), 1),
            "programs": round(fmean(sum(turn.program_s is not None for turn in shape) for shape in shapes), 3),
        },
        "callers": points,
    }


# A server whose model is behind HTTP.


@contextmanager
def remote_model() -> Iterator[None]:
    """A worker with the bundled judge; servers that are started meanwhile ask it, and store nothing."""
    command = [sys.executable, "-c", "from tirjudge.cli import main; main()", "worker", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        os.environ["TIRJUDGE_ENGINE"] = worker.stdout.readline().split()[5]
        os.environ["TIRJUDGE_RECORDS"] = "none"
        try:
            yield
        finally:
            del os.environ["TIRJUDGE_ENGINE"], os.environ["TIRJUDGE_RECORDS"]
            worker.terminate()


async def measure_remote(num_judgments: int) -> dict[str, Any]:
    """Core time of the server's process for a judgment, with the bundled judge in a worker."""
    with remote_model(), started_server(None) as (process, url):
        server = Server(process, port=int(url.rpartition(":")[2]))
        await server.ask_all(8, concurrency=4)
        before = server.cpu_s()
        await server.ask_all(num_judgments, concurrency=8)
        core_ms = (server.cpu_s() - before) / num_judgments * 1000
        server.callers.close()
    return {"num_judgments": num_judgments, "server_core_ms_per_judgment": round(core_ms, 2), "calls_per_judgment": 3}


if __name__ == "__main__":
    typer.run(main)

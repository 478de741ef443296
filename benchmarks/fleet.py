"""Judge with a fleet of worker processes while one worker is added or killed, and compare with an undisturbed run.

    python -m benchmarks.fleet --out benchmarks/results/fleet.json

The workers are `tirjudge worker` processes with the bundled judge. The rollout loop and the sandbox are the same as in
the server. Sampling is greedy. The same requests are judged three times: with two workers, undisturbed; with one
more worker added after 1/3 of the judgments; and with these three workers, one of which is killed by SIGKILL after 1/3
of the judgments.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Annotated, Any

import typer

from benchmarks.reporting import TIRJUDGE, Out, report
from benchmarks.server_process import RunningServer, started
from tests.server.fleet_judging import decided, judge_all, requests
from tirjudge.engines import fleet as fleet_module
from tirjudge.engines.fleet import FleetEngine
from tirjudge.judge import Judge
from tirjudge.model import EngineOptions, bundled_checkpoint
from tirjudge.opening import open_model
from tirjudge.tools.python import PythonTool
from tirjudge_sandbox import SandboxPool


async def measure(*, num: int, concurrency: int, workers: Sequence[RunningServer]) -> dict[str, Any]:
    """Make the three runs with three workers."""
    first, victim, third = workers
    urls, asked, seconds = [first.url, victim.url], requests(num, orders="single"), list[float]()
    async with (
        open_model("vllm", options=EngineOptions(profile=bundled_checkpoint(), urls=lambda: urls)) as model,
        SandboxPool(slots=2) as pool,
    ):
        fleet = model.engine
        assert isinstance(fleet, FleetEngine)
        judge = Judge(engine=fleet, tools=[PythonTool(pool)], profile=model.profile, weights=model.weights)

        async def run(after_a_third: Callable[[], None] = lambda: None) -> tuple[list[Any], list[int]]:
            """Judge all requests, and return the judgments and the number of turns per worker."""
            before = {worker.url: worker.num_turns for worker in fleet.workers}
            began = time.perf_counter()
            judgments = await judge_all(
                judge,
                asked,
                concurrency=concurrency,
                on_end=lambda ended: after_a_third() if ended == num // 3 else None,
            )
            seconds.append(round(time.perf_counter() - began, 1))
            return judgments, [worker.num_turns - before.get(worker.url, 0) for worker in fleet.workers]

        def kill() -> None:
            nonlocal running
            running = fleet.workers[1].num_running
            victim.process.kill()

        running = 0
        even, even_turns = await run()
        added, added_turns = await run(lambda: urls.append(third.url))
        killed, killed_turns = await run(kill)
    same = list(map(decided, even))
    return {
        "judgments": num,
        "concurrency": concurrency,
        "seconds": seconds,
        "undisturbed": {
            "failed": sum(isinstance(judgment, BaseException) for judgment in even),
            "turns_by_worker": even_turns,
            "most_over_least": round(max(even_turns) / min(even_turns), 3),
        },
        "added": _against(added, same) | {"turns_by_worker": added_turns},
        "killed": _against(killed, same) | {"turns_by_worker": killed_turns, "turns_lost_by_the_kill": running},
    }


def _against(judgments: Sequence[Any], same: Sequence[Any]) -> dict[str, int]:
    """Compare judgments with the decisions of the undisturbed run."""
    made = [judgment for judgment in judgments if not isinstance(judgment, BaseException)]
    return {
        "made": len(made),
        "distinct_ids": len({judgment.id for judgment in made}),
        "not_as_undisturbed": sum(decided(a) != b for a, b in zip(judgments, same, strict=True)),
    }


def main(
    judgments: Annotated[int, typer.Option(help="Judgments per run.")] = 200,
    concurrency: Annotated[int, typer.Option(help="Judgments in flight.")] = 8,
    out: Out = None,
) -> None:
    """Measure, and print the result as JSON."""
    fleet_module.WATCH_S = 1.0
    with ExitStack() as stack:
        workers = [stack.enter_context(started(*TIRJUDGE, "worker", "--port", "0")) for _ in range(3)]
        result = asyncio.run(measure(num=judgments, concurrency=concurrency, workers=workers))
    report(result, out)


if __name__ == "__main__":
    typer.run(main)

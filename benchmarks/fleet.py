"""A fleet of real workers while one is killed and one is added: each judgment made once, and as undisturbed.

    python -m benchmarks.fleet --out benchmarks/results/fleet.json

The workers are processes (`tirjudge worker`, the bundled judge), the loop and the sandbox are those that serve, and all is
greedy. Judgments are made three times: by two workers, undisturbed; with a third one added after a third of them; and by
these three, one killed by SIGKILL after a third of them.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from tests.server.fleet_judging import decided, judge_all, requests
from tirjudge.engines import fleet as fleet_module
from tirjudge.engines.fleet import FleetEngine
from tirjudge.judge import Judge
from tirjudge.model import EngineOptions, bundled_checkpoint
from tirjudge.opening import open_model
from tirjudge.tools.python import PythonTool
from tirjudge_sandbox import SandboxPool


@contextmanager
def started(num: int) -> Iterator[list[tuple[subprocess.Popen[str], str]]]:
    """Workers, and where they are."""
    command = [sys.executable, "-c", "from tirjudge.cli import main; main()", "worker", "--port", "0"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(num)]
    try:
        found: list[tuple[subprocess.Popen[str], str]] = []
        for process in processes:
            assert process.stdout is not None
            url = re.search(r"http://[\d.:]+", process.stdout.readline())
            assert url
            found.append((process, url[0]))
        yield found
    finally:
        for process in processes:
            process.kill()
            process.communicate()


async def measure(
    *, num: int, concurrency: int, workers: Sequence[tuple[subprocess.Popen[str], str]]
) -> dict[str, Any]:
    """The three runs, with three workers."""
    (_, first), (victim, second), (_, third) = workers
    urls, asked, seconds = [first, second], requests(num, orders="single"), list[float]()
    async with (
        open_model("vllm", options=EngineOptions(profile=bundled_checkpoint(), urls=lambda: urls)) as model,
        SandboxPool(slots=2) as pool,
    ):
        fleet = model.engine
        assert isinstance(fleet, FleetEngine)
        judge = Judge(engine=fleet, tools=[PythonTool(pool)], profile=model.profile, weights=model.weights)

        async def run(on_end: Callable[[int], None] = lambda num: None) -> tuple[list[Any], dict[str, int]]:
            before = {worker.url: worker.num_turns for worker in fleet.workers}
            began = time.perf_counter()
            judgments = await judge_all(judge, asked, concurrency=concurrency, on_end=on_end)
            seconds.append(round(time.perf_counter() - began, 1))
            turns = {worker.url: worker.num_turns - before.get(worker.url, 0) for worker in fleet.workers}
            return judgments, turns

        even, even_turns = await run()

        added_at: list[int] = []

        def add(num_ended: int) -> None:
            if num_ended == num // 3:
                urls.append(third)
                added_at.append(num_ended)

        added, added_turns = await run(add)
        running = 0

        def kill(num_ended: int) -> None:
            nonlocal running
            if num_ended == num // 3:
                running = fleet.workers[1].num_running
                victim.kill()

        killed, killed_turns = await run(kill)
    same = list(map(decided, even))
    return {
        "judgments": num,
        "concurrency": concurrency,
        "seconds": seconds,
        "undisturbed": {
            "failed": sum(isinstance(judgment, BaseException) for judgment in even),
            "turns_by_worker": list(even_turns.values()),
            "most_over_least": round(max(even_turns.values()) / min(even_turns.values()), 3),
        },
        "added": _against(added, same) | {"turns_by_worker": list(added_turns.values())},
        "killed": _against(killed, same)
        | {"turns_by_worker": list(killed_turns.values()), "turns_lost_by_the_kill": running},
    }


def _against(judgments: Sequence[Any], same: Sequence[Any]) -> dict[str, int]:
    made = [judgment for judgment in judgments if not isinstance(judgment, BaseException)]
    return {
        "made": len(made),
        "distinct_ids": len({judgment.id for judgment in made}),
        "not_as_undisturbed": sum(decided(a) != b for a, b in zip(judgments, same, strict=True)),
    }


def main(
    judgments: Annotated[int, typer.Option(help="Of each run.")] = 200,
    concurrency: Annotated[int, typer.Option(help="Judgments side by side.")] = 8,
    out: Annotated[Path | None, typer.Option(help="File for the result; default: printed only.")] = None,
) -> None:
    """Measure, and print the result as JSON."""
    fleet_module.WATCH_S = 1.0
    with started(3) as workers:
        result = asyncio.run(measure(num=judgments, concurrency=concurrency, workers=workers))
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    text = json.dumps(
        {"command": " ".join(["python -m benchmarks.fleet", *sys.argv[1:]]), "commit": commit or None, **result},
        indent=2,
    )
    print(text)
    if out is not None:
        out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)

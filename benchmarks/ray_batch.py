"""`tirjudge batch --ray` with a scripted model: whether a node may die, and what actors add.

    python benchmarks/ray_batch.py --out benchmarks/results/ray_batch.json

Two nodes are two sets of Ray's processes on one machine, with two logical cores each. The first part judges a file while the
second node is killed (SIGKILL to all of its processes) in the middle: every key must have one result, and the right one. The
second part judges another file with 1, 2 and 4 actors, where the model takes its time for each answer, as one behind a URL
does: what is measured is how well the cluster keeps its judges busy. It also says how fast a model that takes no time is
judged, which is what Ray, and the loop, cost. Exits 1 if a result is missing, wrong or there twice.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import sleep
from typing import Annotated, Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_worker_niceness", "0")
os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])  # for the scripted judge, in Ray's processes
sys.path.insert(0, os.environ["PYTHONPATH"])

import pyarrow.parquet as pq
import ray
import typer
from ray.cluster_utils import Cluster
from rich.console import Console

from tests.harness.batch.scripted_judge import Watched, open_scripted, pair
from tirjudge_harness.batch.local import Here
from tirjudge_harness.batch.on_ray import OnRay
from tirjudge_harness.batch.run import BatchExecutor, run_batch

STORE_BYTES = 200 * 1024 * 1024


def main(
    items: Annotated[int, typer.Option(help="Judged while a node is killed; 0: leave that out.")] = 5_000,
    timed: Annotated[int, typer.Option(help="Judged with each number of actors; 0: leave that out.")] = 1_600,
    delay_ms: Annotated[float, typer.Option(help="What the model takes for an answer.")] = 500.0,
    concurrency: Annotated[int, typer.Option(help="Judgments side by side in an actor.")] = 16,
    out: Annotated[Path | None, typer.Option(help="File for the result; default: printed only.")] = None,
) -> None:
    """Judge, kill, count, measure, and print the result as JSON."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        killed = scaling = None
        pace = {"delay_s": delay_ms / 1000, "concurrency": concurrency}
        if items:
            killed = judge_while_a_node_dies(folder / "killed", num_items=items, **pace)
        if timed:
            scaling = throughput(folder / "scaling", num_items=timed, **pace)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    result = {
        "command": " ".join(["python", *sys.argv]),
        "commit": commit or None,
        "python": platform.python_version(),
        "ray": ray.__version__,
        "num_cores": len(os.sched_getaffinity(0)),
        "load_before": os.getloadavg()[0],
        "delay_ms": delay_ms,
        "concurrency": concurrency,
        "node_killed": killed,
        "throughput": scaling,
    }
    text = json.dumps(result, indent=2)
    print(text)
    if out is not None:
        out.write_text(text + "\n", encoding="utf-8")
    if killed is not None and (killed["missing"] or killed["wrong"] or killed["twice"]):
        raise typer.Exit(1)


def judge_while_a_node_dies(folder: Path, *, num_items: int, delay_s: float, concurrency: int) -> dict[str, Any]:
    """Kill the second node when a third is judged."""
    folder.mkdir(parents=True)
    rows, output = _rows(folder, num_items), folder / "out"
    killed: dict[str, Any] = {}
    with _cluster() as cluster:
        (second,) = cluster.worker_nodes
        on_ray = OnRay(address=cluster.address, min_actors=2, max_actors=2, concurrency=concurrency, num_cpus=1.5)
        judging = Watched(judging=on_ray)

        def kill() -> None:
            while len(judging.times) < num_items // 3:
                sleep(0.02)
            killed.update(results_before=len(judging.times), nodes_before=_num_nodes())
            cluster.remove_node(second, allow_graceful=False)
            while _num_nodes() > 1:  # until Ray has missed enough of its heartbeats
                sleep(0.1)
            killed.update(nodes_after=_num_nodes(), results_when_noticed=len(judging.times))

        threading.Thread(target=kill, daemon=True).start()
        summary = _run(rows, output=output, judging=judging, delay_s=delay_s)
    results = pq.read_table(output / "results", columns=["key", "best"]).to_pylist()
    keys = {row["key"] for row in results}
    return {
        "items": num_items,
        **killed,
        "results": len(results),
        "distinct": len(keys),
        "missing": num_items - len(keys),
        "twice": len(results) - len(keys),
        "wrong": sum(row["best"] != int(row["key"][1:]) % 2 for row in results),
        "rounds": summary["num_rounds"],
        "elapsed_s": summary["elapsed_s"],
    }


def throughput(folder: Path, *, num_items: int, delay_s: float, concurrency: int) -> dict[str, Any]:
    """Results a second: in one process, and with 1, 2 and 4 actors; and with a model that takes no time."""
    folder.mkdir(parents=True)
    rows, measured = _rows(folder, num_items), dict[str, Any]()
    ceiling = concurrency / delay_s
    here = _run(rows, output=folder / "here", judging=Here(concurrency=concurrency), delay_s=delay_s)
    at_once = _run(rows, output=folder / "at-once", judging=Here(concurrency=concurrency), delay_s=0.0)
    with _cluster() as cluster:
        for num_actors in (1, 2, 4):
            judging = OnRay(
                address=cluster.address,
                min_actors=num_actors,
                max_actors=num_actors,
                concurrency=concurrency,
                num_cpus=0.75,
            )
            summary = _run(rows, output=folder / f"{num_actors}", judging=judging, delay_s=delay_s)
            measured[f"actors_{num_actors}"] = _rates(summary, ceiling=num_actors * ceiling)
        judging = OnRay(address=cluster.address, min_actors=2, max_actors=2, concurrency=concurrency, num_cpus=0.75)
        no_time = _run(rows, output=folder / "no-time", judging=judging, delay_s=0.0)
    return {
        "items": num_items,
        "one_process": _rates(here, ceiling=ceiling),
        **measured,
        "no_delay_one_process": _rates(at_once, ceiling=None),
        "no_delay_actors_2": _rates(no_time, ceiling=None),
    }


def _rates(summary: dict[str, Any], *, ceiling: float | None) -> dict[str, Any]:
    """With what was spent on starting the judges; and steadily, over the middle of the results."""
    rates = {name: summary[name] for name in ("elapsed_s", "results_per_s", "steady_per_s")}
    return rates if ceiling is None else rates | {"most_possible_per_s": ceiling}


def _run(rows: Path, *, output: Path, judging: BatchExecutor, delay_s: float) -> dict[str, Any]:
    watched = judging if isinstance(judging, Watched) else Watched(judging=judging)
    opening = partial(open_scripted, delay_s=delay_s)
    running = run_batch(
        [rows], out=output, opening_for=lambda _: opening, judging=watched, console=Console(stderr=True, quiet=True)
    )
    summary = asyncio.run(running)
    times = watched.times
    first, last = len(times) // 5, len(times) * 4 // 5
    return {
        "num_rounds": summary.num_rounds,
        "elapsed_s": round(summary.elapsed_s, 2),
        "results_per_s": round(summary.results_per_s or 0.0, 1),
        "steady_per_s": round((last - first) / (times[last] - times[first]), 1),
    }


@contextmanager
def _cluster():
    """Two nodes of two logical cores."""
    node = {"num_cpus": 2, "object_store_memory": STORE_BYTES}
    cluster = Cluster()
    try:
        cluster.add_node(**node, include_dashboard=False)
        cluster.add_node(**node)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def _num_nodes() -> int:
    return sum(node["Alive"] for node in ray.nodes())


def _rows(folder: Path, num_items: int) -> Path:
    path = folder / "in.jsonl"
    path.write_text("".join(json.dumps(pair(number)) + "\n" for number in range(num_items)), encoding="utf-8")
    return path


if __name__ == "__main__":
    typer.run(main)

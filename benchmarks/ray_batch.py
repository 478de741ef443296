"""Measure `tirjudge batch --ray` with a scripted model: recovery from a killed node, and throughput by number of actors.

    python -m benchmarks.ray_batch --out benchmarks/results/ray_batch.json

Two nodes are two sets of Ray processes on one machine, with two logical cores each. The first part judges a file while the
second node is killed (SIGKILL to all of its processes): every key must have exactly one result, and the correct one. The
second part judges another file with 1, 2 and 4 actors and a model with a fixed latency, which simulates a remote model; this
shows how well the cluster keeps its judges busy. It also judges with a model without latency, which shows the overhead of Ray
and of the loop. Exits with status 1 if a result is missing, wrong or duplicated.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import sleep
from typing import Annotated, Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_worker_niceness", "0")
os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])  # so that Ray's processes find the scripted judge

import pyarrow.parquet as pq
import ray
import typer
from ray.cluster_utils import Cluster
from rich.console import Console

from benchmarks.reporting import Out, report
from tests.harness.batch.scripted_judge import Watched, open_scripted, pair
from tirjudge_harness.batch.local import Here
from tirjudge_harness.batch.on_ray import OnRay
from tirjudge_harness.batch.run import BatchExecutor, run_batch

NODE = {"num_cpus": 2, "object_store_memory": 200 * 1024 * 1024}


def main(
    items: Annotated[int, typer.Option(help="Judgments while a node is killed. 0: skip this part.")] = 5_000,
    timed: Annotated[int, typer.Option(help="Judgments with each number of actors. 0: skip this part.")] = 1_600,
    delay_ms: Annotated[float, typer.Option(help="Latency of the model per completion, in milliseconds.")] = 500.0,
    concurrency: Annotated[int, typer.Option(help="Judgments in flight per actor.")] = 16,
    out: Out = None,
) -> None:
    """Judge, kill, count, measure, and print the result as JSON."""
    pace = {"delay_s": delay_ms / 1000, "concurrency": concurrency}
    with tempfile.TemporaryDirectory() as folder:
        killed = judge_while_a_node_dies(Path(folder, "killed"), num_items=items, **pace) if items else None
        scaling = throughput(Path(folder, "scaling"), num_items=timed, **pace) if timed else None
    head = {"ray": ray.__version__, "delay_ms": delay_ms, "concurrency": concurrency}
    report({**head, "node_killed": killed, "throughput": scaling}, out)
    if killed is not None and (killed["missing"] or killed["wrong"] or killed["twice"]):
        raise typer.Exit(1)


def judge_while_a_node_dies(folder: Path, *, num_items: int, delay_s: float, concurrency: int) -> dict[str, Any]:
    """Judge a file, and kill the second node after a third of the judgments."""
    rows, output = _rows(folder, num_items), folder / "out"
    killed: dict[str, Any] = {}
    with _cluster() as cluster:
        (second,) = cluster.worker_nodes
        judging = Watched(judging=_on_ray(cluster, 2, concurrency=concurrency, num_cpus=1.5))

        def kill() -> None:
            while len(judging.times) < num_items // 3:
                sleep(0.02)
            killed.update(results_before=len(judging.times), nodes_before=_num_nodes())
            cluster.remove_node(second, allow_graceful=False)
            while _num_nodes() > 1:  # until Ray notices the missing heartbeats
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
    """Measure results per second in one process and with 1, 2 and 4 actors, with and without model latency."""
    rows = _rows(folder, num_items)

    def measured(name: str, judging: BatchExecutor, *, delay_s: float, num_judges: int) -> dict[str, Any]:
        """Return the rates over the whole run, including the start of the judges, and over its middle part."""
        summary = _run(rows, output=folder / name, judging=judging, delay_s=delay_s)
        rates = {name: summary[name] for name in ("elapsed_s", "results_per_s", "steady_per_s")}
        return rates | ({"most_possible_per_s": num_judges * concurrency / delay_s} if delay_s else {})

    here = Here(concurrency=concurrency)
    found = {
        "one_process": measured("one_process", here, delay_s=delay_s, num_judges=1),
        "no_delay_one_process": measured("no_delay_one_process", here, delay_s=0.0, num_judges=1),
    }
    with _cluster() as cluster:
        for num, delay in ((1, delay_s), (2, delay_s), (4, delay_s), (2, 0.0)):
            name = f"actors_{num}" if delay else f"no_delay_actors_{num}"
            on_ray = _on_ray(cluster, num, concurrency=concurrency, num_cpus=0.75)
            found[name] = measured(name, on_ray, delay_s=delay, num_judges=num)
    return {"items": num_items, **found}


def _on_ray(cluster: Cluster, num_actors: int, *, concurrency: int, num_cpus: float) -> OnRay:
    return OnRay(
        address=cluster.address,
        min_actors=num_actors,
        max_actors=num_actors,
        concurrency=concurrency,
        num_cpus=num_cpus,
    )


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
def _cluster() -> Iterator[Cluster]:
    """A cluster of two nodes with two logical cores each."""
    cluster = Cluster()
    try:
        cluster.add_node(**NODE, include_dashboard=False)
        cluster.add_node(**NODE)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def _num_nodes() -> int:
    return sum(node["Alive"] for node in ray.nodes())


def _rows(folder: Path, num_items: int) -> Path:
    folder.mkdir(parents=True)
    path = folder / "in.jsonl"
    path.write_text("".join(json.dumps(pair(number)) + "\n" for number in range(num_items)), encoding="utf-8")
    return path


if __name__ == "__main__":
    typer.run(main)

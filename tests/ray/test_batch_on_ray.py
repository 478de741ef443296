"""A batch on a cluster of two nodes: every row has one result, whatever dies."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from tests.harness.batch.scripted_judge import LOST, Watched, open_scripted, pair
from tests.ray.conftest import NODE
from tirjudge_harness.batch.asking import Opening
from tirjudge_harness.batch.local import Here
from tirjudge_harness.batch.run import BatchExecutor, run_batch
from tirjudge_harness.batch.summary import BatchSummary
from tirjudge_harness.options import JudgeOptions, Tools
from tirjudge_harness.run_store import RunStopped


def on_ray(**settings: Any) -> Watched:
    from tirjudge_harness.batch.on_ray import OnRay

    return Watched(judging=OnRay(**{"concurrency": 16, "min_actors": 2, "max_actors": 2, **settings}))


async def judged(
    path: Path, *, out: Path, opening: Opening, judging: BatchExecutor, shown: io.StringIO | None = None
) -> BatchSummary:
    console = Console(file=shown or io.StringIO(), width=400)
    return await run_batch([path], out=out, opening_for=lambda offers_tools: opening, judging=judging, console=console)


def results_in(out: Path) -> dict[str, dict[str, Any]]:
    rows = pq.read_table(out / "results").to_pylist()
    results = {row["key"]: row for row in rows}
    assert len(results) == len(rows), "a key has two results"
    return results


def when(condition: Callable[[], bool], do: Callable[[], object]) -> threading.Thread:
    """Does something in a thread as soon as a condition holds."""
    give_up = threading.Event()

    def watch() -> None:
        while not condition():
            if give_up.wait(0.02):
                return
        do()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


async def test_every_row_has_one_right_result_though_a_node_dies(cluster, write_lines, tmp_path) -> None:
    num_rows = 600
    path, out = write_lines([pair(n) for n in range(num_rows)]), tmp_path / "out"
    judging = on_ray(address=cluster.address, num_cpus=1.5)  # so that each node has room for one actor
    second = cluster.add_node(**NODE)
    killing = when(
        lambda: len(judging.times) >= num_rows // 4, lambda: cluster.remove_node(second, allow_graceful=False)
    )
    summary = await judged(path, out=out, opening=partial(open_scripted, delay_s=0.2), judging=judging)
    killing.join(timeout=1)
    assert not killing.is_alive(), "the node was not killed in time"
    results = results_in(out)
    assert {key: result["best"] for key, result in results.items()} == {f"k{n}": n % 2 for n in range(num_rows)}
    assert (summary.num_new, summary.num_failed) == (num_rows, 0)
    again = await judged(path, out=out, opening=open_scripted, judging=on_ray(address=cluster.address))
    assert (again.num_kept, again.num_new) == (num_rows, 0)


async def test_failures_bad_rows_and_a_judge_that_is_gone_are_as_in_one_process(cluster, write_lines, tmp_path) -> None:
    rows = [pair(0), b"oops\n", pair(1, prompt=LOST), pair(2, tools="auto"), pair(3)]
    shown, out, judging = io.StringIO(), tmp_path / "out", on_ray(address=cluster.address)
    summary = await judged(write_lines(rows), out=out, opening=open_scripted, judging=judging, shown=shown)
    assert (summary.num_bad, summary.num_new, summary.num_failed, summary.num_refused) == (1, 3, 1, 1)
    results = results_in(out)
    assert {key: (row["best"], row["error_kind"]) for key, row in results.items()} == {
        "k0": (0, None),
        "k2": (None, "refused"),
        "k3": (1, None),
    }
    assert "k1: EngineUnavailable" in shown.getvalue()
    gone = write_lines([pair(n, prompt=LOST) for n in range(10, 400)], name="gone.jsonl")
    with pytest.raises(RunStopped, match=r"questions in a row failed|does not answer"):
        await judged(gone, out=out, opening=open_scripted, judging=judging)
    assert results_in(out) == results


async def test_actors_larger_than_any_node_are_waited_for_aloud(cluster, write_lines, tmp_path, caplog) -> None:
    judging = on_ray(address=cluster.address, num_cpus=64)
    running = judged(write_lines([pair(0)]), out=tmp_path / "out", opening=open_scripted, judging=judging)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(running, 5)
    assert "each actor takes 64 cores (--actor-cpus), and no node of the cluster has more than 2: wait" in caplog.text


async def test_a_real_judge_runs_its_programs_in_the_actors_and_its_key_is_in_no_log(
    cluster, write_lines, tmp_path, random_checkpoint
) -> None:
    path = write_lines([pair(n, tools="auto", max_tool_calls=1) for n in range(6)])
    secret = "sk-which-nobody-may-see"
    here, there = tmp_path / "here", tmp_path / "there"
    options = JudgeOptions(model=random_checkpoint, chat_api_key=secret, slots=1)
    opening = partial(options.opened, tools=Tools.AUTO)
    one_actor = on_ray(address=cluster.address, min_actors=1, max_actors=1)
    await judged(path, out=there, opening=opening, judging=one_actor)
    await judged(path, out=here, opening=opening, judging=Here(concurrency=4))
    told = [{key: row["probabilities"] for key, row in results_in(out).items()} for out in (here, there)]
    assert told[0].keys() == told[1].keys() == {f"k{n}" for n in range(6)}
    for key, probabilities in told[0].items():
        assert told[1][key] == pytest.approx(probabilities, abs=1e-4)
    assert files_with(secret, folder=Path(cluster.head_node.get_logs_dir_path())) == []


def files_with(text: str, *, folder: Path) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path for path in files if text.encode() in path.read_bytes()]

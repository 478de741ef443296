"""Batch runs on a cluster: every row has exactly one result, also after the death of a node."""

from __future__ import annotations

import asyncio
import io
import re
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from tests.harness.batch.scripted_judge import LOST, pair
from tests.ray.conftest import RayCluster
from tests.ray.driver import Driver
from tests.waiting import until
from tirjudge_harness.batch.local import Here
from tirjudge_harness.batch.run import run_batch
from tirjudge_harness.options import JudgeOptions, Tools

pytestmark = [
    pytest.mark.slow,
    pytest.mark.ray,
    # Ray may end a driver whose raylet does not answer in time, on a loaded machine. The tested code is not the cause.
    pytest.mark.flaky(reruns=1, only_rerun="DriverEndedByRay"),
]


def results_in(out: Path) -> dict[str, dict[str, Any]]:
    rows = pq.read_table(out / "results").to_pylist()
    results = {row["key"]: row for row in rows}
    assert len(results) == len(rows), "a key has two results"
    return results


async def test_every_row_has_one_right_result_after_the_death_of_a_node(
    cluster: RayCluster, driver: Driver, write_lines, tmp_path: Path
) -> None:
    num_rows = 600
    rows, out, progress = write_lines([pair(n) for n in range(num_rows)]), tmp_path / "out", tmp_path / "progress"
    asked: dict[str, Any] = {"rows": str(rows), "out": str(out), "address": cluster.address}
    cluster.add_node()
    # With 1.5 cores per actor, each node has room for one actor.
    watching = {"delay_s": 0.2, "progress": str(progress), "progress_after": num_rows // 4, "num_cpus": 1.5}
    driver.start("tests.ray.batch_jobs:judge", **asked, **watching)
    await until(lambda: progress.exists() or not driver.is_running, at_most_s=240)
    cluster.kill_node()
    summary = driver.result()
    results = results_in(out)
    assert {key: result["best"] for key, result in results.items()} == {f"k{n}": n % 2 for n in range(num_rows)}
    assert (summary["num_new"], summary["num_failed"]) == (num_rows, 0)
    again = driver.call("tests.ray.batch_jobs:judge", **asked)
    assert (again["num_kept"], again["num_new"]) == (num_rows, 0)


def test_failures_invalid_rows_and_a_lost_judge_are_handled_as_in_one_process(
    cluster: RayCluster, driver: Driver, write_lines, tmp_path: Path
) -> None:
    rows = write_lines([pair(0), b"oops\n", pair(1, prompt=LOST), pair(2, tools="auto"), pair(3)])
    out = tmp_path / "out"
    asked = {"out": str(out), "address": cluster.address}
    summary = driver.call("tests.ray.batch_jobs:judge", rows=str(rows), **asked)
    assert [summary[name] for name in ("num_bad", "num_new", "num_failed", "num_refused")] == [1, 3, 1, 1]
    results = results_in(out)
    assert {key: (row["best"], row["error_kind"]) for key, row in results.items()} == {
        "k0": (0, None),
        "k2": (None, "refused"),
        "k3": (1, None),
    }
    assert "k1: EngineUnavailable" in summary["shown"]
    lost = write_lines([pair(n, prompt=LOST) for n in range(10, 400)], name="lost.jsonl")
    stopped = driver.call("tests.ray.batch_jobs:judge", rows=str(lost), **asked)
    assert re.search(r"in a row|does not answer", stopped["stopped"])
    assert results_in(out) == results


def test_a_warning_is_logged_if_no_node_has_room_for_an_actor(
    cluster: RayCluster, driver: Driver, write_lines, tmp_path: Path
) -> None:
    assert driver.call(
        "tests.ray.batch_jobs:wait_for_warning",
        rows=str(write_lines([pair(0)])),
        out=str(tmp_path / "out"),
        text="--actor-cpus",
        address=cluster.address,
        num_cpus=64,
    )


def test_actors_judge_like_one_process_and_no_log_has_the_api_key(
    cluster: RayCluster, driver: Driver, write_lines, tmp_path: Path, random_checkpoint: Path
) -> None:
    path = write_lines([pair(n, tools="auto", max_tool_calls=1) for n in range(6)])
    secret = "sk-must-not-be-logged"
    on_ray, local = tmp_path / "on_ray", tmp_path / "local"
    driver.call(
        "tests.ray.batch_jobs:judge_with_model",
        rows=str(path),
        out=str(on_ray),
        model=str(random_checkpoint),
        api_key=secret,
        address=cluster.address,
    )
    options = JudgeOptions(model=random_checkpoint, chat_api_key=secret, slots=1)
    opening = partial(options.opened, tools=Tools.AUTO)
    asyncio.run(
        run_batch(
            [path],
            out=local,
            opening_for=lambda offers_tools: opening,
            judging=Here(concurrency=4),
            console=Console(file=io.StringIO()),
        )
    )
    first, second = ({key: row["probabilities"] for key, row in results_in(out).items()} for out in (local, on_ray))
    assert first.keys() == second.keys() == {f"k{n}" for n in range(6)}
    for key, probabilities in first.items():
        assert second[key] == pytest.approx(probabilities, abs=1e-4)
    assert files_with(secret, folder=cluster.logs) == []


def files_with(text: str, *, folder: Path) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path for path in files if text.encode() in path.read_bytes()]

"""`tirjudge batch` with a random model and a real sandbox."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.harness.batch.scripted_judge import pair
from tests.harness.commands import run_command, start_command, wait_until
from tests.processes import descendants

Command = Callable[..., list[str]]


@pytest.fixture
def command(random_checkpoint: Path, tmp_path: Path) -> Command:
    def make(path: Path, *options: str) -> list[str]:
        out = str(tmp_path / "out")
        return ["batch", str(path), "--out", out, "--model", str(random_checkpoint), "--json", *options]

    return make


def keys_in(out: Path) -> list[str]:
    return sorted(pq.read_table(out / "results", columns=["key"])["key"].to_pylist())


def start_judging(arguments: list[str]) -> subprocess.Popen[str]:
    """Start a batch, and wait until it has a sandbox, so that it judges next."""
    process = start_command(arguments)
    wait_until(lambda: descendants(process.pid, containing="tirjudge_sandbox"), process=process)
    return process


def test_a_folder_is_judged_and_summarized(command: Command, write_lines, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write_lines([pair(n, tools="auto") for n in range(4)], name="in/a.jsonl")
    path = write_lines([pair(4), b"oops\n"], name="in/b.jsonl.gz")
    done = run_command(command(path.parent))
    assert done.status == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["num_rows"], summary["num_new"], summary["num_bad"]) == (6, 5, 1)
    assert "b.jsonl.gz, row 2: not JSON" in done.stderr
    assert keys_in(tmp_path / "out") == [f"k{n}" for n in range(5)]


@pytest.mark.slow
def test_a_killed_run_is_resumed(command: Command, write_lines, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [pair(n, votes=64, tools="auto") for n in range(40)]
    path, results = write_lines(rows), tmp_path / "out" / "results"
    slow = command(path, "--concurrency", "2")
    assert json.loads(run_command(command(path, "--limit", "3")).stdout)["num_new"] == 3
    process = start_judging(slow)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    kept = {path.name: path.read_bytes() for path in results.glob("part-*")}
    done = run_command(slow)
    assert done.status == 0, done.stderr
    assert {name: (results / name).read_bytes() for name in kept} == kept
    assert keys_in(tmp_path / "out") == sorted(f"k{n}" for n in range(40))


@pytest.mark.slow
def test_an_interrupted_run_prints_how_to_continue(command: Command, write_lines, tmp_path: Path) -> None:
    slow = command(write_lines([pair(n, votes=64, tools="auto") for n in range(60)]), "--concurrency", "1")
    process = start_judging(slow)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Run the same command again to continue" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--actors", "2"], "--ray-address, --actors and --actor-cpus need --ray"),
        (["--actor-cpus", "4"], "--actors and --actor-cpus need --ray"),
        (["--ray", "--actors", "4:2"], "--actors: expected a number such as 4, or a range such as 2:16, got '4:2'"),
        (["--chat-url", "http://127.0.0.1:9", "--chat-model", "m"], "--model cannot be combined with --chat-url"),
    ],
)
def test_conflicting_options_are_reported_in_one_line(
    command: Command, write_lines, options: list[str], says: str
) -> None:
    refused = run_command(command(write_lines([pair(0)]), *options))
    assert refused.status == 2
    assert says in refused.stderr
    assert refused.stderr.count("\n") == 1

"""`tirjudge batch` as a process, with a random model and a real sandbox."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.harness.batch.scripted_judge import pair
from tests.processes import descendants

MAIN = [sys.executable, "-c", "from tirjudge.cli import main; main()"]
Command = Callable[..., list[str]]


@pytest.fixture
def command(random_checkpoint: Path, tmp_path: Path) -> Command:
    def make(path: Path, *options: str) -> list[str]:
        out = str(tmp_path / "out")
        return [*MAIN, "batch", str(path), "--out", out, "--model", str(random_checkpoint), "--json", *options]

    return make


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def keys_in(out: Path) -> list[str]:
    return sorted(pq.read_table(out / "results", columns=["key"])["key"].to_pylist())


def wait_until_judging(process: subprocess.Popen[str]) -> None:
    """Its sandbox is there: what is left is to judge."""
    while not descendants(process.pid, containing="tirjudge_sandbox"):
        assert process.poll() is None
        time.sleep(0.01)


def test_a_folder_is_judged_and_summed_up(command: Command, write_lines, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write_lines([pair(n, tools="auto") for n in range(4)], name="in/a.jsonl")
    path = write_lines([pair(4), b"oops\n"], name="in/b.jsonl.gz")
    done = run(command(path.parent))
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["num_rows"], summary["num_new"], summary["num_bad"]) == (6, 5, 1)
    assert "b.jsonl.gz, row 2: not JSON" in done.stderr
    assert keys_in(tmp_path / "out") == [f"k{n}" for n in range(5)]


def test_a_killed_run_goes_on_where_it_stopped(command: Command, write_lines, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [pair(n, votes=64, tools="auto") for n in range(40)]
    path, results = write_lines(rows), tmp_path / "out" / "results"
    slow = command(path, "--concurrency", "2")
    assert json.loads(run(command(path, "--limit", "3")).stdout)["num_new"] == 3
    process = subprocess.Popen(slow, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_until_judging(process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    kept = {path.name: path.read_bytes() for path in results.glob("part-*")}
    done = run(slow)
    assert done.returncode == 0, done.stderr
    assert {name: (results / name).read_bytes() for name in kept} == kept
    assert keys_in(tmp_path / "out") == sorted(f"k{n}" for n in range(40))


def test_an_interrupted_run_keeps_what_it_has(command: Command, write_lines, tmp_path: Path) -> None:
    slow = command(write_lines([pair(n, votes=64, tools="auto") for n in range(60)]), "--concurrency", "1")
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(slow, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, previous)
    wait_until_judging(process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "The same command goes on from" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--actors", "2"], "--actors or --actor-cpus given without --ray"),
        (["--actor-cpus", "4"], "--actor-cpus given without --ray"),
        (["--ray", "--actors", "4:2"], "--actors: '4:2' given"),
        (["--chat-url", "http://127.0.0.1:9", "--chat-model", "m"], "--model given with --chat-url"),
    ],
)
def test_options_that_do_not_go_together_are_one_line(
    command: Command, write_lines, options: list[str], says: str
) -> None:
    refused = run(command(write_lines([pair(0)]), *options))
    assert refused.returncode == 2
    assert says in refused.stderr
    assert refused.stderr.count("\n") == 1

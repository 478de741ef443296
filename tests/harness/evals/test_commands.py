"""`tirjudge evals run`, `list` and `show`, against a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import run_command
from tests.harness.evals.exports import CHECKS
from tests.servers import serve_in_thread
from tirjudge.client import Client
from tirjudge_harness.evals.server import EvalsServer


@pytest.fixture
def url(judge_with_evals: Any) -> Iterator[str]:
    with serve_in_thread(judge_with_evals, lifespan="on") as found:
        yield found


@pytest.fixture
def eval_id(url: str) -> str:
    config = {"type": "custom", "item_schema": {"type": "object"}, "include_sample_schema": True}
    with Client(url) as client:
        definition = {"name": "sums", "data_source_config": config, "testing_criteria": CHECKS[:2]}
        return EvalsServer(client).create(definition).id


def rows_file(folder: Path, outputs: list[str]) -> Path:
    path = folder / f"rows-{len(outputs)}.jsonl"
    rows = [
        {"item": {"answer": str(number), "id": number}, "sample": {"output_text": text}}
        for number, text in enumerate(outputs)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_a_run_prints_shares_with_intervals(url: str, eval_id: str, tmp_path: Path) -> None:
    data = rows_file(tmp_path, ["0", "1", "2", "x"])
    done = run_command("evals", "run", eval_id, "--data", data, "--name", "first", "--url", url)
    assert done.returncode == 0, done.stderr
    # Wilson's interval of 3 of 4 is 30.1 % to 95.4 %.
    assert "75.0 (30.1 to 95.4)" in done.stdout
    assert "Exact match" in done.stdout
    assert f"tirjudge evals show {eval_id} evalrun_" in done.stderr
    low = run_command("evals", "run", eval_id, "--data", data, "--min-pass-rate", "0.8", "--url", url)
    assert low.returncode == 1
    assert "3 of 4 rows pass, less than 0.8" in low.stderr


@pytest.mark.slow
def test_runs_are_listed_shown_and_compared(url: str, eval_id: str, tmp_path: Path) -> None:
    for outputs in (["0", "x", "x", "x", "x", "5"], ["0", "1", "2", "3", "4", "y"]):
        assert (
            run_command("evals", "run", eval_id, "--data", rows_file(tmp_path, outputs), "--url", url).returncode == 0
        )
    assert eval_id in run_command("evals", "list", "--url", url).stdout
    listed = run_command("evals", "list", eval_id, "--format", "csv", "--url", url).stdout.splitlines()
    second, first = (line.split(",")[0] for line in listed[1:])
    latest = json.loads(run_command("evals", "show", eval_id, "--json", "--url", url).stdout)
    assert latest["id"] == second
    assert latest["result_counts"] == {"total": 6, "passed": 5, "failed": 1, "errored": 0}
    table = run_command("evals", "show", eval_id, first, "--format", "json", "--url", url).stdout
    assert '"all criteria"' in table
    failed = run_command("evals", "show", eval_id, second, "--failed", "--format", "csv", "--url", url).stdout
    assert failed.splitlines()[1].startswith('5,fail,"Exact match, Mentions it",y')
    against = run_command("evals", "show", eval_id, second, "--against", first, "--format", "csv", "--url", url)
    header, *lines = against.stdout.splitlines()
    found = dict(zip(header.split(","), lines[0].split(","), strict=True))
    # 4 rows better and 1 worse: of 2^5 outcomes, 12 are at most as likely.
    assert (found["criterion"], found["rows"], found["better"], found["worse"]) == ("all criteria", "6", "4", "1")
    assert float(found["p"]) == 0.375


@pytest.mark.slow
def test_invalid_uses_are_refused(url: str, eval_id: str, tmp_path: Path) -> None:
    data = rows_file(tmp_path, ["0"])
    messages = tmp_path / "messages.json"
    messages.write_text('{"role": "user"}')
    run = ("evals", "run", eval_id, "--url", url)
    for arguments, problem in (
        ((*run, "--data", data, "--model", "small"), "only one given"),
        ((*run, "--data", data, "--messages", messages, "--model", "small"), "expected: a list of messages"),
        ((*run, "--data", tmp_path / "none.jsonl"), "cannot be read"),
        ((*run, "--data", data, "--no-wait", "--min-pass-rate", "0.5"), "remove --no-wait"),
        (("evals", "show", eval_id, "--url", url), "has no run"),
        (("evals", "show", eval_id, "--json", "--failed", "--url", url), "--json prints the run"),
        (("evals", "import", data, "--rename-model", "a", "--url", url), "no eval found"),
        (("evals", "list", "eval_none", "--url", url), "not found"),
    ):
        done = run_command(*arguments)
        assert done.returncode != 0
        assert problem in " ".join(done.stderr.split()), done.stderr


def test_a_failed_run_is_an_error(url: str, eval_id: str, tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text("no JSON")
    done = run_command("evals", "run", eval_id, "--data", data, "--url", url)
    assert done.returncode == 1
    assert "the run is failed" in done.stderr
    assert "line 1: not JSON" in " ".join(done.stdout.split())

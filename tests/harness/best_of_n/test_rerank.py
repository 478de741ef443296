"""`tirjudge rerank`: one output line per input row, with failures, resumption and kills."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.command_line import run_command
from tests.harness.best_of_n.longer import LongerIsBetter
from tests.waiting import until
from tirjudge_harness.best_of_n.rerank import Reranking, rerank_file
from tirjudge_harness.best_of_n.selecting import Choosing
from tirjudge_harness.items import InputError

Write = Callable[..., Path]
MAIN = [sys.executable, "-c", "from tirjudge.cli import main; main()"]

ROWS: list[dict[str, Any]] = [
    {"id": "x", "prompt": "1", "responses": ["a", "a b c", "a b"]},
    {"id": 7, "prompt": "2", "responses": ["a b", "a"]},
    {"id": "one", "prompt": "3", "responses": ["alone"]},
]


async def rerank(
    path: Path,
    out: Path,
    judge: LongerIsBetter,
    console: Console,
    *,
    method: str = "knockout",
    limit: int | None = None,
) -> Reranking:
    return await rerank_file(
        path,
        out=out,
        method=method,
        opening=judge.opening(),
        choosing=Choosing(judging={"tools": "off"}),
        limit=limit,
        concurrency=4,
        console=console,
    )


def lines_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text().splitlines()]


async def test_the_output_has_one_line_per_row_in_order(write_lines: Write, tmp_path: Path, quiet: Console) -> None:
    out = tmp_path / "out.jsonl"
    done = await rerank(write_lines(ROWS), out, LongerIsBetter(), quiet)
    assert (done.num_lines, done.num_failed, done.num_calls) == (3, 0, 3)
    assert [(line["id"], line["best"], line["order"]) for line in lines_of(out)] == [
        ("x", 1, lines_of(out)[0]["order"]),
        (7, 0, [0, 1]),
        ("one", 0, [0]),
    ]
    assert lines_of(out)[0]["order"][0] == 1
    assert lines_of(out)[1]["scores"] == [1.0, 0.0]


async def test_a_different_method_rewrites_the_output_and_makes_only_missing_judgments(
    write_lines: Write, tmp_path: Path, quiet: Console
) -> None:
    path, out, judge = write_lines(ROWS), tmp_path / "out.jsonl", LongerIsBetter()
    await rerank(path, out, judge, quiet)
    again = await rerank(path, out, judge, quiet)
    assert again.num_calls == 0
    other = await rerank(path, out, judge, quiet, method="pointwise")
    assert other.num_calls == 6
    assert [line["scores"] for line in lines_of(out)] == [[1.0, 3.0, 2.0], [2.0, 1.0], [1.0]]


async def test_a_failed_row_has_no_line_until_it_is_judged(write_lines: Write, tmp_path: Path, quiet: Console) -> None:
    path, out, judge = write_lines(ROWS), tmp_path / "out.jsonl", LongerIsBetter(fails_after=2)
    assert (await rerank(path, out, judge, quiet)).num_failed == 1
    assert len(lines_of(out)) == 2
    judge.fails_after = None
    assert (await rerank(path, out, judge, quiet)).num_calls == 1
    assert [line["id"] for line in lines_of(out)] == ["x", 7, "one"]


async def test_a_file_of_the_user_is_not_overwritten(write_lines: Write, quiet: Console) -> None:
    path = write_lines(ROWS)
    before = path.read_bytes()
    with pytest.raises(InputError, match="exists and was not written by `tirjudge rerank`"):
        await rerank(path, path, LongerIsBetter(), quiet)
    assert path.read_bytes() == before


async def test_a_folder_as_output_is_refused(
    write_lines: Write, tmp_path: Path, quiet: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_lines(ROWS)
    monkeypatch.chdir(tmp_path)
    for out in (Path("."), tmp_path):
        with pytest.raises(InputError, match="is a folder; give the path of a file to write"):
            await rerank(path, out, LongerIsBetter(), quiet)


async def test_a_vote_needs_answers_in_every_row(write_lines: Write, tmp_path: Path, quiet: Console) -> None:
    rows = [ROWS[0] | {"answers": ["1", "2", "2"]}, ROWS[1]]
    with pytest.raises(InputError, match="the answers of 7 are unknown; add a column `answers` to"):
        await rerank(write_lines(rows), tmp_path / "o", LongerIsBetter(), quiet, method="verified_vote")


@pytest.mark.slow
async def test_a_killed_knockout_resumes_in_the_middle_of_its_rounds(
    write_lines: Write, random_checkpoint: Path, tmp_path: Path
) -> None:
    rows = [{"id": n, "prompt": f"p{n}", "responses": [f"answer {n}.{place}" for place in range(8)]} for n in range(8)]
    path = write_lines(rows)

    def command(out: Path) -> list[str]:
        options = ["--model", str(random_checkpoint), "--tools", "off", "--concurrency", "2", "--json"]
        return [*MAIN, "rerank", str(path), "--out", str(out), *options]

    def finished(out: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command(out), capture_output=True, text=True, timeout=300)

    out = tmp_path / "out.jsonl"
    journal = tmp_path / "out.jsonl.judgments" / "journal.jsonl"
    process = await asyncio.create_subprocess_exec(*command(out), stdout=DEVNULL, stderr=DEVNULL)
    try:
        await until(lambda: journal.exists() and journal.read_bytes().count(b"\n") >= 5, at_most_s=120)
    finally:
        process.kill()
        await process.wait()
    kept = journal.read_bytes().rpartition(b"\n")[0] + b"\n"
    assert not out.exists()
    assert kept.count(b"\n") < 56
    done = finished(out)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["num_calls"] == 56 - kept.count(b"\n")  # 7 comparisons for each of 8 problems
    assert journal.read_bytes().startswith(kept)
    undisturbed = tmp_path / "other.jsonl"
    assert finished(undisturbed).returncode == 0
    assert out.read_bytes() == undisturbed.read_bytes()


def test_a_user_error_is_one_line(write_lines: Write, tmp_path: Path) -> None:
    refused = run_command("rerank", tmp_path / "gone.jsonl", "--out", tmp_path / "out.jsonl")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "gone.jsonl: cannot be read" in refused.stderr
    without_tools = ["--method", "verified_vote", "--tools", "off"]
    refused = run_command("rerank", write_lines(ROWS), "--out", tmp_path / "o", *without_tools)
    assert refused.returncode == 2
    assert "verified_vote counts answers that programs verified; --tools off runs none" in refused.stderr


def test_invalid_rows_are_counted_and_too_many_stop_both_commands(
    write_lines: Write, random_checkpoint: Path, tmp_path: Path
) -> None:
    rows = [{"id": n, "prompt": f"p{n}" * (n > 0), "responses": ["a", "b"], "label": 0} for n in range(4)]
    path, judge = write_lines(rows), ["--model", random_checkpoint, "--tools", "off"]
    for command in (["rerank"], ["bench", "best-of-n"]):
        out = tmp_path / command[-1]
        refused = run_command(*command, path, "--out", out, *judge)
        assert refused.returncode == 2
        assert "row 1: prompt: the cell is empty" in refused.stderr
        assert "1 of 4 rows are invalid, more than --max-error-rate 0.1" in refused.stderr
        assert not out.exists()
        done = run_command(*command, path, "--out", out, *judge, "--max-error-rate", "0.25")
        assert done.returncode == 0, done.stderr
        assert "1 invalid row left out" in done.stdout


def test_best_of_n_prints_its_results_as_json(write_lines: Write, random_checkpoint: Path, tmp_path: Path) -> None:
    rows = [{"id": n, "prompt": f"p{n}", "responses": ["a", "b"], "correct": [n % 2 == 0, True]} for n in range(4)]
    options = ["--model", random_checkpoint, "--tools", "off", "--policy", "toy", "--json"]
    done = run_command("bench", "best-of-n", write_lines(rows), "--out", tmp_path / "run", *options)
    assert done.returncode == 0, done.stderr
    results = {result["strategy"]: result for result in json.loads(done.stdout)}
    assert [results[name]["solved"] for name in ("first", "pass@1", "oracle")] == [2.0, 3.0, 4.0]
    assert results["knockout"]["num_calls"] == 4
    assert (results["knockout"]["dataset"], results["knockout"]["policy"]) == ("in", "toy")

"""`tirjudge bench` with a random model."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.commands import MAIN, run_command, start_command, wait_until
from tirjudge_harness.run import load_run

Command = Callable[..., list[str]]


@pytest.fixture
def bench(random_checkpoint: Path, tmp_path: Path) -> Command:
    """Returns the arguments of a run on LLMBar rows with the random model, without tools."""

    def make(*options: str, out: str = "run", names: tuple[str, ...] = ("llmbar",)) -> list[str]:
        paths = ["--data", str(tmp_path / "rows"), "--out", str(tmp_path / out)]
        judge = ["--model", str(random_checkpoint), "--tools", "off", "--json"]
        return ["bench", "run", *names, *paths, *judge, *options]

    return make


def write_rows(tmp_path: Path, *, num: int, broken: list[Any] | None = None) -> None:
    """Write one file per set, in the layout of LLMBar."""
    (tmp_path / "rows").mkdir(parents=True, exist_ok=True)
    for name in ("natural", "neighbor", "gptinst", "gptout", "manual"):
        rows: list[Any] = [
            {"input": f"{name} {n}", "output_1": f"one {n}", "output_2": f"two {n}", "label": 1 + n % 2}
            for n in range(num)
        ]
        rows += (broken or []) if name == "natural" else []
        (tmp_path / "rows" / f"{name}.json").write_text(json.dumps(rows))


def num_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def decisions_in(folder: Path) -> dict[str, list[Any]]:
    """Return the decisions by example, without probabilities, whose last digits depend on the batch."""
    return {
        one.outline.id: [(each.shown, each.best, each.tied, each.score, each.forced) for each in one.decisions]
        for one in load_run(folder).judged
    }


def test_run_prints_metrics_with_intervals(bench: Command, tmp_path: Path) -> None:
    write_rows(tmp_path, num=4)
    done = run_command(bench())
    assert done.status == 0, done.stderr
    (result,) = json.loads(done.stdout)
    assert result["benchmark"] == "llmbar"
    assert [figure["name"] for figure in result["figures"]][:2] == ["average", "natural"]
    assert (result["counts"]["examples"], result["counts"]["marks"], result["num_missing"]) == (20, 20, 0)
    low, high = result["figures"][0]["interval"]
    assert 0 <= low <= result["figures"][0]["value"] <= high <= 1
    assert result["manifest"]["judge"]["model"] == "random"


@pytest.mark.slow
def test_a_run_with_a_minimum_confidence_shows_its_coverage(bench: Command, tmp_path: Path) -> None:
    write_rows(tmp_path, num=2)
    (result,) = json.loads(run_command(bench("--min-confidence", "1")).stdout)
    assert (result["selective"]["num_items"], result["selective"]["coverage"]) == (10, 0.0)
    assert result["counts"]["no_verdict"] == 10
    assert result["manifest"]["min_confidence"] == 1.0
    (plain,) = json.loads(run_command(bench(out="plain")).stdout)
    assert plain["selective"]["coverage"] == 1.0
    assert plain["selective"]["by_basis"]["guessed"]["share"] == 1.0  # the verdicts are forced
    assert not {"require", "min_confidence"} & plain["manifest"].keys()
    table = run_command(["bench", "report", str(tmp_path / "plain")]).stdout
    assert "coverage (comparisons with a verdict)" in table
    assert "verdicts guessed" in table


@pytest.mark.slow
def test_a_run_is_not_continued_with_other_functions(bench: Command, tmp_path: Path) -> None:
    write_rows(tmp_path, num=1)
    (result,) = json.loads(run_command(bench("--tools", "auto", "--tool", "run")).stdout)
    assert result["manifest"]["judge"]["functions"] == {"run": "1", "run_many": "1", "tests": "1"}
    assert "tools auto with run, run_many, tests" in run_command(["bench", "report", str(tmp_path / "run")]).stdout
    refused = run_command(bench("--tools", "auto"))
    assert refused.status == 2
    assert "judge.functions was" in refused.stderr
    (plain,) = json.loads(run_command(bench("--tools", "auto", out="plain")).stdout)
    assert "functions" not in plain["manifest"]["judge"]


@pytest.mark.slow
def test_a_run_from_before_the_basis_was_recorded_has_verdicts_of_unknown_basis(bench: Command, tmp_path: Path) -> None:
    write_rows(tmp_path, num=2)
    assert run_command(bench()).status == 0
    journal = tmp_path / "run" / "journal.jsonl"
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    for line in lines:
        del line["judgment"]["verdict"]["basis"]
        for rollout in line["judgment"]["rollouts"]:
            del rollout["verdict"]["basis"]
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (result,) = json.loads(run_command(bench()).stdout)
    assert result["selective"]["by_basis"]["unknown"]["share"] == 1.0
    assert "verdicts of unknown basis" in run_command(["bench", "report", str(tmp_path / "run")]).stdout


def test_run_prints_a_table_by_default(bench: Command, tmp_path: Path) -> None:
    write_rows(tmp_path, num=2)
    done = run_command([option for option in bench() if option != "--json"])
    assert done.status == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0] == ["LLMBar"]
    assert lines[1] == ["%", "(95", "%)", "forced", "as", "none,", "%", "n"]  # the random model gives no verdict
    assert lines[2][0] == "average"
    assert lines[2][-1] == "10"


def test_invalid_rows_are_reported_counted_and_skipped(bench: Command, tmp_path: Path) -> None:
    broken = [{"input": "x", "output_1": "a", "output_2": "b", "label": 3}] * 25
    write_rows(tmp_path, num=2, broken=[*broken, "no row"])
    refused = run_command(bench())
    assert refused.status == 2
    assert refused.stderr.splitlines()[-1].startswith(
        "tirjudge bench: 26 of 36 rows are invalid, more than --max-error-rate 0.1"
    )
    assert not (tmp_path / "run").exists()
    done = run_command(bench("--max-error-rate", "0.75"))
    assert done.status == 0, done.stderr
    (result,) = json.loads(done.stdout)
    assert (result["counts"]["examples"], result["manifest"]["data"]["num_bad_rows"]) == (10, 26)
    named = [line for line in done.stderr.splitlines() if "natural.json: row " in line]
    assert len(named) == 20
    assert "row 3: label: expected 1 or 2, got 3" in named[0]
    assert "6 more invalid rows of llmbar" in done.stderr


@pytest.mark.parametrize(
    ("content", "says"),
    [("", "natural.json"), ("[]", "natural.json"), ('[{"input": "x", "label": 1}]', "output_1")],
)
def test_unusable_files_are_reported_in_one_line(bench: Command, tmp_path: Path, content: str, says: str) -> None:
    write_rows(tmp_path, num=2)
    (tmp_path / "rows" / "natural.json").write_text(content)
    done = run_command(bench())
    assert done.status == 2
    assert done.stderr.startswith("tirjudge bench: ")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_killed_run_is_resumed_with_the_same_result(bench: Command, tmp_path: Path) -> None:
    write_rows(tmp_path, num=12)
    slow = ("--protocol", "votes=16", "--concurrency", "3")
    journal = tmp_path / "run" / "journal.jsonl"
    process = start_command(bench(*slow))
    wait_until(lambda: num_lines(journal) >= 10, process=process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    kept = journal.read_bytes().rpartition(b"\n")[0] + b"\n"
    assert 10 <= kept.count(b"\n") < 60
    with journal.open("ab") as file:
        file.write(b'{"key": "torn')
    assert run_command(bench(*slow)).status == 0
    assert journal.read_bytes().startswith(kept)
    assert journal.read_bytes().count(b"\n") == 60
    assert run_command(bench(*slow, out="undisturbed")).status == 0
    assert decisions_in(tmp_path / "run") == decisions_in(tmp_path / "undisturbed")


def test_a_different_configuration_is_rejected_in_one_line(bench: Command, tmp_path: Path) -> None:
    write_rows(tmp_path, num=1)
    assert run_command(bench()).status == 0
    refused = run_command(bench("--seed", "5"))
    assert refused.status == 2
    assert "(seed was 0 and is now 5); give another --out, or the options of that run" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_several_benchmarks_have_one_folder_each(bench: Command, tmp_path: Path) -> None:
    write_rows(tmp_path, num=1)
    (tmp_path / "rows").rename(tmp_path / "llmbar")
    (tmp_path / "rows").mkdir()
    (tmp_path / "llmbar").rename(tmp_path / "rows" / "llmbar")
    line = {"id": "a", "prompt": "p", "responses": ["one", "two"], "label": 0, "subset": "x", "meta": {}}
    (tmp_path / "rows" / "judgebench.jsonl").write_text(json.dumps(line | {"meta": {"source": "livebench-math"}}))
    done = run_command(bench(names=("llmbar", "judgebench")))
    assert done.status == 0, done.stderr
    assert [result["benchmark"] for result in json.loads(done.stdout)] == ["llmbar", "judgebench"]
    assert len(load_run(tmp_path / "run" / "llmbar").judged) == 5
    assert len(load_run(tmp_path / "run" / "judgebench").judged) == 1


@pytest.mark.slow
def test_merged_shards_equal_a_run_without_shards(bench: Command, tmp_path: Path) -> None:
    write_rows(tmp_path, num=4)
    assert run_command(bench(out="whole")).status == 0
    for number in (1, 2):
        assert run_command(bench("--shard", f"{number}/2", out=f"part{number}")).status == 0
    merge = ["bench", "merge", str(tmp_path / "merged"), str(tmp_path / "part1"), str(tmp_path / "part2")]
    assert run_command(merge).status == 0
    assert list(decisions_in(tmp_path / "merged").items()) == list(decisions_in(tmp_path / "whole").items())
    again = run_command(merge)
    assert (again.status, again.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            ("--protocol", "best"),
            "unknown protocol 'best'; choose paper, official, single_game, both_orders or votes=N",
        ),
        (("--shard", "3/2"), "--shard: expected i/n, such as 2/4 for the second of four, got '3/2'"),
        (("--mode", "listwise"), "--mode: 'listwise' is not a mode of llmbar; choose pairwise, pointwise"),
        (("--part", "easy"), "--part: llmbar has no part 'easy'"),
    ],
)
def test_invalid_options_are_reported_in_one_line(
    bench: Command, tmp_path: Path, options: tuple[str, ...], says: str
) -> None:
    write_rows(tmp_path, num=1)
    done = run_command(bench(*options))
    assert done.status == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_unknown_benchmark_is_reported_with_the_known_names(bench: Command) -> None:
    done = run_command(bench(names=("nobench",)))
    assert done.status == 2
    assert "unknown benchmark 'nobench'; installed: " in done.stderr
    assert "llmbar" in done.stderr


@pytest.mark.slow
def test_list_shows_all_benchmarks() -> None:
    listed = json.loads(run_command(["bench", "list", "--json"]).stdout)
    found = {one["name"]: one for one in listed}
    assert found["judgebench"]["parts"] == ["gpt"]
    assert found["judgebench"]["optional_parts"] == ["claude"]
    assert all(one["citation"] and one["modes"] for one in listed)
    assert "judgebench" in run_command(["bench", "list"]).stdout


def can_mount() -> bool:
    return subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not can_mount(), reason="mounting a small disk needs user namespaces")
def test_a_full_disk_stops_the_run_and_keeps_the_judgments(bench: Command, tmp_path: Path) -> None:
    write_rows(tmp_path, num=30)
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    disk.mkdir()
    filling = " ".join(f"'{part}'" for part in (*MAIN, *bench(out="disk/run")))
    script = f"mount -t tmpfs -o size=128k none {disk} && {filling}; status=$?; cp -r {disk}/run {kept}; exit $status"
    full = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, timeout=120)
    assert full.returncode == 1, full.stderr
    (line,) = full.stderr.splitlines()
    assert line.endswith("No space left on device; free some space and run the same command again to continue")
    num_kept = (kept / "journal.jsonl").read_bytes().count(b"\n")
    assert 0 < num_kept < 150
    assert len(load_run(kept).judged) == num_kept
    done = run_command(bench(out="kept"))
    assert done.status == 0, done.stderr
    assert len(load_run(kept).judged) == 150


def asking(url: str, *, tmp_path: Path) -> list[str]:
    """Return the arguments of a run that asks a server."""
    paths = ["--data", str(tmp_path / "rows"), "--out", str(tmp_path / "run")]
    return ["bench", "run", "llmbar", *paths, "--url", url, "--json", "--tools", "off", "--concurrency", "2"]


def test_a_refused_connection_stops_the_run_in_one_line_with_the_url(tmp_path: Path) -> None:
    write_rows(tmp_path, num=1)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # no process listens on this port
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        done = run_command([*asking(url, tmp_path=tmp_path), "--connect-retry-s", "0.1"])
    assert done.status == 1
    first, last = done.stderr.splitlines()
    assert first == f"{url} does not answer yet; retrying"
    assert last.startswith(f"tirjudge bench: {url} cannot be reached: connection refused")
    assert last.endswith("start the server there, or check the URL")


@pytest.mark.slow
def test_a_run_stops_when_its_server_vanishes_and_can_be_resumed(random_checkpoint: Path, tmp_path: Path) -> None:
    write_rows(tmp_path, num=12)
    serve = [*MAIN, "serve", "--model", str(random_checkpoint), "--port", "0", "--records", "none", "--files", "none"]
    votes = ["--protocol", "votes=16"]
    journal = tmp_path / "run" / "journal.jsonl"
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split()[4]
        running = start_command([*asking(url, tmp_path=tmp_path), *votes])
        wait_until(lambda: num_lines(journal) >= 5, process=running)
        server.kill()
    _, printed = running.communicate(timeout=120)
    assert running.returncode == 1
    last = printed.splitlines()[-1]
    assert f"run stopped: {url} cannot be reached: connection refused" in last
    assert f"judgments are stored in {tmp_path / 'run'}, run the same command again to continue" in last
    assert len(load_run(tmp_path / "run").judged) >= 5
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split()[4]
        done = run_command([*asking(url, tmp_path=tmp_path), *votes])
        server.kill()
    assert done.status == 0, done.stderr
    assert len(load_run(tmp_path / "run").judged) == 60

"""`tirjudge bench run` as a process, with a random model and a real sandbox."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tirjudge_harness.run import load_run

MAIN = [sys.executable, "-c", "from tirjudge.cli import main; main()"]
Command = Callable[..., list[str]]


@pytest.fixture
def bench(random_checkpoint: Path, tmp_path: Path) -> Command:
    """A run of LLMBar's rows by the random model, which needs no sandbox."""

    def make(*options: str, out: str = "run", names: tuple[str, ...] = ("llmbar",)) -> list[str]:
        paths = ["--data", str(tmp_path / "rows"), "--out", str(tmp_path / out)]
        judge = ["--model", str(random_checkpoint), "--tools", "off", "--json"]
        return [*MAIN, "bench", "run", *names, *paths, *judge, *options]

    return make


def write_rows(tmp_path: Path, *, num: int, broken: list[Any] | None = None) -> None:
    """A file a set, as LLMBar has them."""
    (tmp_path / "rows").mkdir(parents=True, exist_ok=True)
    for name in ("natural", "neighbor", "gptinst", "gptout", "manual"):
        rows: list[Any] = [
            {"input": f"{name} {n}", "output_1": f"one {n}", "output_2": f"two {n}", "label": 1 + n % 2}
            for n in range(num)
        ]
        rows += (broken or []) if name == "natural" else []
        (tmp_path / "rows" / f"{name}.json").write_text(json.dumps(rows))


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def decisions_in(folder: Path) -> dict[str, list[Any]]:
    """What was decided. Probabilities differ in their last digits with what happens to share a batch."""
    return {
        one.outline.id: [(each.shown, each.best, each.tied, each.score, each.forced) for each in one.decisions]
        for one in load_run(folder).judged
    }


def test_a_benchmark_is_judged_and_its_figures_have_intervals(bench: Command, tmp_path: Path) -> None:
    write_rows(tmp_path, num=4)
    done = run(bench())
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)
    assert result["benchmark"] == "llmbar"
    assert [figure["name"] for figure in result["figures"]][:2] == ["average", "natural"]
    assert (result["counts"]["examples"], result["counts"]["marks"], result["num_missing"]) == (20, 20, 0)
    low, high = result["figures"][0]["interval"]
    assert 0 <= low <= result["figures"][0]["value"] <= high <= 1
    assert result["manifest"]["judge"]["model"] == "random"


def test_without_json_there_is_a_table(bench: Command, tmp_path: Path) -> None:
    write_rows(tmp_path, num=2)
    done = run([option for option in bench() if option != "--json"])
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0] == ["LLMBar"]
    assert lines[1] == ["%", "(95", "%)", "n"]
    assert lines[2][0] == "average"
    assert lines[2][-1] == "10"


def test_broken_rows_are_named_and_counted_and_stop_no_other(bench: Command, tmp_path: Path) -> None:
    broken = [{"input": "x", "output_1": "a", "output_2": "b", "label": 3}] * 25
    write_rows(tmp_path, num=2, broken=[*broken, "no row"])
    done = run(bench())
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)
    assert (result["counts"]["examples"], result["manifest"]["data"]["num_bad_rows"]) == (10, 26)
    named = [line for line in done.stderr.splitlines() if "natural.json: row " in line]
    assert len(named) == 20
    assert "row 3: label: 3 given" in named[0]
    assert "llmbar: 6 more broken rows" in done.stderr


@pytest.mark.parametrize(
    ("content", "says"),
    [("", "natural.json"), ("[]", "natural.json"), ('[{"input": "x", "label": 1}]', "output_1")],
)
def test_rows_with_which_nothing_can_be_judged_are_one_line(
    bench: Command, tmp_path: Path, content: str, says: str
) -> None:
    write_rows(tmp_path, num=2)
    (tmp_path / "rows" / "natural.json").write_text(content)
    done = run(bench())
    assert done.returncode == 2
    assert done.stderr.startswith("tirjudge bench: ")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_killed_run_goes_on_and_ends_as_one_that_was_not_disturbed(bench: Command, tmp_path: Path) -> None:
    write_rows(tmp_path, num=30)
    slow = ("--protocol", "votes=16", "--concurrency", "3")
    process = subprocess.Popen(bench(*slow), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    journal = tmp_path / "run" / "journal.jsonl"
    while not journal.exists() or journal.read_bytes().count(b"\n") < 10:
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = journal.read_bytes().rpartition(b"\n")[0] + b"\n"
    assert 10 <= kept.count(b"\n") < 150
    with journal.open("ab") as file:
        file.write(b'{"key": "torn')
    assert run(bench(*slow)).returncode == 0
    assert journal.read_bytes().startswith(kept)
    assert journal.read_bytes().count(b"\n") == 150
    assert run(bench(*slow, out="undisturbed")).returncode == 0
    assert decisions_in(tmp_path / "run") == decisions_in(tmp_path / "undisturbed")


def test_another_configuration_is_refused_in_one_line(bench: Command, tmp_path: Path) -> None:
    write_rows(tmp_path, num=1)
    assert run(bench()).returncode == 0
    refused = run(bench("--seed", "5"))
    assert refused.returncode == 2
    assert "(seed was 0 and is now 5); give another --out, or the options of that run" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_several_benchmarks_lie_side_by_side(bench: Command, tmp_path: Path) -> None:
    write_rows(tmp_path, num=1)
    (tmp_path / "rows").rename(tmp_path / "llmbar")
    (tmp_path / "rows").mkdir()
    (tmp_path / "llmbar").rename(tmp_path / "rows" / "llmbar")
    line = {"id": "a", "prompt": "p", "responses": ["one", "two"], "label": 0, "subset": "x", "meta": {}}
    (tmp_path / "rows" / "judgebench.jsonl").write_text(json.dumps(line | {"meta": {"source": "livebench-math"}}))
    done = run(bench(names=("llmbar", "judgebench")))
    assert done.returncode == 0, done.stderr
    assert [result["benchmark"] for result in json.loads(done.stdout)] == ["llmbar", "judgebench"]
    assert (
        len(load_run(tmp_path / "run" / "llmbar").judged),
        len(load_run(tmp_path / "run" / "judgebench").judged),
    ) == (
        5,
        1,
    )


def test_shards_are_merged_to_the_whole(bench: Command, tmp_path: Path) -> None:
    write_rows(tmp_path, num=4)
    assert run(bench(out="whole")).returncode == 0
    for number in (1, 2):
        assert run(bench("--shard", f"{number}/2", out=f"part{number}")).returncode == 0
    merge = [*MAIN, "bench", "merge", str(tmp_path / "merged"), str(tmp_path / "part1"), str(tmp_path / "part2")]
    assert run(merge).returncode == 0
    assert list(decisions_in(tmp_path / "merged").items()) == list(decisions_in(tmp_path / "whole").items())
    again = run(merge)
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--protocol", "best"), "protocol: 'best' given; paper, official, both_orders and votes=N"),
        (("--shard", "3/2"), "--shard: '3/2' given"),
        (("--mode", "listwise"), "--mode: listwise given; llmbar has pairwise, pointwise"),
        (("--part", "easy"), "easy"),
    ],
)
def test_options_that_cannot_be_are_one_line(
    bench: Command, tmp_path: Path, options: tuple[str, ...], says: str
) -> None:
    write_rows(tmp_path, num=1)
    done = run(bench(*options))
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_benchmark_that_is_not_installed_is_named_with_those_that_are(bench: Command) -> None:
    done = run(bench(names=("nobench",)))
    assert done.returncode == 2
    assert "unknown benchmark 'nobench'; installed: " in done.stderr
    assert "llmbar" in done.stderr


def test_all_benchmarks_are_listed() -> None:
    listed = json.loads(run([*MAIN, "bench", "list", "--json"]).stdout)
    found = {one["name"]: one for one in listed}
    assert found["judgebench"]["parts"] == ["gpt"]
    assert found["judgebench"]["optional_parts"] == ["claude"]
    assert all(one["citation"] and one["modes"] for one in listed)
    assert "judgebench" in run([*MAIN, "bench", "list"]).stdout


def can_mount() -> bool:
    return subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not can_mount(), reason="no user namespaces to mount a small disk in")
def test_a_full_disk_stops_the_run_in_one_line_and_what_was_judged_stays(bench: Command, tmp_path: Path) -> None:
    write_rows(tmp_path, num=30)
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    disk.mkdir()
    filling = " ".join(f"'{part}'" for part in bench(out="disk/run"))
    script = f"mount -t tmpfs -o size=128k none {disk} && {filling}; status=$?; cp -r {disk}/run {kept}; exit $status"
    full = run(["unshare", "-rm", "sh", "-c", script])
    assert full.returncode == 1, full.stderr
    (line,) = full.stderr.splitlines()
    assert line.endswith("No space left on device; make room, and the same command goes on")
    num_kept = (kept / "journal.jsonl").read_bytes().count(b"\n")
    assert 0 < num_kept < 150
    assert len(load_run(kept).judged) == num_kept
    done = run(bench(out="kept"))
    assert done.returncode == 0, done.stderr
    assert len(load_run(kept).judged) == 150


@pytest.mark.slow
def test_a_server_that_vanishes_stops_the_run_in_one_line_that_says_how_to_go_on(
    bench: Command, random_checkpoint: Path, tmp_path: Path
) -> None:
    write_rows(tmp_path, num=30)
    serve = [*MAIN, "serve", "--model", str(random_checkpoint), "--port", "0", "--records", "none", "--files", "none"]
    asking = [
        *MAIN,
        "bench",
        "run",
        "llmbar",
        "--data",
        str(tmp_path / "rows"),
        "--out",
        str(tmp_path / "run"),
        "--json",
    ]
    asking += ["--tools", "off", "--protocol", "votes=16", "--concurrency", "2"]
    journal = tmp_path / "run" / "journal.jsonl"
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split()[4]
        running = subprocess.Popen(
            [*asking, "--url", url], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        while not journal.exists() or journal.read_bytes().count(b"\n") < 5:
            assert running.poll() is None
            time.sleep(0.005)
        server.kill()
    _, said = running.communicate(timeout=500)
    assert running.returncode == 1
    last = said.splitlines()[-1]
    assert "questions in a row failed within" in last
    assert "what was judged is kept in" in last
    assert "the same command goes on from there" in last
    num_kept = len(load_run(tmp_path / "run").judged)
    assert num_kept >= 5
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split()[4]
        assert run([*asking, "--url", url]).returncode == 0
        server.kill()
    assert len(load_run(tmp_path / "run").judged) == 150

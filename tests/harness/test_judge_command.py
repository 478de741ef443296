"""`tirjudge judge` with a random model and a real sandbox."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.harness.commands import MAIN, run_command, start_command, wait_until

Command = Callable[..., list[str]]


class SilentHandler(SimpleHTTPRequestHandler):
    """Serves files without log lines on stderr."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def command(random_checkpoint: Path, tmp_path: Path) -> Command:
    def make(path: Path, *options: str) -> list[str]:
        out = str(tmp_path / "out.jsonl")
        return ["judge", str(path), "--out", out, "--model", str(random_checkpoint), "--json", *options]

    return make


def ids_in(out: Path) -> list[str]:
    return [json.loads(line)["id"] for line in out.read_text().splitlines()]


def test_a_file_is_judged_and_summarized(command: Command, write_lines, pairs, tmp_path: Path) -> None:
    unlabelled = {"id": "u", "prompt": "p", "responses": ["a", "b", "c"], "label": None}
    path = write_lines([*pairs, unlabelled, b"oops\n"], name="in.jsonl.gz")
    done = run_command(command(path, "--tools", "off"))
    assert done.status == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["num_judged"], summary["num_scored"], summary["num_malformed"]) == (11, 10, 1)
    assert "line 12: not JSON" in done.stderr
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert {line["id"] for line in lines} == {f"i{n}" for n in range(10)} | {"u"}
    assert summary["accuracy"] == sum(line["correct"] for line in lines if "correct" in line) / 10
    assert summary["no_verdict_rate"] == 1.0


FOREIGN = "The task;old bot;new bot\nSay yes.;yes;no\nSay no.;no;\nSay red.;red;blue\n" + "Say it.;it;no\n" * 20
"""Rows without labels under other names. The second one is invalid, and 19 of the last ones are duplicates."""


@pytest.fixture
def foreign(tmp_path: Path) -> list[str]:
    """A file of such rows, with the options that name its columns."""
    path = tmp_path / "foreign.csv"
    path.write_text(FOREIGN)
    columns = ["--prompt-column", "The task", "--response-column", "old bot", "--response-column", "new bot"]
    return [str(path), *columns, "--max-error-rate", "1", "--tools", "off"]


def test_a_table_has_the_best_response_of_each_row_and_is_resumed(
    foreign: list[str], random_checkpoint: Path, tmp_path: Path
) -> None:
    table = tmp_path / "verdicts.csv"
    judging = ["judge", *foreign, "--out", str(table), "--model", str(random_checkpoint)]
    assert run_command([*judging, "--limit", "1"]).status == 0
    done = run_command(judging)
    assert done.status == 0, done.stderr
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert list(rows[0]) == ["row", "id", "best", "confidence", "basis", "scores"]
    assert [row["row"] for row in rows] == ["1", "3", "4"]
    assert {row["best"] for row in rows} <= {"A", "B"}
    assert {(row["basis"], row["scores"]) for row in rows} == {("guessed", "")}
    assert all(0 <= float(row["confidence"]) <= 1 for row in rows)
    judgments = tmp_path / "verdicts.csv.jsonl"
    assert sorted(ids_in(judgments)) == sorted(row["id"] for row in rows)
    shown = run_command(["show", str(judgments), "--data", foreign[0], "--json"])
    assert {one["prompt"] for one in json.loads(shown.stdout)} == {"Say yes.", "Say red.", "Say it."}, shown.stderr


def test_scores_of_responses_are_in_the_table(foreign: list[str], random_checkpoint: Path, tmp_path: Path) -> None:
    table = tmp_path / "verdicts.csv"
    options = ["--out", str(table), "--mode", "pointwise", "--model", str(random_checkpoint)]
    assert run_command(["judge", *foreign, *options]).status == 0
    first = next(csv.DictReader(table.read_text().splitlines()))
    assert [1 <= float(score) <= 10 for score in first["scores"].split()] == [True, True]


def test_a_file_that_is_not_a_table_of_verdicts_is_not_overwritten(foreign: list[str], tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("a,b\n")
    for out, says in ((foreign[0], "is the input"), (str(tmp_path / "other.csv"), "(other.csv.jsonl) do not")):
        done = run_command(["judge", *foreign, "--out", out])
        assert (done.status, says in done.stderr) == (2, True), done.stderr
    assert Path(foreign[0]).read_text() == FOREIGN


@pytest.mark.parametrize("name", ["v.parquet", "v.csv.gz", "v.XLSX", "v.json"])
def test_an_output_file_with_the_ending_of_another_format_is_refused(
    foreign: list[str], tmp_path: Path, name: str
) -> None:
    out = tmp_path / name
    done = run_command(["judge", *foreign, "--out", str(out)])
    assert done.status == 2
    assert done.stderr == f"tirjudge judge: --out: {out} has the ending of another format; give .jsonl or .csv\n"
    assert not out.exists()


def test_options_for_columns_need_a_file_of_items(foreign: list[str]) -> None:
    done = run_command(["judge", "Say yes.", foreign[0], *foreign[1:3]])
    assert done.status == 2
    assert "options for columns are only for a file of items; give --out FILE" in done.stderr


def test_requirements_trade_coverage_and_are_part_of_the_configuration(
    command: Command, write_lines, pairs, tmp_path: Path
) -> None:
    """The verdicts of the random model are forced, so all of them are guessed."""
    path, off = write_lines(pairs), ("--tools", "off")
    selective = json.loads(run_command(command(path, *off)).stdout)["selective"]
    assert (selective["num_items"], selective["coverage"]) == (10, 1.0)
    assert {name: group["share"] for name, group in selective["by_basis"].items()} == {
        "checked": 0.0,
        "reasoned": 0.0,
        "guessed": 1.0,
    }
    refused = run_command(command(path, *off, "--require", "checked"))
    assert refused.status == 2
    assert 'require was null and is now "checked"' in refused.stderr
    configuration = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])["configuration"]
    assert not {"require", "min_confidence"} & configuration.keys()
    (tmp_path / "out.jsonl").unlink()
    strict = json.loads(run_command(command(path, *off, "--require", "checked")).stdout)
    assert (strict["selective"]["coverage"], strict["accuracy"], strict["num_abstentions"]) == (0.0, 0.0, 10)


def test_functions_are_part_of_the_configuration(command: Command, write_lines, pairs, tmp_path: Path) -> None:
    path = write_lines(pairs[:1])
    done = run_command(command(path, "--tool", "run"))
    assert done.status == 0, done.stderr
    configuration = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])["configuration"]
    assert configuration["functions"] == {"run": "1", "run_many": "1", "tests": "1"}
    refused = run_command(command(path))
    assert refused.status == 2
    assert "functions was" in refused.stderr


def test_limit_judges_the_first_items_and_a_later_run_the_others(
    command: Command, write_lines, pairs, tmp_path
) -> None:
    path, off = write_lines(pairs), ("--tools", "off")
    assert json.loads(run_command(command(path, *off, "--limit", "3")).stdout)["num_judged"] == 3
    assert json.loads(run_command(command(path, *off)).stdout)["num_judged"] == 10
    assert json.loads(run_command(command(path, *off, "--limit", "2")).stdout)["num_judged"] == 2
    assert len(ids_in(tmp_path / "out.jsonl")) == 10


@pytest.mark.slow
def test_a_killed_run_is_resumed(command: Command, write_lines, tmp_path: Path) -> None:
    items: list[dict[str, Any]] = [
        {"id": f"i{n}", "prompt": f"p{n}", "responses": ["a", "b"], "label": 0} for n in range(60)
    ]
    path, out = write_lines(items), tmp_path / "out.jsonl"
    slow = command(path, "--tools", "off", "--votes", "32", "--concurrency", "2")
    process = start_command(slow)
    wait_until(lambda: out.exists() and out.read_bytes().count(b"\n") >= 3, process=process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with out.open("ab") as file:
        file.write(b'{"id": "torn')
    kept = out.read_bytes().rpartition(b"\n")[0] + b"\n"
    num_kept = kept.count(b"\n")
    assert 3 <= num_kept < 60
    done = run_command(slow)
    assert done.status == 0, done.stderr
    assert out.read_bytes().startswith(kept)
    assert sorted(ids_in(out)) == sorted(item["id"] for item in items)
    assert json.loads(done.stdout)["num_judged"] == 60


@pytest.mark.slow
def test_an_interrupted_run_prints_how_to_continue(command: Command, write_lines, tmp_path: Path) -> None:
    items = [{"id": f"i{n}", "prompt": f"p{n}", "responses": ["a", "b"]} for n in range(60)]
    slow = command(write_lines(items), "--votes", "32", "--concurrency", "2")
    out = tmp_path / "out.jsonl"
    process = start_command(slow)
    wait_until(lambda: out.exists() and out.read_bytes(), process=process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"Stopped. Run the same command again to continue {out}." in err
    assert "Traceback" not in err


def test_the_output_of_a_different_run_is_rejected(command: Command, write_lines, pairs) -> None:
    path = write_lines(pairs)
    assert run_command(command(path, "--tools", "off")).status == 0
    refused = run_command(command(path, "--tools", "off", "--seed", "1"))
    assert refused.status == 2
    assert "another configuration (seed was 0 and is now 1)" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_local_options_cannot_be_combined_with_a_server(command: Command, write_lines, pairs) -> None:
    refused = run_command(
        command(write_lines(pairs), "--url", "http://127.0.0.1:9", "--slots", "1", "--allow-unsafe-sandbox")
    )
    assert refused.status == 2
    assert "--model, --slots, --allow-unsafe-sandbox cannot be combined with --url" in refused.stderr


def test_a_run_without_a_judgment_fails(command: Command, write_lines) -> None:
    path = write_lines([b"oops\n", b"[]\n"])
    refused = run_command(command(path, "--tools", "off"))
    assert refused.status == 2
    assert "2 of 2 rows are invalid, more than --max-error-rate 0.1" in refused.stderr
    done = run_command(command(path, "--tools", "off", "--max-error-rate", "1"))
    assert done.status == 1
    assert json.loads(done.stdout)["num_malformed"] == 2
    assert done.stderr.splitlines()[-1] == "no judgment was made"


def test_a_seed_out_of_range_is_rejected(command: Command, write_lines, pairs) -> None:
    refused = run_command(command(write_lines(pairs), "--seed", str(2**63)))
    assert refused.status == 2
    assert "--seed" in refused.stderr


def test_another_server_at_the_url_is_reported_in_one_line(write_lines, pairs, tmp_path: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), SilentHandler) as other, ThreadPoolExecutor() as threads:
        serving = threads.submit(other.serve_forever)
        url = f"http://127.0.0.1:{other.server_port}"
        done = run_command(["judge", str(write_lines(pairs)), "--out", str(tmp_path / "out"), "--url", url])
        other.shutdown()
        serving.result()
    assert done.status == 1
    assert done.stderr.startswith(f"tirjudge judge: {url}/v1/models answered 404: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_file_is_judged_by_a_server(write_lines, pairs, random_checkpoint: Path, tmp_path: Path) -> None:
    serve = [*MAIN, "serve", "--model", str(random_checkpoint), "--port", "0"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split()[4]
        done = run_command(["judge", str(write_lines(pairs)), "--out", str(tmp_path / "out"), "--json", "--url", url])
        server.terminate()
    assert done.status == 0, done.stderr
    assert json.loads(done.stdout)["num_judged"] == 10


def test_an_unreachable_engine_is_reported_in_one_line(command: Command, write_lines, pairs) -> None:
    done = run_command(command(write_lines(pairs), "--engine", "http://127.0.0.1:9"))
    assert done.status == 1
    assert done.stderr.startswith("tirjudge judge: ")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_api_key_is_sent_and_not_stored(
    write_lines, pairs, random_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = f"sqlite:///{tmp_path / 'records.db'}"
    key = run_command(["keys", "create", "harness", "--records", records]).stdout.strip()
    serve = [*MAIN, "serve", "--model", str(random_checkpoint), "--port", "0", "--records", records]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split()[4]
        asked = ["judge", str(write_lines(pairs)), "--out", str(tmp_path / "out"), "--json", "--url", url]
        without = run_command(asked)
        monkeypatch.setenv("TIRJUDGE_API_KEY", key)
        given = run_command(asked)
        server.terminate()
    assert without.status == 2
    assert "key: none given" in without.stderr
    assert given.status == 0, given.stderr
    assert key not in given.stdout + given.stderr + (tmp_path / "out").read_text()


def test_judgments_of_all_rows_and_labels_of_some_give_an_estimate(random_checkpoint: Path, tmp_path: Path) -> None:
    """The three commands for labels of a sample of own rows."""
    rows, people = tmp_path / "rows.csv", tmp_path / "people.csv"
    lines = [f"q{n},Say {n}.,yes,no {n},large,small,{'A' if n < 3 else ''}" for n in range(30)]
    rows.write_text("\n".join(["id,prompt,response_a,response_b,model_a,model_b,winner", *lines]))
    table = tmp_path / "judged.csv"
    judging = ["judge", str(rows), "--out", str(table), "--model", str(random_checkpoint), "--tools", "off"]
    done = run_command(judging)
    assert done.status == 0, done.stderr
    judged = [row["id"] for row in csv.DictReader(table.read_text().splitlines())]
    labels = [f"{number},{id},{'A' if number % 3 else 'tie'}" for number, id in enumerate(judged, start=1)]
    people.write_text("\n".join(["row,id,label", *labels[:22], *(f"{number},q{number}," for number in range(23, 30))]))
    source = f"{table}.jsonl"
    done = run_command(["bench", "estimate", source, "--labels", str(people), "--format", "json"])
    assert done.status == 0, done.stderr
    found = {row["figure"]: row for row in json.loads(done.stdout)["rows"]}
    assert list(found) == ["first response is better, %", "large wins, %", "small wins, %"]
    assert {(row["labeled"], row["all"]) for row in found.values()} == {(22, 30)}
    assert "large" in run_command(["bench", "rank", source]).stdout

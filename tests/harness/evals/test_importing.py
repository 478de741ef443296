"""An export of OpenAI's API is imported and run again: the results of deterministic criteria are those of the export."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import run_command
from tests.harness.evals.exports import CHECKS, PROGRAM, exported_eval, exported_run, items
from tests.servers import serve_in_thread
from tirjudge.client import Client
from tirjudge_harness.evals.exports import read_export
from tirjudge_harness.evals.importing import definition_of
from tirjudge_harness.evals.objects import EvalDefinition
from tirjudge_harness.evals.server import EvalsServer
from tirjudge_harness.items import InputError

NUM_ROWS = 30


@pytest.fixture
def url(judge_with_evals: Any) -> Iterator[str]:
    with serve_in_thread(judge_with_evals, lifespan="on") as found:
        yield found


def write_export(folder: Path, *, num: int, has_program: bool) -> list[Path]:
    """Write an eval as an object, its runs as a page, and its output items as lines."""
    made = exported_eval([*CHECKS, PROGRAM] if has_program else CHECKS)
    run = exported_run(made["id"])
    page = {"object": "list", "data": [run], "first_id": run["id"], "last_id": run["id"], "has_more": False}
    lines = [json.dumps(item) for item in items(run, num=num, has_program=has_program)]
    folder.mkdir()
    (folder / "eval.json").write_text(json.dumps(made))
    (folder / "runs.json").write_text(json.dumps(page))
    (folder / "items.jsonl").write_text("\n".join(lines))
    return [folder / name for name in ("eval.json", "runs.json", "items.jsonl")]


def results(url: str) -> tuple[Any, list[Any]]:
    """Return the only run of the only eval, with its output items."""
    with Client(url) as client:
        server = EvalsServer(client)
        (made,) = server.evals()
        (run,) = server.runs(made.id)
        return run, list(server.items(run))


def check_results(url: str, *, num: int, num_criteria: int) -> None:
    run, found = results(url)
    made = exported_eval(CHECKS)
    expected = items(exported_run(made["id"]), num=num, has_program=num_criteria == 4)
    assert run.status == "completed"
    assert [item.status for item in found] == [item["status"] for item in expected]
    passed = [[result["passed"] for result in item.results] for item in found]
    assert passed == [[result["passed"] for result in item["results"]] for item in expected]


@pytest.mark.slow
def test_an_export_is_imported_and_run_again(url: str, tmp_path: Path) -> None:
    files = write_export(tmp_path / "export", num=NUM_ROWS, has_program=False)
    done = run_command("evals", "import", *files, "--url", url)
    assert done.returncode == 0, done.stderr
    check_results(url, num=NUM_ROWS, num_criteria=3)
    assert "evalrun_67abd54d60ec8190832b46859da808f7 -> evalrun_" in done.stderr
    for name in ("Exact match", "Mentions it", "Similar"):
        (line,) = [line for line in done.stdout.splitlines() if name in line]
        assert "30" in line.split()


def test_a_folder_is_imported_without_runs(url: str, tmp_path: Path) -> None:
    write_export(tmp_path / "export", num=3, has_program=False)
    done = run_command("evals", "import", tmp_path / "export", "--no-runs", "--url", f"{url}/v1")
    assert done.returncode == 0, done.stderr
    with Client(url) as client:
        server = EvalsServer(client)
        (made,) = server.evals()
        assert list(server.runs(made.id)) == []
    assert made.name == "My evaluation"
    assert made.testing_criteria == CHECKS


def test_other_results_than_in_the_export_are_an_error(url: str, tmp_path: Path) -> None:
    files = write_export(tmp_path / "export", num=6, has_program=False)
    files[2].write_text(files[2].read_text().replace('"passed": true', '"passed": false', 1))
    done = run_command("evals", "import", *files, "--url", url)
    assert done.returncode == 1
    assert "Exact match: other results in rows 0" in done.stderr


def test_a_run_without_rows_is_named(url: str, tmp_path: Path) -> None:
    files = write_export(tmp_path / "export", num=1, has_program=False)
    done = run_command("evals", "import", *files[:2], "--url", url)
    assert done.returncode == 0
    assert "not run again, the export does not have its rows: evalrun_67abd" in done.stderr
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"item": {"answer": "a"}, "sample": {"output_text": "a"}}))
    done = run_command("evals", "import", *files[:2], rows, "--url", url)
    assert done.returncode == 0, done.stderr
    assert "(completed)" in done.stderr


@pytest.mark.slow
def test_an_export_of_500_rows_has_the_same_results(url_with_sandbox: str, tmp_path: Path) -> None:
    files = write_export(tmp_path / "export", num=500, has_program=True)
    done = run_command("evals", "import", *files, "--url", url_with_sandbox)
    assert done.returncode == 0, done.stderr
    check_results(url_with_sandbox, num=500, num_criteria=4)


@pytest.fixture
def url_with_sandbox(tool_judge_with_evals: Any) -> Iterator[str]:
    with serve_in_thread(tool_judge_with_evals, lifespan="on") as found:
        yield found


def test_models_of_graders_are_renamed() -> None:
    score = {"type": "score_model", "name": "s", "model": "gpt-4o", "input": [], "range": None}
    label = {"type": "label_model", "name": "l", "model": "o3", "input": []}
    multi = {"type": "multi", "name": "m", "graders": {"s": score, "l": label}, "calculate_output": "s"}
    found = definition_of(EvalDefinition.model_validate(exported_eval([score, multi])), models={"gpt-4o": "judge"})
    renamed = {"type": "score_model", "name": "s", "model": "judge", "input": []}
    assert found["testing_criteria"][0] == renamed
    assert found["testing_criteria"][1]["graders"] == {"s": renamed, "l": label}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "not JSON"),
        ("3", "int given; expected: an object of the Evals API"),
        ('{"object": "thread"}', "object = 'thread' given"),
        ('{"object": "eval", "id": "eval_1"}', "eval: data_source_config: Field required"),
        ("[" * 50_000 + "]" * 50_000, "not JSON|no eval found"),
        ('{"item": {}}', "no eval found"),
        ("[]", "no eval found"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "export.json"
    path.write_text(content)
    with pytest.raises(InputError, match=problem):
        read_export([path])


def test_a_missing_file_and_runs_without_their_eval_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_export([tmp_path / "none.json"])
    made = exported_eval(CHECKS)
    path = tmp_path / "mixed.jsonl"
    path.write_text(json.dumps(made) + "\n" + json.dumps(exported_run("eval_other")))
    with pytest.raises(InputError, match="eval_other: the export has runs of this eval, but not the eval"):
        read_export([path])

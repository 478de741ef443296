"""`tirjudge evals export`, `convert` and `run --out`: the results of evals in run folders, and what reads these."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import run_command
from tests.harness.evals.exports import CHECKS, PROGRAM, exported_eval, exported_item, exported_run, items
from tests.runs import HOSTILE_TEXT
from tests.servers import serve_in_thread
from tirjudge.client import Client
from tirjudge_harness.evals.objects import EvalDefinition, EvalRun, OutputItem
from tirjudge_harness.evals.run_folder import write_eval_run
from tirjudge_harness.evals.server import EvalsServer
from tirjudge_harness.items import InputError
from tirjudge_harness.reports.comparison import comparison_table
from tirjudge_harness.reports.pages.indexing import index_run
from tirjudge_harness.reports.scored import ScoredRun, score_run
from tirjudge_pages.bench.index import ItemQuery, RunIndex


def written(
    folder: Path, results: Sequence[Any], *, criteria: Sequence[dict[str, Any]] = (*CHECKS, PROGRAM), **fields: Any
) -> Path:
    """Write a run folder from output items as OpenAI's API returns them."""
    definition = exported_eval(criteria)
    run = exported_run(definition["id"]) | fields
    found = [OutputItem.model_validate(item) for item in results]
    write_eval_run(folder, EvalDefinition.model_validate(definition), EvalRun.model_validate(run), found)
    return folder


def item(number: int, *passed: bool, answer: str = "yes", output: str = "yes") -> Any:
    return exported_item(exported_run("eval_1"), number, answer=f"{answer} {number}", output=output, passed=passed)


def figures(run: ScoredRun) -> dict[str, float | None]:
    return {figure.name: figure.value for figure in run.figures}


def indexed(folder: Path) -> RunIndex:
    index = index_run(folder)
    assert index.is_current
    return index


def test_a_run_has_the_share_of_passed_rows_by_criterion_and_the_mean_of_scores(tmp_path: Path) -> None:
    # Of 6 rows, 2 pass everything, 2 miss the exact match and the program, and 2 pass "Mentions it" alone.
    run = score_run(written(tmp_path / "run", items(exported_run("eval_1"), num=6, has_program=True)))
    assert figures(run) == {
        "all criteria": pytest.approx(1 / 3),
        "Exact match": pytest.approx(1 / 3),
        "Mentions it": 1.0,
        "Similar": pytest.approx(2 / 3),
        "Short": pytest.approx(1 / 3),
        "Similar: mean score x 100": pytest.approx(2 / 3),
        "Short: mean score x 100": pytest.approx(1 / 3),
    }
    assert run.benchmark.title == "My evaluation"
    # Wilson's interval of 2 of 6.
    assert run.figures[0].interval == pytest.approx((0.0968, 0.7000), abs=1e-4)


def test_scores_of_any_scale_have_a_mean(tmp_path: Path) -> None:
    score = {"type": "score_model", "name": "quality", "model": "judge", "input": [], "range": [1, 10]}
    rows = [item(0, True), item(1, False), item(2, True)]
    for row, given in zip(rows, (9, 2.5, 8), strict=True):
        row["results"][0] |= {"score": given, "sample": {"output": [{"role": "assistant", "content": "Because."}]}}
    run = score_run(written(tmp_path / "run", rows, criteria=[score]))
    assert figures(run) == {"quality": pytest.approx(2 / 3), "quality: mean score x 100": pytest.approx(6.5)}
    index = indexed(run.path)
    values = [line.cells[1].text for line in index.view.headline.lines]
    assert values == ["66.7 (20.8 to 93.9)", "6.5 (2.5 to 9)"]
    check = index.answers(index.items(first=1, num=1)[0])[0].judgment.checks[0][0]
    assert [reason.message for reason in check.reasons] == ["score 2.5", "Because."]
    assert (check.check, check.kind, check.passed) == ("quality", "score_model", False)


def test_an_error_has_no_score_and_is_shown(tmp_path: Path) -> None:
    rows = [item(0, True, True, True), item(1, True, True, True), item(2, True, True, True)]
    rows[1]["results"][1]["error"] = {"code": "python_grader_runtime_error", "message": "ZeroDivisionError"}
    rows[2]["results"], rows[2]["sample"]["error"] = [], {"code": "content_filter", "message": "filtered"}
    folder = written(tmp_path / "run", rows, criteria=CHECKS)
    run = score_run(folder)
    assert [figure.num_marks for figure in run.figures[:4]] == [1, 2, 1, 2]
    index = indexed(folder)
    assert (index.view.num_examples, index.view.num_judged, index.view.num_failures) == (12, 6, 6)
    assert dict(index.condition_names) == {"wrong": "failed", "missing": "error"}
    found = index.items(first=0, num=12)
    problems = {one.listed.subset: one.problem for one in found[4:8] if one.problem}
    message = "python_grader_runtime_error: ZeroDivisionError"
    assert problems == {"all criteria": message, "Mentions it": message}
    assert {one.problem for one in found[8:]} == {"content_filter: filtered"}


def test_items_are_browsed_by_criterion_with_their_texts(tmp_path: Path) -> None:
    index = indexed(written(tmp_path / "run", items(exported_run("eval_1"), num=6, has_program=True)))
    failed = ItemQuery(conditions=frozenset({"wrong"}), subset="Exact match")
    assert index.count(failed) == 4
    place = index.listed(failed, first=0, num=1)[0].place
    (found,) = index.items(first=place, num=1)
    assert json.loads(str(found.prompt)) == {"answer": "answer 0001"}
    assert found.responses == ("answer 0001.",)
    assert index.view.headline.lines[0].cells[0].text == "all criteria"


def test_runs_over_other_files_are_compared_on_their_common_rows(tmp_path: Path) -> None:
    criteria = [CHECKS[0]]
    first = [item(number, number < 2) for number in range(6)]
    # The second run has the rows in another order, lacks the first one, and passes 4 of the 4 that failed.
    second = [item(number, True) for number in range(5, 0, -1)]
    for number, each in enumerate(second):
        each["datasource_item_id"] = number
    runs = [
        score_run(written(tmp_path / name, rows, criteria=criteria, id=f"evalrun_{name}"))
        for name, rows in (("a", first), ("b", second))
    ]
    table = comparison_table(runs)
    (line,) = table.rows
    found = {column.key: entry.value for column, entry in zip(table.columns, line.entries, strict=True)}
    assert (found["n"], found["better"], found["worse"]) == (5, 4, 0)
    assert found["p"] == pytest.approx(2 / 2**4)


def test_rows_with_equal_items_and_criteria_with_equal_names_stay_apart(tmp_path: Path) -> None:
    rows = [item(0, True, False), item(0, False, True)]
    rows[1]["datasource_item_id"] = 1
    criteria = [CHECKS[0], {**CHECKS[1], "name": "all criteria"}]
    run = score_run(written(tmp_path / "run", rows, criteria=criteria))
    assert figures(run) == {"all criteria": 0.0, "Exact match": 0.5, "all criteria (2)": 0.5}


def test_a_run_without_graded_rows_can_be_read(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", [], status="in_progress", num_rows=9)
    assert score_run(folder).figures[0].value is None
    view = indexed(folder).view
    assert (view.num_examples, view.num_judged) == (0, 0)
    assert any("0 of 9 rows are graded" in note for note in view.notes)


def test_a_folder_is_replaced_by_a_later_export_of_the_same_run_only(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", [item(0, True)], criteria=CHECKS[:1], status="in_progress")
    written(folder, [item(0, True), item(1, False)], criteria=CHECKS[:1])
    assert figures(score_run(folder)) == {"Exact match": 0.5}
    with pytest.raises(InputError, match="is not a folder of evalrun_other; give another folder"):
        written(folder, [], id="evalrun_other")
    other = tmp_path / "mine"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="give another folder"):
        written(other, [])
    assert (other / "notes.txt").read_text() == "mine"


def test_hostile_texts_are_kept_as_texts(tmp_path: Path) -> None:
    hostile = f"{HOSTILE_TEXT}\ud800\x00"
    rows = [item(0, True, answer=hostile, output=hostile)]
    rows[0]["results"][0]["error"] = {"message": hostile}
    criteria = [{**CHECKS[0], "name": hostile, "type": hostile}]
    index = indexed(written(tmp_path / "run", rows, criteria=criteria, name=hostile, model=hostile))
    (found,) = index.items(first=0, num=1)
    assert found.problem is not None
    assert HOSTILE_TEXT in found.problem
    assert found.responses == (f"{HOSTILE_TEXT}\ufffd\x00",)


@pytest.mark.slow
def test_an_export_of_openai_becomes_run_folders_that_reports_and_pages_read(tmp_path: Path) -> None:
    export = tmp_path / "export"
    export.mkdir()
    definition = exported_eval([*CHECKS, PROGRAM])
    run = exported_run(definition["id"])
    objects = [definition, run, *items(run, num=3, has_program=True)]
    (export / "all.jsonl").write_text("\n".join(map(json.dumps, objects)))
    done = run_command("evals", "convert", export, "--out", tmp_path / "runs", "--index")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "runs" / run["id"]
    assert done.stdout.strip() == str(folder)
    assert RunIndex(folder).is_current
    report = run_command("bench", "report", folder, "--format", "csv").stdout
    assert "33.3" in report
    assert run_command("bench", "report", folder, "--html", tmp_path / "html").returncode == 0
    assert "passed" in (tmp_path / "html" / "all-1.html").read_text()


@pytest.mark.parametrize(
    ("objects", "problem"),
    [
        ([exported_eval(CHECKS)], "no run found"),
        ([exported_eval(CHECKS), {**exported_run(exported_eval(CHECKS)["id"]), "id": "../x"}], "not the id of a run"),
    ],
)
def test_what_is_no_export_of_runs_is_refused(tmp_path: Path, objects: Any, problem: str) -> None:
    path = tmp_path / "export.jsonl"
    path.write_text("\n".join(map(json.dumps, objects)))
    done = run_command("evals", "convert", path, "--out", tmp_path / "runs")
    assert done.returncode != 0
    assert problem in " ".join(done.stderr.split())
    assert not (tmp_path / "runs").exists()


@pytest.fixture
def url(judge_with_evals: Any) -> Iterator[str]:
    with serve_in_thread(judge_with_evals, lifespan="on") as found:
        yield found


@pytest.mark.slow
def test_runs_of_a_server_are_exported_and_compared(url: str, tmp_path: Path) -> None:
    config = {"type": "custom", "item_schema": {"type": "object"}, "include_sample_schema": True}
    with Client(url) as client:
        definition = {"name": "sums", "data_source_config": config, "testing_criteria": CHECKS[:2]}
        eval_id = EvalsServer(client).create(definition).id
    data = tmp_path / "rows.jsonl"
    for name, outputs in (("first", "01x"), ("second", "012")):
        rows = [{"item": {"answer": str(at)}, "sample": {"output_text": text}} for at, text in enumerate(outputs)]
        data.write_text("\n".join(map(json.dumps, rows)))
        done = run_command("evals", "run", eval_id, "--data", data, "--out", tmp_path / name, "--url", url)
        assert done.returncode == 0, done.stderr
        assert f"tirjudge bench report {tmp_path / name}" in " ".join(done.stderr.split())
    compared = run_command("bench", "compare", tmp_path / "first", tmp_path / "second", "--format", "csv")
    assert compared.returncode == 0, compared.stderr
    header, *lines = compared.stdout.splitlines()
    found = dict(zip(header.split(","), lines[0].split(","), strict=False))
    assert (found["figure"], found["n"], found["better"], found["worse"]) == ("all criteria", "3", "1", "0")
    run_id = score_run(tmp_path / "second").manifest.data.eval.run_id  # type: ignore[union-attr]
    again = run_command("evals", "export", eval_id, run_id, tmp_path / "second", "--url", url)
    assert again.returncode == 0, again.stderr
    refused = run_command("evals", "run", eval_id, "--data", data, "--out", tmp_path / "x", "--no-wait", "--url", url)
    assert refused.returncode != 0

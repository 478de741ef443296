"""The best-of-N table with one of our runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tirjudge_harness.best_of_n.grading import Grading
from tirjudge_harness.best_of_n.results import BestOfN
from tirjudge_harness.best_of_n.run import BestOfNManifest
from tirjudge_harness.items import InputError
from tirjudge_harness.reports.best_of_n import best_of_n_table, results_in
from tirjudge_harness.reports.formats import ReportFormat, render
from tirjudge_harness.reports.tables import ReportTable, TableEntry
from tirjudge_harness.run import DataManifest, JudgeManifest

SOLVED = {"first": 3.0, "pass@1": 3.5, "oracle": 9.0, "knockout": 6.0, "verified_vote": 5.0}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run over ten problems. The knockout failed on two of them and solved six of the others."""
    path = tmp_path / "run"
    path.mkdir()
    manifest = BestOfNManifest(
        dataset="AIME 2024",
        policy="A policy",
        strategies=("knockout", "verified_vote"),
        grader=Grading.AIME,
        seed=0,
        group_size=4,
        judging={},
        judge=JudgeManifest(kind="local", model="tiny"),
        data=DataManifest(path="answers.jsonl", sha256="0" * 64, num_examples=10),
        version="0.1.0",
        created=0,
    )
    (path / "manifest.json").write_text(manifest.model_dump_json())
    results = [
        BestOfN(
            dataset="AIME 2024",
            policy="A policy",
            strategy=strategy,
            solved=solved,
            num_problems=8 if strategy == "knockout" else 10,
            interval=(0.5, 0.875) if strategy == "knockout" else None,
            num_calls=40 if strategy == "knockout" else 0,
            num_undecided=1 if strategy == "knockout" else 0,
        ).model_dump(mode="json")
        for strategy, solved in SOLVED.items()
    ]
    (path / "results.json").write_text(json.dumps(results))
    return path


def our_row(table: ReportTable) -> dict[str, TableEntry]:
    (row,) = (row for row in table.rows if row.ours)
    return dict(zip((column.key for column in table.columns), row.entries, strict=True))


def test_our_row_has_the_columns_of_the_paper_and_of_its_strategies(folder: Path) -> None:
    row = our_row(best_of_n_table(results_in([folder])))
    assert {key: row[key].value for key in ("dataset", "num_problems", "policy", "judge")} == {
        "dataset": "AIME 2024",
        "num_problems": 10,
        "policy": "A policy",
        "judge": "tiny",
    }
    assert {key: row[key].value for key in ("pass@1", "knockout", "listwise", "verified_vote", "oracle")} == {
        "pass@1": 3.5,
        "knockout": 6.0,
        "listwise": None,
        "verified_vote": 5.0,
        "oracle": 9.0,
    }
    assert "first" not in row


def test_intervals_are_in_problems_and_missing_problems_are_noted(folder: Path) -> None:
    entry = our_row(best_of_n_table(results_in([folder])))["knockout"]
    assert entry.interval == (4.0, 7.0)
    assert entry.notes == ("Not comparable. Over 8 problems; 2 could not be judged.",)


def test_the_share_of_judgments_with_a_verdict_is_noted(folder: Path) -> None:
    notes = best_of_n_table(results_in([folder])).notes
    assert [note for note in notes if "verdict" in note] == [
        "tiny, AIME 2024, knockout: 97.5% of 40 judgments have a verdict."
    ]


def test_rows_that_are_left_out_are_noted(folder: Path) -> None:
    file = folder / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest["data"] |= {"num_bad_rows": 2, "num_examples": 11}
    file.write_text(json.dumps(manifest))
    notes = best_of_n_table(results_in([folder])).notes
    assert "tiny, AIME 2024: 2 invalid rows left out, 1 ungraded problem left out." in notes


def test_published_rows_can_be_left_out(folder: Path) -> None:
    table = best_of_n_table(results_in([folder]), name="mine")
    assert len(table.rows) == 40
    first = json.loads(render(table, ReportFormat.JSON))["rows"][0]
    assert [first[key] for key in ("dataset", "num_problems", "policy", "judge")] == [
        "AIME 2024",
        30,
        "Gemma-3-27B",
        "TIR-Judge-Zero 4B",
    ]
    assert [first[key] for key in ("pass@1", "majority", "pointwise", "knockout", "listwise")] == [5, 9, 10, 13, 12]
    assert our_row(table)["judge"].value == "mine"
    assert len(best_of_n_table(results_in([folder]), with_published=False).rows) == 1


def test_runs_are_found_one_level_below_and_other_folders_are_refused(folder: Path) -> None:
    assert [run.path for run in results_in([folder.parent])] == [folder]
    with pytest.raises(InputError, match=r"nothing: no best-of-N run found \(no results.json there"):
        results_in([folder.parent.parent / "nothing"])


def test_a_damaged_manifest_is_refused(folder: Path) -> None:
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match=r"manifest.json: not a manifest of a best-of-N run: Field required"):
        results_in([folder])

"""The report commands: from folders of runs to files and standard output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from tests.harness.reports.conftest import MakeRun, Pair
from tirjudge_harness.items import InputError
from tirjudge_harness.reports.cli import compare, export, plot, report

app = typer.Typer(pretty_exceptions_enable=False)
for command in (report, compare, plot, export):
    app.command()(command)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture
def folder(make_run: MakeRun) -> Path:
    """A run over four pairs: three are right in both orders, the fourth in the first order only."""
    named = [(0, 0)] * 3 + [(0, 1)]
    return make_run([Pair(id=f"p{n}", named=each) for n, each in enumerate(named)], model="[red]tiny[/]\n| &")


def test_a_report_shows_the_figures_and_the_judge_of_a_run(folder: Path) -> None:
    done = run("report", folder)
    assert "overall" in done.stdout
    assert "75.0 (30.1 to 95.4)" in done.stdout
    assert "Judge: [red]tiny[/] | & (0123456789abcdef)" in done.stdout


def test_a_run_can_be_scored_by_a_different_protocol(folder: Path) -> None:
    done = run("report", folder, "--protocol", "paper", "--format", "json")
    assert json.loads(done.stdout)["rows"][0]["value"] == 100.0


def test_a_table_of_the_paper_is_written_to_a_file(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "tables" / "main.md"
    done = run("report", folder, "--shape", "main", "--format", "markdown", "--out", out, "--name", "mine")
    assert done.stdout == ""
    text = out.read_text(encoding="utf-8")
    assert "| **mine** | **pairwise** |" in text
    assert "| TIR-Judge-Zero 8B | pairwise | 76.6 |" in text


def test_published_rows_can_be_left_out(folder: Path) -> None:
    done = run("report", folder, "--shape", "subsets", "--no-published", "--format", "csv")
    head, row = done.stdout.splitlines()
    assert head.startswith("judge,mode,rewardbench_chat,")
    assert row.startswith("[red]tiny[/] | &,pairwise,")


def test_tables_of_several_runs_have_their_folders(folder: Path, make_run: MakeRun) -> None:
    other = make_run([Pair(id="p0")], folder="other")
    text = run("report", folder, other, "--format", "markdown").stdout.replace("\\", "")
    assert (f": {folder}" in text, f": {other}" in text) == (True, True)
    assert f": {folder}" not in run("report", folder, "--format", "markdown").stdout.replace("\\", "")


def test_formats_for_programs_take_only_one_run(make_run: MakeRun, tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_run([Pair(id="p")], folder=f"all/{name}")
    assert run("report", tmp_path / "all").stdout.count("JudgeBench:") == 2
    with pytest.raises(InputError, match="--format csv takes one table, got 2"):
        run("report", tmp_path / "all", "--format", "csv")


def test_parquet_needs_a_file(folder: Path) -> None:
    with pytest.raises(InputError, match="--format parquet is binary; give --out FILE"):
        run("report", folder, "--format", "parquet")


def test_a_report_with_prices_shows_the_cost(folder: Path) -> None:
    rows = json.loads(run("report", folder, "--format", "json", "--price-out", "5").stdout)["rows"]
    (cost,) = (row["value"] for row in rows if row["figure"] == "cost, all judgments")
    assert cost == pytest.approx(4 * 20 * 5 / 1e6)


def test_runs_are_compared(folder: Path, make_run: MakeRun) -> None:
    other = make_run([Pair(id=f"p{n}", named=(0, 0)) for n in range(4)], folder="other")
    rows = json.loads(run("compare", folder, other, "--format", "json").stdout)["rows"]
    assert (rows[0]["difference"], rows[0]["better"], rows[0]["p_holm"]) == (25.0, 1, 1.0)


@pytest.mark.slow
def test_the_plot_command_prints_the_files_it_writes(folder: Path, tmp_path: Path) -> None:
    done = run("plot", folder, "--out", tmp_path / "plots")
    assert set(done.stdout.split()) == {str(path) for path in (tmp_path / "plots").iterdir()}
    assert len(done.stdout.split()) == 8


@pytest.mark.slow
def test_a_run_is_exported(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "run.eval"
    done = run("export", folder, "--out", out, "--no-texts")
    assert done.stdout == f"{out}: 4 samples, 0 of them with prompts and responses\n"
    assert out.stat().st_size > 0


def test_exporting_several_runs_is_refused(make_run: MakeRun, tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_run([Pair(id="p")], folder=f"all/{name}")
    with pytest.raises(InputError, match=r"all contains 2 runs; give one, such as .*a"):
        run("export", tmp_path / "all", "--out", tmp_path / "run.eval")

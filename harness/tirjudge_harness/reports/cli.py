"""`tirjudge bench report`, `compare`, `plot` and `export`: make reports from the folders of runs."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tirjudge.prices import Prices
from tirjudge_harness.options import Data, PriceIn, PriceOut
from tirjudge_harness.reports.formats import ReportFormat
from tirjudge_harness.statistics.multiple_tests import Correction

if TYPE_CHECKING:
    from tirjudge_harness.reports.scored import ScoredRun
    from tirjudge_harness.reports.tables import ReportTable


class TableShape(StrEnum):
    """Kinds of tables: `run` is about one run; the others are tables of the paper."""

    RUN = "run"
    MAIN = "main"
    REWARDBENCH2 = "rewardbench2"
    SUBSETS = "subsets"
    BEST_OF_N = "best_of_n"


Folders = Annotated[list[Path], typer.Argument(help="Folders of runs, or folders that contain such folders.")]
ByProtocol = Annotated[
    str | None,
    typer.Option(
        "--protocol", help="paper, official, single_game, both_orders or votes=N. Default: the protocol of each run."
    ),
]
TableFormat = Annotated[ReportFormat, typer.Option("--format", help="Format of the table.")]
TableFile = Annotated[Path | None, typer.Option("--out", help="File to write. Default: standard output, or -.")]
Texts = Annotated[bool, typer.Option(help="Include prompts and responses.")]
STDOUT = "-"
"""Value of `--out` for standard output."""


def report(
    folders: Folders,
    shape: Annotated[
        TableShape, typer.Option(help="Table to make: all figures of each run, or a table of the paper.")
    ] = TableShape.RUN,
    protocol: ByProtocol = None,
    format: TableFormat = ReportFormat.TERMINAL,
    out: TableFile = None,
    published: Annotated[bool, typer.Option(help="Include the paper's rows in its tables.")] = True,
    name: Annotated[
        str | None, typer.Option(help="Name of our judge in the table. Default: the model name in its runs.")
    ] = None,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    html: Annotated[
        Path | None, typer.Option(help="Folder to write HTML pages to: report, items and comparisons of the runs.")
    ] = None,
    data: Data = None,
    texts: Texts = True,
) -> None:
    """Print tables of stored runs, with 95 % confidence intervals. Nothing is judged.

    With --html, the command writes pages that work without a server. --data and --texts are about these pages.

    With --protocol, the stored judgments are scored by a different protocol; it is an error if the run lacks judgments for
    it. A figure that is not comparable with the others in its column has a footnote with the reason.

    Examples:
        tirjudge bench report runs/judgebench
        tirjudge bench report runs/a runs/b --format latex --out table.tex
    """
    prices = Prices(input=price_in, output=price_out)
    if html is not None:
        from tirjudge_harness.reports.pages.export import export_pages

        export_pages(folders, out=html, protocol=protocol, prices=prices, data=data, with_texts=texts)
        return
    write_tables(
        _tables(
            folders,
            shape=shape,
            protocol=protocol,
            published=published,
            name=name,
            prices=prices,
        ),
        format=format,
        out=out,
    )


def compare(
    folders: Annotated[
        list[Path], typer.Argument(help="Folders of runs. The first run of each benchmark is the baseline.")
    ],
    correction: Annotated[
        Correction, typer.Option(help="Correction for multiple tests: Holm's, or Benjamini and Hochberg's (bh).")
    ] = Correction.HOLM,
    protocol: ByProtocol = None,
    format: TableFormat = ReportFormat.TERMINAL,
    out: TableFile = None,
) -> None:
    """Print paired differences between runs of the same benchmark, or of the same rows of your own.

    Each difference has a 95 % confidence interval, the p-value of McNemar's test, and the p-value corrected for
    multiple tests.

    Examples:
        tirjudge bench compare runs/a runs/b
    """
    from tirjudge_harness.reports.comparison import comparison_table

    table = comparison_table(_scored(folders, protocol=protocol), correction=correction)
    write_tables([table], format=format, out=out)


def plot(
    folders: Folders,
    out: Annotated[Path, typer.Option(help="Folder to write SVG and PNG files to.")],
    protocol: ByProtocol = None,
) -> None:
    """Plot runs: accuracy against tokens and seconds, reliability, order flips and position bias.

    Examples:
        tirjudge bench plot runs/a runs/b --out plots
    """
    from tirjudge_harness.reports.plots import write_plots

    for file in write_plots(_scored(folders, protocol=protocol), out=out):
        typer.echo(str(file))


def export(
    folder: Annotated[Path, typer.Argument(help="Folder of one run.")],
    out: Annotated[Path, typer.Option(help="File to write; its name must end in .eval.")],
    data: Data = None,
    texts: Annotated[bool, typer.Option(help="Include prompts and responses in the log.")] = True,
    protocol: ByProtocol = None,
) -> None:
    """Export a run as an Inspect log for `inspect view`. Each sample has the judge's messages, programs and score.

    The folder of a run does not contain prompts and responses. They are read from --data, or from the data that the run
    was given.

    Examples:
        tirjudge bench export runs/judgebench --out logs
    """
    from tirjudge_harness.items import InputError
    from tirjudge_harness.reports.inspect_log import inspect_log, write_inspect_log
    from tirjudge_harness.reports.scored import run_folders, score_run
    from tirjudge_harness.reports.texts import texts_of
    from tirjudge_harness.run import read_plan

    found_in = run_folders([folder])
    if len(found_in) > 1:
        raise InputError(f"{folder} contains {len(found_in)} runs; give one, such as {found_in[0]}")
    run = score_run(found_in[0], protocol=protocol)
    found = texts_of(run, data=data) if texts else {}
    log = inspect_log(run, planned=read_plan(run.path), texts=found)
    write_inspect_log(log, out=out)
    num = len(log.samples or ())
    typer.echo(f"{out}: {num:,} samples, {len(found):,} of them with prompts and responses")


def _scored(folders: list[Path], *, protocol: str | None) -> list[ScoredRun]:
    from tirjudge_harness.reports.scored import run_folders, score_run

    return [score_run(folder, protocol=protocol) for folder in run_folders(folders)]


def _tables(
    folders: list[Path],
    *,
    shape: TableShape,
    protocol: str | None,
    published: bool,
    name: str | None,
    prices: Prices,
) -> list[ReportTable]:
    from tirjudge_harness.reports.run_table import run_table
    from tirjudge_harness.reports.shapes import paper_table

    if shape is TableShape.BEST_OF_N:
        from tirjudge_harness.reports.best_of_n import best_of_n_table, results_in

        return [best_of_n_table(results_in(folders), with_published=published, name=name)]
    runs = _scored(folders, protocol=protocol)
    if shape is TableShape.RUN:
        tables = [(run, run_table(run, prices=prices)) for run in runs]
        return [replace(one, title=f"{one.title}: {run.path}") if len(runs) > 1 else one for run, one in tables]
    return [paper_table(shape.value, runs, with_published=published, name=name)]


def write_tables(tables: list[ReportTable], *, format: ReportFormat, out: Path | None) -> None:
    """Write tables to a file or to standard output, one below the other.

    Raises:
        InputError: the format takes only one table, or cannot be written to standard output.
    """
    import sys

    from rich.console import Console

    from tirjudge_harness.items import InputError
    from tirjudge_harness.reports.formats import print_table, render
    from tirjudge_harness.run_store import write_output

    if len(tables) > 1 and format in (ReportFormat.CSV, ReportFormat.PARQUET, ReportFormat.JSON):
        raise InputError(
            f"--format {format.value} takes one table, got {len(tables)} (one per run); give one run at a time"
        )
    if out is not None and str(out) != STDOUT:
        write_output(out, b"\n".join(render(table, format) for table in tables))
    elif format is ReportFormat.TERMINAL:
        console = Console()
        for table in tables:
            print_table(table, console=console)
    elif format is ReportFormat.PARQUET:
        raise InputError("--format parquet is binary; give --out FILE")
    else:
        sys.stdout.write("\n".join(render(table, format).decode() for table in tables))

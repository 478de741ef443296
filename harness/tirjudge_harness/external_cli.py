"""`tirjudge bench score`: verdicts made elsewhere, scored by the rules of a benchmark or by the labels that they carry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tirjudge.types import Mode
from tirjudge_harness.options import AsJson, Data, Parts

if TYPE_CHECKING:
    from tirjudge_harness.evaluation import Evaluation
    from tirjudge_harness.examples import ExampleMetadata
    from tirjudge_harness.labelled import Labelled
    from tirjudge_harness.reports.tables import ReportTable
    from tirjudge_harness.statistics.agreement import Agreement


def score(
    decisions: Annotated[
        Path,
        typer.Option(
            help='JSONL, perhaps .gz: {"id", "decisions": ["A>B", null, ...]}, one a look, or {"id", "scores": [...]}.'
        ),
    ],
    benchmark: Annotated[
        str | None, typer.Argument(help="As `tirjudge bench list` has it; without one, lines carry a label.")
    ] = None,
    data: Data = None,
    part: Parts = None,
    mode: Annotated[Mode | None, typer.Option(help="Default: by what the file holds.")] = None,
    protocol: Annotated[str, typer.Option(help="official, paper, both_orders or votes=N.")] = "official",
    flipped: Annotated[
        bool,
        typer.Option("--flipped", help="Decisions are in the labels of the first look, not each in those of its own."),
    ] = False,
    json: AsJson = False,
) -> None:
    """Score verdicts that were made elsewhere.

    The responses are taken to be shown as they are listed at the first look, the other way round at the second, and so
    on by turns; A is what was shown first. "A>>B" is "A>B", "A=B" a tie, a letter names one of many, null is no verdict;
    "shown", such as [[0, 3], [3, 0]], says that other responses were shown. Examples without a line are missing, and in
    no figure. Without a benchmark, a line says what is right in "label" (an index, "A>B" or "A=B"), and perhaps its
    "subset"; then accuracy is given by every rule, with agreement and what the second order changed.
    """
    from json import dumps

    from rich.console import Console

    from tirjudge_harness.external import read_decisions
    from tirjudge_harness.items import InputError
    from tirjudge_harness.labelled import add_up, as_json
    from tirjudge_harness.reports.formats import print_table

    if benchmark is None:
        if data is not None or part:
            raise InputError("--data, --part given without a benchmark; name it, or leave them out")
        labelled = add_up(read_decisions(decisions, None, mode=mode, flipped=flipped))
        result, tables = as_json(labelled), _labelled_tables(labelled, title=decisions.name)
    else:
        evaluation, name = _evaluation(
            benchmark, decisions, data=data, parts=part or [], mode=mode, protocol=protocol, flipped=flipped
        )
        result = _as_json(evaluation, benchmark=benchmark, protocol=protocol)
        tables = [_benchmark_table(evaluation, title=f"{name}, {protocol}")]
    if json:
        typer.echo(dumps(result))
        return
    console = Console()
    for place, table in enumerate(tables):
        if place:
            console.print()
        print_table(table, console=console)


def _evaluation(
    name: str,
    decisions: Path,
    *,
    data: Path | None,
    parts: list[str],
    mode: Mode | None,
    protocol: str,
    flipped: bool,
) -> tuple[Evaluation, str]:
    """What the file earns on a benchmark, and the benchmark's title."""
    from tirjudge_harness.benchmark import BENCHMARKS
    from tirjudge_harness.evaluation import evaluate
    from tirjudge_harness.external import read_decisions
    from tirjudge_harness.items import InputError
    from tirjudge_harness.protocols import find_protocol

    try:
        benchmark, counting = BENCHMARKS.named(name), find_protocol(protocol)
    except ValueError as error:
        raise InputError(str(error)) from error
    judged = read_decisions(decisions, _outlines(name, data=data, parts=parts), mode=mode, flipped=flipped)
    try:
        return evaluate(benchmark, judged, mode=judged[0].mode, protocol=counting), benchmark.title
    except ValueError as error:
        raise InputError(f"{decisions}: {error}") from error


def _outlines(name: str, *, data: Path | None, parts: list[str]) -> list[ExampleMetadata]:
    from rich.console import Console

    from tirjudge_harness.benchmark import BENCHMARKS
    from tirjudge_harness.sources import load_examples

    console = Console(stderr=True)
    examples = load_examples(
        BENCHMARKS.named(name),
        data=data,
        parts=parts,
        on_bad=lambda row: console.print(str(row), markup=False, highlight=False, soft_wrap=True),
    )
    return [example.outline for example in examples]


def _as_json(evaluation: Evaluation, *, benchmark: str, protocol: str) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "benchmark": benchmark,
        "protocol": protocol,
        "figures": [asdict(figure) for figure in evaluation.figures],
        "counts": asdict(evaluation.counts),
    }


def _benchmark_table(evaluation: Evaluation, *, title: str) -> ReportTable:
    from tirjudge_harness.reports.tables import Column, ReportTable, TableEntry, TableRow, percent

    columns = (
        Column(key="figure", title="", kind="text"),
        Column(key="value", title="%"),
        Column(key="num", title="n", kind="count"),
    )
    rows = [
        TableRow(
            entries=(
                TableEntry(value=figure.name),
                percent(figure.value, interval=figure.interval),
                TableEntry(value=figure.num_marks),
            ),
            depth=figure.depth,
        )
        for figure in evaluation.figures
    ]
    return ReportTable(title=title, columns=columns, rows=tuple(rows), notes=(_counted(evaluation),))


def _counted(evaluation: Evaluation) -> str:
    counts = evaluation.counts
    return (
        f"{counts.marks} comparisons of {counts.examples} examples: {counts.right} right, {counts.wrong} wrong, "
        f"{counts.ties} ties, {counts.no_verdict} without a verdict; {counts.missing} missing"
    )


def _labelled_tables(labelled: Labelled, *, title: str) -> list[ReportTable]:
    """Accuracy by each rule, and what else can be said."""
    from tirjudge_harness.reports.tables import Column, ReportTable, TableEntry, TableRow, percent

    evaluations = labelled.by_rule
    columns = (
        Column(key="subset", title="", kind="text"),
        *(Column(key=rule, title=rule) for rule in evaluations),
        Column(key="num", title="n", kind="count"),
    )
    rows = [
        TableRow(
            entries=(
                TableEntry(value=figures[0].name or "(none)"),
                *(percent(figure.value, interval=figure.interval) for figure in figures),
                TableEntry(value=figures[0].num_marks),
            )
        )
        for figures in zip(*(evaluation.figures for evaluation in evaluations.values()), strict=True)
    ]
    notes = [f"{rule}: {_counted(evaluation)}" for rule, evaluation in evaluations.items()]
    if labelled.num_unlabelled:
        notes.append(f"{labelled.num_unlabelled} examples without one right response are in no accuracy")
    accuracy = ReportTable(title=f"{title}, accuracy in %", columns=columns, rows=tuple(rows), notes=tuple(notes))
    return [accuracy, *_other_tables(labelled)]


def _other_tables(labelled: Labelled) -> list[ReportTable]:
    from tirjudge_harness.reports.tables import Column, ReportTable, TableEntry, TableRow, percent

    rows: list[TableRow] = []

    def add(name: str, agreement: Agreement) -> None:
        same = agreement.same
        kappa = TableEntry(value=agreement.kappa, interval=agreement.interval)
        rows.append(
            TableRow(
                entries=(
                    TableEntry(value=name),
                    percent(same.value, interval=same.interval),
                    kappa,
                    TableEntry(value=same.num),
                )
            )
        )

    if labelled.agreement is not None:
        add("first look and label", labelled.agreement)
    if (both := labelled.both_orders) is not None:
        add("first order and second", both.agreement)
        rate = both.flips.rate
        flips = percent(rate.value, interval=rate.interval)
        rows.append(
            TableRow(entries=(TableEntry(value="flips, of decided"), flips, TableEntry(), TableEntry(value=rate.num)))
        )
    columns = (
        Column(key="what", title="", kind="text"),
        Column(key="value", title="%"),
        Column(key="kappa", title="kappa", kind="number"),
        Column(key="num", title="n", kind="count"),
    )
    return [ReportTable(title="Agreement", columns=columns, rows=tuple(rows))] if rows else []

"""Tables and charts of reports as views for pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tirjudge.calibration import Calibration
from tirjudge_harness.reports.published import published
from tirjudge_harness.reports.run_statistics import RunStatistics
from tirjudge_harness.reports.scored import ScoredRun
from tirjudge_harness.reports.shapes import JUDGE, MODE, TITLES, paper_table
from tirjudge_harness.reports.tables import Column, ReportTable, TableRow, footnotes, num_row, plain, shown
from tirjudge_harness.statistics.intervals import Estimate
from tirjudge_pages.bench.views import ChartPoint, ChartView, TableCell, TableHead, TableLine, TableView

JUDGE_COLUMNS = (JUDGE.key, MODE.key)
"""Keys of the first columns of the paper's tables."""


def table_view(table: ReportTable) -> TableView:
    """Return a table as readers see it, with footnotes and the numbers of comparisons."""
    symbols = footnotes(table)
    lines = []
    for row in table.rows:
        cells = [
            TableCell(text=shown(entry, column=column), notes="".join(symbols[note] for note in entry.notes))
            for entry, column in zip(row.entries, table.columns, strict=True)
        ]
        lines.append(TableLine(cells=tuple(cells), depth=row.depth, is_ours=row.ours))
        if (nums := num_row(table, row)) is not None:
            lines.append(TableLine(cells=tuple(TableCell(text=text) for text in nums), depth=row.depth))
    return TableView(
        title=plain(table.title),
        heads=tuple(
            TableHead(title=column.title, group=column.group, is_number=column.kind != "text")
            for column in table.columns
        ),
        lines=tuple(lines),
        notes=(*(f"{symbol} {plain(note)}" for note, symbol in symbols.items()), *map(plain, table.notes)),
    )


def section_table(title: str, *, columns: Sequence[Column], rows: Iterable[TableRow]) -> TableView:
    """Return rows of a run as a table. They are all about the run, so that none is marked as ours."""
    unmarked = tuple(replace(row, ours=False) for row in rows)
    return table_view(ReportTable(title=title, columns=tuple(columns), rows=unmarked))


def published_tables(run: ScoredRun) -> tuple[TableView, ...]:
    """Return the paper's tables with the columns of the run's benchmark only, and our row. Empty: the paper has none."""
    found = []
    for shape in TITLES:
        keys = {column.key for column in published(shape).columns if column.benchmark == run.benchmark.name}
        if not keys:
            continue
        table = paper_table(shape, [run])
        kept = [at for at, column in enumerate(table.columns) if column.key in {*JUDGE_COLUMNS, *keys}]
        rows = [replace(row, entries=tuple(row.entries[at] for at in kept)) for row in table.rows]
        rows = [row for row in rows if any(entry.value is not None for entry in row.entries[len(JUDGE_COLUMNS) :])]
        found.append(table_view(replace(table, columns=tuple(table.columns[at] for at in kept), rows=tuple(rows))))
    return tuple(found)


def charts_of(statistics: RunStatistics) -> dict[str, tuple[ChartView, ...]]:
    """Return the charts of a run by the title of the section. A chart without data is left out."""
    found = {
        "Coverage and basis": [
            _shares(
                "Accuracy by basis",
                [(f"verdicts {one.basis}", one.accuracy) for one in statistics.verdict_rates.by_basis],
            )
        ],
        "Programs": [_programs(statistics), _errors(statistics)],
        "Position and length": [
            _shares(
                "First of two shown is chosen",
                [("first of 2", one.named[0]) for one in statistics.positions if one.num_shown == 2],
                reference=50.0,
            ),
            _shares("Verdicts that flip with the order", [("flipped", statistics.flips.rate)]),
        ],
        "Calibration": [_reliability(statistics.calibration)],
    }
    kept = {title: tuple(chart for chart in charts if chart is not None) for title, charts in found.items()}
    return {title: charts for title, charts in kept.items() if charts}


def _programs(statistics: RunStatistics) -> ChartView | None:
    use = statistics.tool_use
    return _shares(
        "Accuracy by use of programs",
        [("with programs", use.with_programs), ("without programs", use.without_programs)],
    )


def _errors(statistics: RunStatistics) -> ChartView | None:
    errors = statistics.code_errors
    return _shares(
        "Programs that failed", [(one.kind.value, one.of_programs) for one in errors if one.of_programs.value]
    )


def _shares(title: str, shares: Iterable[tuple[str, Estimate]], *, reference: float | None = None) -> ChartView | None:
    points = []
    for label, share in shares:
        if share.value is None:
            continue
        low, high = share.interval or (share.value, share.value)
        points.append(ChartPoint(label=label, value=100 * share.value, low=100 * low, high=100 * high, num=share.num))
    return ChartView(kind="shares", title=title, points=tuple(points), reference=reference) if points else None


def _reliability(found: Calibration) -> ChartView | None:
    if not found.num:
        return None
    points = tuple(
        ChartPoint(
            label=f"confidence {100 * one.low:.0f} to {100 * one.high:.0f} %",
            value=100 * one.accuracy,
            low=100 * one.interval[0],
            high=100 * one.interval[1],
            num=one.num,
            at=100 * one.confidence,
        )
        for one in found.bins
    )
    return ChartView(kind="reliability", title="Reliability", points=points)

"""The paper's tables with our rows below: one row per judge, filled from its runs.

Footnotes state why one of our figures is not comparable with published ones: a different protocol, a sample of the
examples, missing comparisons, or parts of the benchmark that were not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from tirjudge.selective import selective_accuracy
from tirjudge_harness.items import InputError
from tirjudge_harness.metric_tree import MetricValue
from tirjudge_harness.protocols import PAPER
from tirjudge_harness.reports.published import Published, published
from tirjudge_harness.reports.scored import ScoredRun
from tirjudge_harness.reports.selective import verdicts_line
from tirjudge_harness.reports.tables import Column, ReportTable, TableEntry, TableRow, percent, row

Paper = Literal["main", "rewardbench2", "subsets"]
"""Names of the paper's tables."""

TITLES: Mapping[Paper, str] = {
    "main": "Judge benchmarks, accuracy in percent",
    "rewardbench2": "RewardBench 2, best of four, accuracy in percent",
    "subsets": "RewardBench, RM-Bench and JudgeBench by part, accuracy in percent",
}

NOTES: Mapping[Paper, tuple[str, ...]] = {
    "main": (
        "PPE: mean of five sets. RewardBench: mean of four sections. RM-Bench: mean of four domains. JudgeBench: mean of "
        "350 pairs. CodeJudgeBench: our rows are over all pairs of its tasks; the paper does not state its method.",
    ),
    "rewardbench2": ("Avg: our rows have the mean of these five tasks, without Ties.",),
    "subsets": ("RewardBench: mean of four sections. RM-Bench: mean of four domains. JudgeBench: mean of 350 pairs.",),
}

READING = (
    "The paper shows responses in one random order and gives half a point for equal scores.",
    "±: the longer arm of the 95 % interval. n: the number of comparisons. Published rows have neither.",
)
"""Notes below each of the paper's tables."""

JUDGE, MODE = Column(key="judge", title="Judge", kind="text"), Column(key="mode", title="Mode", kind="text")


def paper_table(
    shape: Paper, runs: Sequence[ScoredRun], *, with_published: bool = True, name: str | None = None
) -> ReportTable:
    """Return one of the paper's tables.

    Args:
        shape: which table.
        runs: our runs. Runs of benchmarks without a column in the table are left out.
        with_published: whether to include the published rows.
        name: name of our judge in the table. None: the model name in its runs.

    Raises:
        InputError: the table has no column for any of the runs, or two runs belong in the same entries.
    """
    paper = published(shape)
    wanted = {column.benchmark for column in paper.columns}
    used = [run for run in runs if run.benchmark.name in wanted]
    return ReportTable(
        title=TITLES[shape],
        columns=(JUDGE, MODE, *(Column(key=one.key, title=one.title, group=one.group) for one in paper.columns)),
        rows=(*(_published_rows(paper) if with_published else ()), *_own_rows(paper, runs, shape=shape, name=name)),
        notes=(
            *NOTES[shape],
            *READING,
            *_coverage(used, name=name),
            *([f"Published rows: {paper.source}."] if with_published else []),
        ),
    )


def _coverage(runs: Sequence[ScoredRun], *, name: str | None) -> Iterator[str]:
    for run in runs:
        judge, mode = name or run.manifest.judge.model, run.manifest.mode_name
        found = selective_accuracy(mark.graded for mark in run.marks)
        yield f"{judge}, {mode}, {run.benchmark.title}: {verdicts_line(found)}."


def _published_rows(paper: Published) -> Iterator[TableRow]:
    for one in paper.rows:
        figures = (TableEntry(value=one.number(c.key), notes=one.notes_on(c.key)) for c in paper.columns)
        yield row(one.texts["judge"], one.texts["mode"], *figures)


def _own_rows(paper: Published, runs: Sequence[ScoredRun], *, shape: Paper, name: str | None) -> Iterator[TableRow]:
    """Yield one row per judge, mode and settings of the requests."""
    wanted = {column.benchmark for column in paper.columns}
    by_judge: dict[str, dict[str, ScoredRun]] = {}
    for run in runs:
        if run.benchmark.name in wanted:
            of_judge = by_judge.setdefault(_judge_key(run), {})
            if (other := of_judge.setdefault(run.benchmark.name, run)) is not run:
                raise InputError(
                    f"{other.path} and {run.path} are both runs of {run.benchmark.name} by the same judge; give one"
                )
    if runs and not by_judge:
        given = ", ".join(sorted({run.benchmark.name for run in runs}))
        raise InputError(f"--shape {shape}: needs runs of {', '.join(sorted(wanted))}; got runs of {given}")
    for of_judge in by_judge.values():
        manifest = next(iter(of_judge.values())).manifest
        figures = (_entry(of_judge.get(column.benchmark), figure=column.figure) for column in paper.columns)
        yield row(name or manifest.judge.model, manifest.mode_name, *figures, ours=True)


def _judge_key(run: ScoredRun) -> str:
    """Return a key that is equal for runs that belong in one row."""
    manifest = run.manifest
    judge = manifest.judge.fingerprint or manifest.judge.url
    asked = (manifest.mode, manifest.tools, manifest.max_tool_calls, manifest.votes, manifest.seed, manifest.attack)
    return repr((manifest.judge.model, judge, *asked, run.protocol.name))


def _entry(run: ScoredRun | None, *, figure: str) -> TableEntry:
    found = None if run is None else run.figure(figure)
    if run is None or found is None:
        return TableEntry()
    notes = _notes(run, found) if found.value is not None else ()
    entry = percent(found.value, interval=found.interval, num=found.num_marks)
    return replace(entry, notes=tuple(f"Not comparable. {note}." for note in notes))


def _notes(run: ScoredRun, figure: MetricValue) -> list[str]:
    """Return the reasons why a figure is not comparable with published ones."""
    manifest, notes = run.manifest, []
    if run.protocol.name != PAPER.name:
        notes.append(f"Scored by {run.protocol.name}")
    if manifest.attack is not None:
        notes.append(f"Under the attack {manifest.attack}")
    if manifest.data.limit is not None:
        notes.append(f"A sample of {manifest.data.num_examples} examples")
    if manifest.shard is not None:
        notes.append(f"Shard {manifest.shard} only")
    if run.counts.missing:
        notes.append(f"{run.counts.missing:,} comparisons of {run.benchmark.title} are missing")
    if without := _parts_without_value(run, figure):
        notes.append(f"Without {', '.join(without)}, which were not judged")
    return notes


def _parts_without_value(run: ScoredRun, figure: MetricValue) -> list[str]:
    """Return the names of the top-level parts of a figure that have no value."""
    start = next(index for index, one in enumerate(run.figures) if one is figure)
    names: list[str] = []
    skipped: int | None = None
    for one in run.figures[start + 1 :]:
        if one.depth <= figure.depth:
            break
        if skipped is not None and one.depth > skipped:
            continue
        skipped = one.depth if one.value is None else None
        if one.value is None:
            names.append(one.name)
    return names

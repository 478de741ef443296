"""The paper's tables with our rows below theirs: one row a judge, filled from the runs of it that there are.

What keeps a figure of ours from being set beside a published one is found in the run, and noted at the entry: another
protocol, a sample of the examples, comparisons that are missing, parts of the benchmark that were not judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tirjudge_harness.items import InputError
from tirjudge_harness.metric_tree import MetricValue
from tirjudge_harness.protocols import PAPER
from tirjudge_harness.reports.published import published
from tirjudge_harness.reports.scored import ScoredRun
from tirjudge_harness.reports.tables import Column, ReportTable, TableEntry, TableRow, percent

Paper = Literal["main", "rewardbench2", "subsets"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePosition:
    """A column of a published table, and which figure of ours belongs there."""

    key: str
    """Of the published column."""
    title: str
    group: str = ""
    benchmark: str
    figure: str


def _places(benchmark: str, group: str, figures: Mapping[str, tuple[str, str]]) -> tuple[TablePosition, ...]:
    return tuple(
        TablePosition(key=key, title=title, group=group, benchmark=benchmark, figure=figure)
        for key, (title, figure) in figures.items()
    )


PLACES: Mapping[Paper, tuple[TablePosition, ...]] = {
    "main": (
        *_places(
            "ppe",
            "PPE",
            {
                "ppe_mmlu_pro": ("MMLU-Pro", "mmlu_pro"),
                "ppe_math": ("MATH", "math"),
                "ppe_gpqa": ("GPQA", "gpqa"),
                "ppe_mbpp_plus": ("MBPP+", "mbpp_plus"),
                "ppe_ifeval": ("IFEval", "ifeval"),
                "ppe_avg": ("Avg", "average"),
            },
        ),
        *_places("ifbench", "", {"ifbench": ("IFBench", "overall")}),
        *_places("codejudgebench", "", {"codejudgebench": ("CodeJudgeBench", "all pairs")}),
        *_places("rewardbench", "", {"rewardbench_avg": ("RewardBench", "average")}),
        *_places("rmbench", "", {"rm_bench_avg": ("RM-Bench", "overall")}),
        *_places("judgebench", "", {"judgebench_avg": ("JudgeBench", "overall")}),
    ),
    "rewardbench2": _places(
        "rewardbench2",
        "",
        {
            "if": ("IF", "Precise IF"),
            "math": ("Math", "Math"),
            "factuality": ("Factuality", "Factuality"),
            "focus": ("Focus", "Focus"),
            "safety": ("Safety", "Safety"),
            "avg": ("Avg", "average without Ties"),
        },
    ),
    "subsets": (
        *_places(
            "rewardbench",
            "RewardBench",
            {
                "rewardbench_chat": ("Chat", "Chat"),
                "rewardbench_chat_hard": ("Chat Hard", "Chat Hard"),
                "rewardbench_safety": ("Safety", "Safety"),
                "rewardbench_reasoning": ("Reasoning", "Reasoning"),
                "rewardbench_avg": ("Avg", "average"),
            },
        ),
        *_places(
            "rmbench",
            "RM-Bench",
            {
                "rm_bench_chat": ("Chat", "chat"),
                "rm_bench_math": ("Math", "math"),
                "rm_bench_code": ("Code", "code"),
                "rm_bench_safety": ("Safety", "safety"),
                "rm_bench_avg": ("Avg", "overall"),
            },
        ),
        *_places(
            "judgebench",
            "JudgeBench",
            {
                "judgebench_math": ("Math", "math"),
                "judgebench_code": ("Code", "coding"),
                "judgebench_knowledge": ("Knowledge", "knowledge"),
                "judgebench_reasoning": ("Reasoning", "reasoning"),
                "judgebench_avg": ("Avg", "overall"),
            },
        ),
    ),
}

TITLES: Mapping[Paper, str] = {
    "main": "Judge benchmarks, accuracy in percent",
    "rewardbench2": "RewardBench 2, best of four, accuracy in percent",
    "subsets": "RewardBench, RM-Bench and JudgeBench by part, accuracy in percent",
}

NOTES: Mapping[Paper, tuple[str, ...]] = {
    "main": (
        "PPE: the mean of its five sets. RewardBench: of its four sections. RM-Bench: of its four domains. JudgeBench: of "
        "its 350 pairs. CodeJudgeBench: ours over all pairs of its tasks; the paper does not say whether its own is.",
    ),
    "rewardbench2": ("Avg: ours is the mean of these five, without Ties.",),
    "subsets": ("RewardBench: the mean of four sections. RM-Bench: of four domains. JudgeBench: of 350 pairs.",),
}

READING = (
    "The paper shows one random order and gives half a point for equal scores.",
    "± is the longer arm of the 95 % interval of ours, n its number of comparisons; published rows come without.",
)

JUDGE, MODE = Column(key="judge", title="Judge", kind="text"), Column(key="mode", title="Mode", kind="text")


def paper_table(
    shape: Paper, runs: Sequence[ScoredRun], *, with_published: bool = True, name: str | None = None
) -> ReportTable:
    """One of the paper's tables.

    Args:
        shape: which one.
        runs: of any benchmarks; those that the table has no place for are left out.
        with_published: whether the published rows are in it.
        name: what our judge is called; None: what its runs say.

    Raises:
        InputError: no run has a place in it, or two have the same one.
    """
    places = PLACES[shape]
    rows = _published_rows(shape) if with_published else []
    source = (f"Published rows: {published(shape).source}.",) if with_published else ()
    return ReportTable(
        title=TITLES[shape],
        columns=(JUDGE, MODE, *(Column(key=place.key, title=place.title, group=place.group) for place in places)),
        rows=(*rows, *_own_rows(shape, runs, name=name)),
        notes=(*NOTES[shape], *READING, *source),
    )


def _published_rows(shape: Paper) -> list[TableRow]:
    return [
        TableRow(
            entries=(
                TableEntry(value=row.texts["judge"]),
                TableEntry(value=row.texts["mode"]),
                *(TableEntry(value=row.number(place.key), notes=row.notes_on(place.key)) for place in PLACES[shape]),
            )
        )
        for row in published(shape).rows
    ]


def _own_rows(shape: Paper, runs: Sequence[ScoredRun], *, name: str | None) -> list[TableRow]:
    """One a judge, a mode and a way of asking."""
    wanted = {place.benchmark for place in PLACES[shape]}
    by_judge: dict[str, dict[str, ScoredRun]] = {}
    for run in runs:
        if run.benchmark.name not in wanted:
            continue
        row = by_judge.setdefault(_judge_key(run), {})
        if other := row.get(run.benchmark.name):
            raise InputError(f"{other.path} and {run.path}: both are {run.benchmark.name} by the same judge; give one")
        row[run.benchmark.name] = run
    if runs and not by_judge:
        given = ", ".join(sorted({run.benchmark.name for run in runs}))
        raise InputError(f"--shape {shape}: has {', '.join(sorted(wanted))}, the runs given are of {given}")
    return [_own_row(shape, row, name=name) for row in by_judge.values()]


def _own_row(shape: Paper, runs: Mapping[str, ScoredRun], *, name: str | None) -> TableRow:
    """From runs by benchmark."""
    manifest = next(iter(runs.values())).manifest
    figures = (_entry(runs.get(place.benchmark), figure=place.figure) for place in PLACES[shape])
    return TableRow(
        entries=(TableEntry(value=name or manifest.judge.model), TableEntry(value=manifest.mode.value), *figures),
        ours=True,
    )


def _judge_key(run: ScoredRun) -> str:
    """What runs have in common that belong in one row."""
    manifest = run.manifest
    judge = manifest.judge.fingerprint or manifest.judge.url
    asked = (manifest.mode, manifest.tools, manifest.max_tool_calls, manifest.votes, manifest.seed, manifest.attack)
    return repr((manifest.judge.model, judge, *asked, run.protocol.name))


def _entry(run: ScoredRun | None, *, figure: str) -> TableEntry:
    found = None if run is None else run.figure(figure)
    if run is None or found is None:
        return TableEntry()
    entry = percent(found.value, interval=found.interval, num=found.num_marks)
    notes = _notes(run, found) if found.value is not None else ()
    return TableEntry(
        value=entry.value, interval=entry.interval, num=entry.num, notes=tuple(map(_not_comparable, notes))
    )


def _not_comparable(note: str) -> str:
    return f"Not comparable. {note}."


def _notes(run: ScoredRun, figure: MetricValue) -> list[str]:
    """What keeps a figure of ours from being set beside a published one."""
    manifest, notes = run.manifest, []
    if run.protocol.name != PAPER.name:
        notes.append(f"Scored by {run.protocol.name}")
    if manifest.attack is not None:
        notes.append(f"Under the attack {manifest.attack}")
    if manifest.data.limit is not None:
        notes.append(f"A sample of {manifest.data.num_examples} examples")
    if manifest.shard is not None:
        notes.append(f"Shard {manifest.shard} alone")
    if run.counts.missing:
        notes.append(f"{run.counts.missing:,} comparisons of {run.benchmark.title} are missing")
    if without := _parts_without_value(run, figure):
        notes.append(f"Without {', '.join(without)}, of which nothing was judged")
    return notes


def _parts_without_value(run: ScoredRun, figure: MetricValue) -> list[str]:
    """The largest parts of a figure that have no value."""
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

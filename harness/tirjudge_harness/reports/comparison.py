"""Runs against a first one, on what each pair has in common: differences, intervals, and which of them is no chance."""

from __future__ import annotations

from collections.abc import Sequence

from tirjudge_harness.items import InputError, as_input_error
from tirjudge_harness.reports.scored import ScoredRun
from tirjudge_harness.reports.tables import Column, ReportTable, percent, row
from tirjudge_harness.statistics.paired import common_of, differences_of, holm

COLUMNS = (
    Column(key="figure", title="Figure", kind="text"),
    Column(key="benchmark", title="Benchmark", kind="text"),
    Column(key="run", title="Run", kind="text"),
    Column(key="n", title="n", kind="count"),
    Column(key="first", title="First"),
    Column(key="this", title="This"),
    Column(key="difference", title="Difference (95 %)", kind="points", ends=True),
    Column(key="better", title="Better", kind="count"),
    Column(key="worse", title="Worse", kind="count"),
    Column(key="p", title="p (McNemar)", kind="number"),
    Column(key="p_holm", title="p (Holm)", kind="number"),
)


def comparison_table(runs: Sequence[ScoredRun]) -> ReportTable:
    """Every run but the first of a benchmark against that first one.

    Holm's correction is over the figures that benchmarks are cited by, one a pair of runs: those are what such a table is
    read for. Their parts have a p-value of their own, uncorrected, for orientation.

    Raises:
        InputError: there is nothing to compare.
    """
    pairs = _pairs(runs)
    found = []
    for first, second in pairs:
        with as_input_error(f"{first.path} and {second.path}"):
            common = common_of(first.marks, second.marks)
        sheet = first.benchmark.sheet
        found.append((common, differences_of(sheet, common, judged=(first.judged, second.judged))))
    heads = [difference for _, differences in found for difference in differences[:1]]
    tested = [at for at, head in enumerate(heads) if head.p_value is not None]
    p_values = [p for head in heads if (p := head.p_value) is not None]
    corrected = dict(zip(tested, holm(p_values), strict=True))
    rows, notes = [], []
    for at, ((first, second), (common, differences)) in enumerate(zip(pairs, found, strict=True)):
        for place, one in enumerate(differences):
            if not one.num_common:
                continue
            rows.append(
                row(
                    one.name,
                    second.benchmark.name,
                    str(second.path),
                    one.num_common,
                    percent(one.first),
                    percent(one.second),
                    percent(one.difference, interval=one.interval),
                    one.num_better,
                    one.num_worse,
                    one.p_value,
                    corrected.get(at) if place == 0 else None,
                    depth=one.depth,
                    ours=True,
                )
            )
        notes += _notes(first, second, only=(common.only_first, common.only_second))
    return ReportTable(
        title="Paired differences, in percentage points",
        columns=COLUMNS,
        rows=tuple(rows),
        notes=(
            *dict.fromkeys(notes),
            "Intervals come from resamples of prompts; p (Holm) is corrected for the number of runs compared. Better and "
            "worse: comparisons of which the run earned more, or less, than the first.",
        ),
    )


def run_name(run: ScoredRun) -> str:
    manifest = run.manifest
    asked = f"{manifest.mode.value}, tools {manifest.tools}, seed {manifest.seed}, protocol {run.protocol.name}"
    return f"{run.path}: {manifest.judge.model}, {asked}"


def _pairs(runs: Sequence[ScoredRun]) -> list[tuple[ScoredRun, ScoredRun]]:
    firsts: dict[str, ScoredRun] = {}
    pairs = []
    for run in runs:
        first = firsts.setdefault(run.benchmark.name, run)
        if first is not run:
            pairs.append((first, run))
    if not pairs:
        names = ", ".join(f"{run.path} ({run.benchmark.name})" for run in runs)
        raise InputError(f"nothing to compare: no two runs of one benchmark in {names}")
    return pairs


def _notes(first: ScoredRun, second: ScoredRun, *, only: tuple[int, int]) -> list[str]:
    """What a reader has to know about the two."""
    notes = [f"First of {first.benchmark.name}: {run_name(first)}.", f"{run_name(second)}."]
    if first.protocol.name != second.protocol.name:
        notes.append(
            f"{second.path} is scored by {second.protocol.name}: part of the difference may be the protocol's."
        )
    if first.manifest.data.sha256 != second.manifest.data.sha256:
        notes.append(f"{second.path} was shown other examples or another sample of them.")
    if any(only):
        notes.append(f"{only[0]} comparisons of {first.path} and {only[1]} of {second.path} alone are left out.")
    return notes

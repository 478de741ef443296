"""Compare runs with a baseline run on their common comparisons: paired differences, intervals and p-values."""

from __future__ import annotations

from collections.abc import Sequence

from tirjudge_harness.items import InputError, as_input_error
from tirjudge_harness.reports.scored import ScoredRun
from tirjudge_harness.reports.selective import common_line
from tirjudge_harness.reports.tables import Column, ReportTable, percent, row
from tirjudge_harness.statistics.paired import NO_COMPARISONS, Common, common_of, differences_of, holm

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
    """Compare every run with the first run of the same benchmark.

    Holm's correction covers the main figure of each pair of runs, one p-value per pair. The parts of a figure have
    uncorrected p-values only.

    Raises:
        InputError: no two runs have the same benchmark, or two runs have no common comparisons.
    """
    pairs = _pairs(runs)
    found = []
    for first, second in pairs:
        common = NO_COMPARISONS
        if first.marks or second.marks:
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
        notes += _notes(first, second, common=common)
    return ReportTable(
        title="Paired differences, in percentage points",
        columns=COLUMNS,
        rows=tuple(rows),
        notes=(
            *dict.fromkeys(notes),
            "Intervals: bootstrap over prompts. p (Holm): corrected for the number of runs compared. Better and worse: "
            "number of comparisons on which the run scores higher, or lower, than the first run.",
        ),
    )


def run_name(run: ScoredRun) -> str:
    """Return a line that identifies a run: folder, model, mode, tools, seed and protocol."""
    manifest = run.manifest
    asked = f"{manifest.mode_name}, tools {manifest.tools}, seed {manifest.seed}, protocol {run.protocol.name}"
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
        raise InputError(f"nothing to compare: give two runs of the same benchmark, got {names}")
    return pairs


def _notes(first: ScoredRun, second: ScoredRun, *, common: Common) -> list[str]:
    """Return notes on two runs: their names, differences in protocol and examples, and coverage."""
    notes = [f"First of {first.benchmark.name}: {run_name(first)}.", f"{run_name(second)}."]
    if first.protocol.name != second.protocol.name:
        notes.append(
            f"{second.path} is scored by {second.protocol.name}: part of the difference may come from the protocol."
        )
    if first.manifest.data.sha256 != second.manifest.data.sha256:
        notes.append(f"{second.path} has other examples, or another sample of the examples.")
    if common.only_first or common.only_second:
        notes.append(
            f"Left out: {common.only_first} comparisons only in {first.path} and {common.only_second} only in {second.path}."
        )
    notes.append(f"{first.path} and {second.path}: {common_line(common)}.")
    return notes

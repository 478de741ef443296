"""Compare runs with a baseline run on their common comparisons: paired differences, intervals and p-values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tirjudge_harness.evaluation import sheet_of
from tirjudge_harness.items import InputError
from tirjudge_harness.reports.common_rows import CommonRows, common_rows_of, equal_rows, records_texts
from tirjudge_harness.reports.scored import ScoredRun
from tirjudge_harness.reports.selective import common_line
from tirjudge_harness.reports.tables import Column, ReportTable, percent, row
from tirjudge_harness.statistics.multiple_tests import Correction
from tirjudge_harness.statistics.paired import Difference, differences_of

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
)


def comparison_table(runs: Sequence[ScoredRun], *, correction: Correction = Correction.HOLM) -> ReportTable:
    """Compare every run with the first run of the same benchmark, or of the same rows.

    p-values are corrected in two families: the main figures, one per pair of runs, and all other figures of all pairs.

    Raises:
        InputError: no two runs have the same benchmark or common rows, two runs have no common comparisons, or the
            correction needs scipy.
    """
    pairs = _pairs(runs)
    found = []
    for first, second in pairs:
        rows_of_both = common_rows_of(first, second)
        sheet = sheet_of(first.benchmark, rows_of_both.common.first)
        found.append((rows_of_both, differences_of(sheet, rows_of_both.common, judged=rows_of_both.judged)))
    corrected = _corrected([differences for _, differences in found], correction=correction)
    rows, notes = [], []
    for at, ((first, second), (rows_of_both, differences)) in enumerate(zip(pairs, found, strict=True)):
        for place, one in enumerate(differences):
            if not one.num_common:
                continue
            rows.append(
                row(
                    one.name,
                    second.benchmark.name,
                    second.place,
                    one.num_common,
                    percent(one.first),
                    percent(one.second),
                    percent(one.difference, interval=one.interval),
                    one.num_better,
                    one.num_worse,
                    one.p_value,
                    corrected[at, place],
                    depth=one.depth,
                    ours=True,
                )
            )
        notes += _notes(first, second, found=rows_of_both)
    return ReportTable(
        title="Paired differences, in percentage points",
        columns=(*COLUMNS, Column(key=f"p_{correction.value}", title=f"p ({correction.heading})", kind="number")),
        rows=tuple(rows),
        notes=(
            *dict.fromkeys(notes),
            f"Intervals: over prompts. p ({correction.heading}): corrected for the number of runs compared; for figures "
            "other than the main one, for all of these figures in this table. Better and worse: number of comparisons on "
            "which the run scores higher, or lower, than the first run.",
        ),
    )


def _corrected(found: Sequence[Sequence[Difference]], *, correction: Correction) -> dict[tuple[int, int], float | None]:
    """Return the corrected p-value of each figure, by the place of the pair of runs and of the figure."""
    values = {(at, place): one.p_value for at, pair in enumerate(found) for place, one in enumerate(pair)}
    families = [[key for key in values if (key[1] == 0) == is_main] for is_main in (True, False)]
    try:
        return {
            key: p
            for family in families
            for key, p in zip(family, correction.of([values[key] for key in family]), strict=True)
        }
    except ImportError:
        raise InputError(f"--correction {correction.value} needs scipy: pip install 'tirjudge[bench]'") from None


def run_name(run: ScoredRun) -> str:
    """Return a line that identifies a run: folder, model, mode, tools, seed and protocol. Of an eval: name, id and model."""
    manifest = run.manifest
    if manifest.data.eval is not None:
        return f"{run.place}: {manifest.judge.model}"
    asked = f"{manifest.mode_name}, tools {manifest.tools}, seed {manifest.seed}, protocol {run.protocol.name}"
    return f"{run.path}: {manifest.judge.model}, {asked}"


def _pairs(runs: Sequence[ScoredRun]) -> list[tuple[ScoredRun, ScoredRun]]:
    """Return each run with the first run of the same benchmark or file. If there is none, files of other names are paired by
    their common rows.

    Raises:
        InputError: there is no pair.
    """
    pairs = _pairs_by(_have_same_source, runs) or _pairs_by(_share_rows, runs)
    if not pairs:
        names = ", ".join(f"{run.place} ({run.benchmark.name})" for run in runs)
        raise InputError(
            f"nothing to compare: give two runs of the same benchmark or the same rows, got {names}{_reason(runs)}"
        )
    return pairs


def _pairs_by(
    fits: Callable[[ScoredRun, ScoredRun], bool], runs: Sequence[ScoredRun]
) -> list[tuple[ScoredRun, ScoredRun]]:
    firsts: list[ScoredRun] = []
    pairs = []
    for run in runs:
        first = next((one for one in firsts if fits(one, run)), None)
        if first is None:
            firsts.append(run)
        else:
            pairs.append((first, run))
    return pairs


def _have_same_source(first: ScoredRun, second: ScoredRun) -> bool:
    """Whether two runs are on one benchmark, or on one file of the user: files in two folders can have one name."""
    ours, theirs = first.manifest, second.manifest
    has_one_name = first.benchmark.name == second.benchmark.name
    if not _are_own(first, second):
        return has_one_name
    if ours.attack != theirs.attack:
        return has_one_name and ours.data.path == theirs.data.path
    return ours.data.sha256 == theirs.data.sha256 or (has_one_name and _share_rows(first, second))


def _share_rows(first: ScoredRun, second: ScoredRun) -> bool:
    """Whether two runs on files of the user have a row with the same id and texts."""
    has_one_attack = first.manifest.attack == second.manifest.attack
    return _are_own(first, second) and has_one_attack and bool(equal_rows(first, second))


def _are_own(*runs: ScoredRun) -> bool:
    return all(run.manifest.data.columns is not None for run in runs)


def _reason(runs: Sequence[ScoredRun]) -> str:
    """Return why the first two runs on files of the user cannot be compared. Empty: there are no two."""
    own = [run for run in runs if _are_own(run)][:2]
    if len(own) < 2:
        return ""
    places = " and ".join(run.place for run in own)
    if not all(map(records_texts, own)):
        return (
            f"; the files of {places} differ, and a run of an older version does not record the texts of its rows; run its "
            "`tirjudge bench run` command again, which records them and keeps the judgments"
        )
    return f"; no row of {places} has the same id and the same texts"


def _notes(first: ScoredRun, second: ScoredRun, *, found: CommonRows) -> list[str]:
    """Return notes on two runs: their names, differences in protocol, examples and labels, and coverage."""
    common = found.common
    notes = [f"First of {first.benchmark.name}: {run_name(first)}.", f"{run_name(second)}."]
    if first.protocol.name != second.protocol.name:
        notes.append(
            f"{second.place} is scored by {second.protocol.name}: part of the difference may come from the protocol."
        )
    if first.manifest.data.sha256 != second.manifest.data.sha256:
        notes.append(f"{second.place} has other examples, or another sample of the examples.")
    if found.left_out:
        notes.append(f"Left out of {first.place} and {second.place}: {found.left_out}.")
    if common.only_first or common.only_second:
        notes.append(
            f"Left out: {common.only_first} comparisons only in {first.place} and {common.only_second} only in "
            f"{second.place}."
        )
    notes.append(f"{first.place} and {second.place}: {common_line(common)}.")
    return notes

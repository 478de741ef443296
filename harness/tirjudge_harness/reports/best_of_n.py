"""The paper's best-of-N table with our rows: problems solved by each way of choosing, a row a judge and a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from tirjudge.best_of_n import Selecting
from tirjudge_harness.best_of_n.results import MAJORITY, ORACLE, PASS_AT_1, BestOfN
from tirjudge_harness.best_of_n.run import RESULTS, BestOfNManifest, load_results
from tirjudge_harness.items import InputError
from tirjudge_harness.reports.published import published
from tirjudge_harness.reports.tables import Column, ReportTable, TableEntry, TableRow
from tirjudge_harness.run import MANIFEST

HEAD = (
    Column(key="dataset", title="Problems", kind="text"),
    Column(key="num_problems", title="n", kind="count"),
    Column(key="policy", title="Responses of", kind="text"),
    Column(key="judge", title="Judge", kind="text"),
)

TITLES = {
    PASS_AT_1: "Pass@1",
    MAJORITY: "Majority",
    Selecting.POINTWISE.value: "Pointwise",
    Selecting.KNOCKOUT.value: "Pairwise",
    Selecting.LISTWISE.value: "Listwise",
}
"""Ways of choosing that the paper has too, in its order; it knocks out pair by pair."""

PUBLISHED = {
    PASS_AT_1: "pass_at_1",
    MAJORITY: "majority",
    Selecting.POINTWISE.value: "pointwise",
    Selecting.KNOCKOUT.value: "pairwise",
    Selecting.LISTWISE.value: "listwise",
}
"""Their columns in the published table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfNRun:
    """What the folder of a best-of-N run holds, as far as the table needs it."""

    path: Path
    judge: str
    results: Mapping[str, BestOfN]
    """By strategy."""


def results_in(folders: Sequence[Path]) -> list[BestOfNRun]:
    """The best-of-N runs in these folders, or in folders in them.

    Raises:
        InputError: there is none in one of them, or it is damaged.
    """
    return [run for folder in folders for run in _runs_in(folder)]


def _runs_in(folder: Path) -> Iterator[BestOfNRun]:
    paths = [folder] if (folder / RESULTS).is_file() else sorted(file.parent for file in folder.glob(f"*/{RESULTS}"))
    if not paths:
        raise InputError(f"{folder} holds no best-of-N run: no {RESULTS} in it, nor in a folder in it")
    for path in paths:
        file = path / MANIFEST
        try:
            manifest = BestOfNManifest.model_validate_json(file.read_bytes())
        except OSError as error:
            raise InputError(f"{file}: {error.strerror}") from error
        except ValidationError as error:
            raise InputError(f"{file}: no manifest of best-of-N: {error.errors()[0]['msg']}") from error
        results = {result.strategy: result for result in load_results(path)}
        yield BestOfNRun(path=path, judge=manifest.judge.model, results=results)


def best_of_n_table(runs: Sequence[BestOfNRun], *, with_published: bool = True, name: str | None = None) -> ReportTable:
    """Problems solved.

    Args:
        runs: ours.
        with_published: whether the published rows are in it.
        name: what our judge is called; None: what its runs say.
    """
    others = dict.fromkeys(
        strategy for run in runs for strategy in run.results if strategy not in {*TITLES, "first", ORACLE}
    )
    strategies = {**TITLES, **{other: other.replace("_", " ").capitalize() for other in others}, ORACLE: "Oracle"}
    columns = [Column(key=key, title=title, kind="number") for key, title in strategies.items()]
    theirs = [*_published_rows(strategies)] if with_published else []
    source = (f"Published rows: {published('best_of_n').source}.",) if with_published else ()
    return ReportTable(
        title="Best of N: problems solved",
        columns=(*HEAD, *columns),
        rows=(*theirs, *(_own_row(run, strategies=strategies, name=name) for run in runs)),
        notes=(
            "Pass@1: ours is the mean over the responses. Majority: the most frequent answer. Oracle: the best response "
            "there is. ± is the longer arm of the 95 % interval of ours.",
            *source,
        ),
    )


def _published_rows(strategies: Mapping[str, str]) -> Iterator[TableRow]:
    for row in published("best_of_n").rows:
        yield TableRow(
            entries=(
                TableEntry(value=row.texts["dataset"]),
                TableEntry(value=row.number("num_problems"), notes=row.notes_on("num_problems")),
                TableEntry(value=row.texts["policy"], notes=row.notes_on("policy")),
                TableEntry(value=row.texts["judge"]),
                *(TableEntry(value=row.number(PUBLISHED.get(strategy, ""))) for strategy in strategies),
            )
        )


def _own_row(run: BestOfNRun, *, strategies: Mapping[str, str], name: str | None) -> TableRow:
    any_result = next(iter(run.results.values()))
    return TableRow(
        entries=(
            TableEntry(value=any_result.dataset),
            TableEntry(value=any_result.num_problems),
            TableEntry(value=any_result.policy),
            TableEntry(value=name or run.judge),
            *(_solved(run.results.get(strategy), of=any_result.num_problems) for strategy in strategies),
        ),
        ours=True,
    )


def _solved(result: BestOfN | None, *, of: int) -> TableEntry:
    if result is None:
        return TableEntry()
    interval = None
    if result.interval is not None:
        interval = (result.num_problems * result.interval[0], result.num_problems * result.interval[1])
    left_out = of - result.num_problems
    notes = (
        (f"Not comparable. Over {result.num_problems} problems: {left_out} could not be judged.",) if left_out else ()
    )
    return TableEntry(value=result.solved, interval=interval, notes=notes)

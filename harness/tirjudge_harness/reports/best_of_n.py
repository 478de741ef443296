"""The paper's best-of-N table with our rows: problems solved by each strategy, one row per judge and file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from tirjudge_harness.best_of_n.results import ORACLE, BestOfN
from tirjudge_harness.best_of_n.run import RESULTS, BestOfNManifest, left_out_lines, load_results
from tirjudge_harness.items import InputError
from tirjudge_harness.reports.published import published
from tirjudge_harness.reports.scored import folders_with
from tirjudge_harness.reports.tables import Column, ReportTable, TableEntry, TableRow, row
from tirjudge_harness.run import MANIFEST

HEAD = (
    Column(key="dataset", title="Problems", kind="text"),
    Column(key="num_problems", title="n", kind="count"),
    Column(key="policy", title="Responses of", kind="text"),
    Column(key="judge", title="Judge", kind="text"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfNRun:
    """A stored best-of-N run, as far as the table needs it."""

    path: Path
    """Folder of the run."""
    judge: str
    """Name of the judge model."""
    results: Mapping[str, BestOfN]
    """Result by strategy or baseline."""
    left_out: Sequence[str]
    """See `left_out_lines`."""


def results_in(folders: Sequence[Path]) -> list[BestOfNRun]:
    """Read the best-of-N runs in these folders. A folder may be a run, or contain the folders of runs.

    Raises:
        InputError: a folder contains no run, or a damaged one.
    """
    return [run for folder in folders for run in _runs_in(folder)]


def _runs_in(folder: Path) -> Iterator[BestOfNRun]:
    paths = folders_with(RESULTS, path=folder)
    if not paths:
        raise InputError(f"{folder}: no best-of-N run found (no {RESULTS} there or one folder below)")
    for path in paths:
        file = path / MANIFEST
        try:
            manifest = BestOfNManifest.model_validate_json(file.read_bytes())
        except OSError as error:
            raise InputError(f"{file}: {error.strerror}") from error
        except ValidationError as error:
            raise InputError(f"{file}: not a manifest of a best-of-N run: {error.errors()[0]['msg']}") from error
        found = load_results(path)
        results = {result.strategy: result for result in found}
        left_out = left_out_lines(manifest, found)
        yield BestOfNRun(path=path, judge=manifest.judge.model, results=results, left_out=left_out)


def best_of_n_table(runs: Sequence[BestOfNRun], *, with_published: bool = True, name: str | None = None) -> ReportTable:
    """Return the table of problems solved.

    Args:
        runs: our runs.
        with_published: whether to include the published rows.
        name: name of our judge in the table. None: the model name in its runs.
    """
    paper = published("best_of_n")
    known = {column.figure: column for column in paper.columns}
    used = dict.fromkeys(strategy for run in runs for strategy in run.results if strategy not in {"first", ORACLE})
    titles = {figure: column.title for figure, column in known.items()}
    titles |= {other: other.replace("_", " ").capitalize() for other in [*used, ORACLE] if other not in known}
    published_rows = (
        row(
            one.texts["dataset"],
            TableEntry(value=one.number("num_problems"), notes=one.notes_on("num_problems")),
            TableEntry(value=one.texts["policy"], notes=one.notes_on("policy")),
            one.texts["judge"],
            *(one.number(known[figure].key) if figure in known else None for figure in titles),
        )
        for one in paper.rows
    )
    return ReportTable(
        title="Best of N: problems solved",
        columns=(*HEAD, *(Column(key=key, title=title, kind="number") for key, title in titles.items())),
        rows=(*(published_rows if with_published else ()), *(_own_row(run, titles, name=name) for run in runs)),
        notes=(
            "Pass@1: in our rows, the mean over the responses. Majority: the most frequent answer. Oracle: the best of the "
            "responses. ±: the longer arm of the 95 % interval; published rows have none.",
            *(
                f"{name or run.judge}, {next(iter(run.results.values())).dataset}: {', '.join(run.left_out)}."
                for run in runs
                if run.left_out
            ),
            *_undecided(runs, name=name),
            *([f"Published rows: {paper.source}."] if with_published else []),
        ),
    )


def _own_row(run: BestOfNRun, strategies: Iterable[str], *, name: str | None) -> TableRow:
    one = next(iter(run.results.values()))
    solved = (_solved(run.results.get(strategy), of=one.num_problems) for strategy in strategies)
    return row(one.dataset, one.num_problems, one.policy, name or run.judge, *solved, ours=True)


def _undecided(runs: Sequence[BestOfNRun], *, name: str | None) -> Iterator[str]:
    """Yield the coverage of the judgments of each strategy."""
    for run in runs:
        for strategy, result in run.results.items():
            if result.num_calls:
                share = 1 - result.num_undecided / result.num_calls
                judgments = f"{share:.1%} of {result.num_calls:,} judgments have a verdict"
                yield f"{name or run.judge}, {result.dataset}, {strategy}: {judgments}."


def _solved(result: BestOfN | None, *, of: int) -> TableEntry:
    if result is None:
        return TableEntry()
    num, left_out = result.num_problems, of - result.num_problems
    return TableEntry(
        value=result.solved,
        interval=result.interval and (num * result.interval[0], num * result.interval[1]),
        notes=(f"Not comparable. Over {num} problems; {left_out} could not be judged.",) if left_out else (),
    )

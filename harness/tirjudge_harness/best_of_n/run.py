"""`tirjudge bench best-of-n`: read problems, grade their responses, let a judge choose, and count the problems solved.

Files in the folder of a run:

manifest.json      settings, judge and data of the run
grades.jsonl       grades, one problem per line
journal.jsonl      judgments, one per line; failures are in failures.jsonl
selections.jsonl   selections, one per line: problem, strategy, best response and order
results.json       one result per strategy and baseline
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from tirjudge.best_of_n import Selection
from tirjudge.counted import counted
from tirjudge.prices import Prices
from tirjudge_harness.best_of_n.datasets import BestOfNProblem, read_problems
from tirjudge_harness.best_of_n.graders.grade import Grader
from tirjudge_harness.best_of_n.grading import GRADES, GradedResponse, GradeLine, Grading, Ungraded, grade_all
from tirjudge_harness.best_of_n.results import BestOfN, baselines, result_of
from tirjudge_harness.best_of_n.selecting import Choosing, ProblemSelection, check_answers, choose_all
from tirjudge_harness.items import InputError, ItemId, check_bad_rows
from tirjudge_harness.judges import OpenJudge
from tirjudge_harness.progress import RunProgress, print_some
from tirjudge_harness.row_sampling import sample
from tirjudge_harness.run import MANIFEST, DataManifest, JudgeManifest, sha256_of
from tirjudge_harness.run_store import RunStore, StoredModel, jsonl, read_stored, resume, write_output
from tirjudge_harness.sources import BadRow

SELECTIONS = "selections.jsonl"
RESULTS = "results.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfNSettings:
    """Settings of a run."""

    strategies: tuple[str, ...] = ("knockout",)
    """Names of the strategies to compare. The strategies of an existing run are compared, too."""
    grading: Grading = Grading.GIVEN
    """Source of the grades."""
    choosing: Choosing
    """Settings of the requests to the judge."""
    dataset: str
    """Name of the dataset in tables."""
    policy: str = ""
    """The model that wrote the responses; empty: unknown."""
    limit: int | None = None
    """Number of problems to sample. None: all."""


class BestOfNManifest(StoredModel):
    """Description of a run. A resumed run may change names and add strategies, but nothing more."""

    dataset: str
    policy: str
    strategies: tuple[str, ...]
    grader: Grading
    seed: int
    group_size: int
    judging: dict[str, str | int | float]
    """Other fields of each `JudgeRequest`."""
    judge: JudgeManifest
    data: DataManifest
    version: str
    """Version of tirjudge."""
    created: int
    """Unix time in seconds."""


class Selected(StoredModel):
    """A line of `selections.jsonl`."""

    id: ItemId
    """Id of the problem."""
    strategy: str
    """Name of the strategy."""
    best: int
    """Index of the chosen response."""
    worth: float
    """Grade of the chosen response, 0 to 1."""
    order: tuple[int, ...]
    """Indexes of all responses, best first."""
    scores: tuple[float | None, ...]
    """Score of each response. None: no judgment of this response has a verdict."""
    num_calls: int
    """Number of judgments used, saved ones included."""
    num_undecided: int
    """Number of these judgments that have no verdict."""


async def run_best_of_n(
    path: Path,
    *,
    out: Path,
    opened: OpenJudge,
    grading: AbstractAsyncContextManager[Grader | None],
    settings: BestOfNSettings,
    concurrency: int,
    console: Console,
    max_error_rate: float | None = None,
    prices: Prices | None = None,
) -> list[BestOfN]:
    """Run or resume a best-of-N benchmark. Return one result per baseline and strategy.

    Args:
        path: file of the problems.
        out: folder of the run.
        opened: the judge.
        grading: context manager that opens the grader.
        settings: settings of the run.
        concurrency: maximum number of concurrent judgments.
        console: shows progress, invalid rows and failures.
        max_error_rate: maximum share of invalid rows. None: `MAX_BAD_ROWS`.
        prices: token prices, to show the cost. None: no cost is shown.

    Raises:
        InputError: no problem could be graded, too many rows are invalid, or the folder belongs to another run.
        RunStopped: the judge does not answer, or the disk is full.
    """
    problems, num_bad = load_problems(path, max_error_rate=max_error_rate, console=console)
    if settings.limit is not None:
        examples = [problem.example for problem in problems]
        drawn = {one.outline.id for one in sample(examples, size=settings.limit, seed=settings.choosing.seed)}
        problems = [problem for problem in problems if str(problem.id) in drawn]
    data = DataManifest(
        path=str(path),
        limit=settings.limit,
        sha256=sha256_of(problem.example for problem in problems),
        num_examples=len(problems),
        num_bad_rows=num_bad,
    )
    manifest = resumed(out, manifest=manifest_of(settings, opened=opened, data=data))
    settings = replace(settings, strategies=manifest.strategies)
    graded = await _grade(problems, out=out, settings=settings, grading=grading, console=console)
    usable = [problem for problem in problems if problem.id in graded]
    choices = [
        ProblemSelection(problem=each, method=method, answers=graded[each.id].answers)
        for method, each in product(settings.strategies, usable)
    ]
    check_answers(choices, remedy="give --grader aime, gsm8k or math, or a column `answers`")
    write_output(out / MANIFEST, manifest.model_dump_json(indent=2) + "\n")
    progress = RunProgress(len(choices), console=console, title=settings.dataset, prices=prices)
    chosen = await choose_all(
        choices,
        folder=out,
        opened=opened,
        choosing=settings.choosing,
        concurrency=concurrency,
        progress=progress,
        on_selected=lambda choice, selection: progress.scored(graded[choice.problem.id].credits[selection.best]),
    )
    results = list(_results(usable, graded=graded, selections=chosen.made, settings=settings))
    _write(out, usable=usable, graded=graded, selections=chosen.made, results=results)
    return results


def load_results(path: Path) -> list[BestOfN]:
    """Read the results of a run.

    Raises:
        InputError: the folder has no results, or they are damaged.
    """
    return read_stored(path / RESULTS, model=list[BestOfN])


def load_problems(path: Path, *, max_error_rate: float | None, console: Console) -> tuple[list[BestOfNProblem], int]:
    """Read the problems of a file. Return them with the number of invalid rows, and print the first invalid rows.

    Raises:
        InputError: the file cannot be read, none of its rows is a valid problem, or too many rows are invalid.
    """
    bad: list[BadRow] = []
    problems = read_problems(path, on_bad=bad.append)
    print_some([str(row) for row in bad], console=console, rest=f"more invalid rows in {path}")
    check_bad_rows(len(bad), num_valid=len(problems), max_error_rate=max_error_rate)
    return problems, len(bad)


def left_out_lines(manifest: BestOfNManifest, results: Sequence[BestOfN]) -> list[str]:
    """Return one line for the invalid rows of a run, and one for the problems that could not be graded."""
    num_ungraded = manifest.data.num_examples - max(result.num_problems for result in results)
    counts = {"invalid row": manifest.data.num_bad_rows, "ungraded problem": num_ungraded}
    return [f"{counted(num, what)} left out" for what, num in counts.items() if num]


def manifest_of(settings: BestOfNSettings, *, opened: OpenJudge, data: DataManifest) -> BestOfNManifest:
    """Return the manifest of a run."""
    return BestOfNManifest(
        dataset=settings.dataset,
        policy=settings.policy,
        strategies=settings.strategies,
        grader=settings.grading,
        seed=settings.choosing.seed,
        group_size=settings.choosing.group_size,
        judging=dict(settings.choosing.judging),
        judge=JudgeManifest.of(opened),
        data=data,
        version=version("tirjudge"),
        created=int(time.time()),
    )


def resumed(path: Path, *, manifest: BestOfNManifest) -> BestOfNManifest:
    """Return the manifest of a new run, or of the run in a folder with the strategies of both. The caller writes it after its
    checks, so that a refused strategy or grader is not part of the run.

    Raises:
        StorageError: the run in the folder has another judge, or other settings, grades or responses.
    """
    existing = resume(path / MANIFEST, manifest, compared=_compared)
    if existing is None:
        return manifest
    strategies = tuple(dict.fromkeys((*existing.strategies, *manifest.strategies)))
    return manifest.model_copy(update={"created": existing.created, "strategies": strategies})


def _compared(manifest: BestOfNManifest) -> dict[str, object]:
    """Return the settings that judgments and grades depend on. Models with one fingerprint are equal wherever they run."""
    known = {"kind", "url"} if manifest.judge.fingerprint is not None else set[str]()
    judge = manifest.judge.model_dump(exclude=known)
    return {
        "grader": manifest.grader,
        "seed": manifest.seed,
        "group_size": manifest.group_size,
        **manifest.judging,
        **{f"judge.{name}": value for name, value in judge.items()},
        "limit": manifest.data.limit,
        "responses": f"sha256 {manifest.data.sha256[:16]}",
    }


async def _grade(
    problems: Sequence[BestOfNProblem],
    *,
    out: Path,
    settings: BestOfNSettings,
    grading: AbstractAsyncContextManager[Grader | None],
    console: Console,
) -> dict[ItemId, GradedResponse]:
    """Return the fully graded problems by id. Print the first problems that could not be graded."""
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"grading: {settings.grading.value}", total=len(problems))
        async with grading as grader, RunStore(out / GRADES, model=GradeLine) as grades:
            found = await grade_all(
                problems,
                grading=settings.grading,
                grader=grader,
                grades=grades,
                on_done=lambda: progress.advance(task),
            )
    failed = [one for one in found if isinstance(one, Ungraded)]
    if len(failed) == len(found):
        raise InputError(
            f"--grader {settings.grading.value}: no problem could be graded; the first: {failed[0].id}: {failed[0].reason}"
        )
    reasons = [f"{one.id}: not graded: {one.reason}" for one in failed]
    print_some(reasons, console=console, rest="more problems are not graded")
    if failed:
        console.print(f"{len(failed)} of {len(found)} problems could not be graded and are left out", highlight=False)
    return {one.id: one for one in found if isinstance(one, GradedResponse)}


def _results(
    problems: Sequence[BestOfNProblem],
    *,
    graded: dict[ItemId, GradedResponse],
    selections: Mapping[tuple[ItemId, str], Selection],
    settings: BestOfNSettings,
) -> Iterator[BestOfN]:
    every = [graded[problem.id] for problem in problems]
    dataset, policy = settings.dataset, settings.policy
    for baseline, worth in baselines(every).items():
        yield result_of(worth, graded=every, dataset=dataset, policy=policy, strategy=baseline)
    for method in settings.strategies:
        chosen = [(one, selections[one.id, method]) for one in every if (one.id, method) in selections]
        yield result_of(
            [one.credits[selection.best] for one, selection in chosen],
            graded=[one for one, _ in chosen],
            dataset=dataset,
            policy=policy,
            strategy=method,
            num_missing=len(every) - len(chosen),
            num_calls=sum(selection.num_calls for _, selection in chosen),
            num_undecided=sum(selection.num_undecided for _, selection in chosen),
        )


def _write(
    out: Path,
    *,
    usable: Sequence[BestOfNProblem],
    graded: dict[ItemId, GradedResponse],
    selections: Mapping[tuple[ItemId, str], Selection],
    results: Sequence[BestOfN],
) -> None:
    place = {problem.id: number for number, problem in enumerate(usable)}
    lines = [
        Selected(
            id=id,
            strategy=method,
            best=selection.best,
            worth=graded[id].credits[selection.best],
            order=selection.ranking,
            scores=selection.scores,
            num_calls=selection.num_calls,
            num_undecided=selection.num_undecided,
        )
        for (id, method), selection in sorted(selections.items(), key=lambda one: (one[0][1], place[one[0][0]]))
    ]
    write_output(out / SELECTIONS, jsonl(lines))
    write_output(out / RESULTS, json.dumps([result.model_dump(mode="json") for result in results], indent=2) + "\n")

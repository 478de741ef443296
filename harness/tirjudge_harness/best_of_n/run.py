"""`tirjudge bench best-of-n`: read problems, grade their responses, let a judge choose, and count what is solved.

manifest.json      what was asked of which judge
grades.jsonl       what a grader found, a problem a line
journal.jsonl      a judgment a line; failures.jsonl beside it
selections.jsonl   a choice a line: problem, strategy, best response and order
results.json       a result for each strategy and baseline
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from tirjudge.best_of_n import Selection
from tirjudge_harness.best_of_n.datasets import BestOfNProblem, read_problems
from tirjudge_harness.best_of_n.graders.grade import Grader
from tirjudge_harness.best_of_n.grading import GRADES, GradedResponse, GradeLine, Grading, Ungraded, grade_all
from tirjudge_harness.best_of_n.results import BestOfN, baselines, result_of
from tirjudge_harness.best_of_n.selecting import Choosing, ProblemSelection, check_answers, choose_all
from tirjudge_harness.items import InputError, ItemId
from tirjudge_harness.judges import OpenJudge
from tirjudge_harness.prices import Prices
from tirjudge_harness.progress import RunProgress, print_some
from tirjudge_harness.row_sampling import sample
from tirjudge_harness.run import MANIFEST, DataManifest, JudgeManifest, sha256_of
from tirjudge_harness.run_store import RunStore, StoredModel, jsonl, read_stored, resume, write_output
from tirjudge_harness.sources import BadRow

SELECTIONS = "selections.jsonl"
RESULTS = "results.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfNSettings:
    """What is asked of a judge."""

    strategies: tuple[str, ...] = ("knockout",)
    grading: Grading = Grading.GIVEN
    choosing: Choosing
    dataset: str
    policy: str = ""
    """The model that wrote the responses; empty: not told."""
    limit: int | None = None
    """Size of the sample; None: all."""


class BestOfNManifest(StoredModel):
    """What a run is. Names, strategies and the grader may change from one command to the next; judgments stay."""

    dataset: str
    policy: str
    strategies: tuple[str, ...]
    grader: Grading
    seed: int
    group_size: int
    judging: dict[str, str | int]
    """Fields of the requests."""
    judge: JudgeManifest
    data: DataManifest
    version: str
    """Of tirjudge."""
    created: int
    """Unix time, seconds."""


class Selected(StoredModel):
    """A line of `selections.jsonl`."""

    id: ItemId
    strategy: str
    best: int
    """Index of the chosen response."""
    worth: float
    """What it is worth, 0 to 1."""
    order: tuple[int, ...]
    """All responses, best first."""
    scores: tuple[float | None, ...]
    num_calls: int
    num_undecided: int


async def run_best_of_n(
    path: Path,
    *,
    out: Path,
    opened: OpenJudge,
    grading: AbstractAsyncContextManager[Grader | None],
    settings: BestOfNSettings,
    concurrency: int,
    console: Console,
    prices: Prices | None = None,
) -> list[BestOfN]:
    """Judge what the folder does not have yet, and count.

    Args:
        path: of the problems.
        out: the folder of the run.
        opened: the judge.
        grading: the grader, not open yet.
        settings: what is asked.
        concurrency: the most judgments under way at a time.
        console: where progress, broken rows and failures are shown.
        prices: of tokens, to show the cost.

    Raises:
        InputError: there is no problem that could be graded, or the folder belongs to another run.
        RunStopped: the judge is gone, or the disk is full.
    """
    problems, num_bad = load_problems(path, console=console)
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
    create_or_resume(out, manifest=manifest_of(settings, opened=opened, data=data))
    graded = await _grade(problems, out=out, settings=settings, grading=grading, console=console)
    usable = [problem for problem in problems if problem.id in graded]
    choices = [
        ProblemSelection(problem=each, method=method, answers=graded[each.id].answers)
        for method, each in product(settings.strategies, usable)
    ]
    check_answers(choices, way_out="give a grader that finds them (aime, gsm8k, math) or a column `answers`")
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
    """The results in the folder of a run.

    Raises:
        InputError: there are none, or they are damaged.
    """
    return read_stored(path / RESULTS, model=list[BestOfN])


def load_problems(path: Path, *, console: Console) -> tuple[list[BestOfNProblem], int]:
    """The problems of a file, and how many rows are broken; the first of those are shown.

    Raises:
        InputError: the file cannot be read, or no row of it gives a problem.
    """
    bad: list[BadRow] = []
    problems = read_problems(path, on_bad=bad.append)
    print_some([str(row) for row in bad], console=console, rest=f"more broken rows in {path}")
    return problems, len(bad)


def manifest_of(settings: BestOfNSettings, *, opened: OpenJudge, data: DataManifest) -> BestOfNManifest:
    """What a run is."""
    return BestOfNManifest(
        dataset=settings.dataset,
        policy=settings.policy,
        strategies=settings.strategies,
        grader=settings.grading,
        seed=settings.choosing.seed,
        group_size=settings.choosing.group_size,
        judging=dict(settings.choosing.judging),
        judge=JudgeManifest(kind=opened.kind, url=opened.url, model=opened.model, fingerprint=opened.fingerprint),
        data=data,
        version=version("tirjudge"),
        created=int(time.time()),
    )


def create_or_resume(path: Path, *, manifest: BestOfNManifest) -> None:
    """Begin a run in a folder, or see that the one there asks the same judge the same way about the same responses.

    Raises:
        InputError: there is another run.
    """
    file = path / MANIFEST
    if (there := resume(file, manifest, compared=_compared)) is not None:
        manifest = manifest.model_copy(update={"created": there.created})
    write_output(file, manifest.model_dump_json(indent=2) + "\n")


def _compared(manifest: BestOfNManifest) -> dict[str, object]:
    """What the judgments depend on. A model that is known by its fingerprint is the same wherever it runs."""
    known = {"kind", "url"} if manifest.judge.fingerprint is not None else set[str]()
    judge = manifest.judge.model_dump(exclude=known)
    return {
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
    """The problems all of whose responses are graded; the first others are named."""
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
    print_some(reasons, console=console, rest="more are not graded")
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

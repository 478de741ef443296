"""`tirjudge rerank FILE`: the responses to each prompt of a file, the best first.

The judgments lie in a folder beside the output, each on disk before the next is waited for; the output is made from them
when all are there. So a run that was killed goes on where it was, and another method uses what it can of the first one's.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from pydantic import BaseModel
from rich.console import Console

from tirjudge.best_of_n import Selection
from tirjudge_harness.best_of_n.datasets import BestOfNProblem
from tirjudge_harness.best_of_n.run import load_problems
from tirjudge_harness.best_of_n.selecting import Choosing, ProblemSelection, check_answers, choose_all
from tirjudge_harness.items import InputError, ItemId
from tirjudge_harness.judges import OpenJudge
from tirjudge_harness.prices import Prices
from tirjudge_harness.progress import RunProgress
from tirjudge_harness.run_store import StoredModel, jsonl, write_output

FOLDER_ENDING = ".judgments"
"""Of the folder beside the output."""


class Reranked(StoredModel):
    """A line of the output."""

    id: ItemId
    method: str
    best: int
    """Index of the best response."""
    order: tuple[int, ...]
    """Indexes of all, best first."""
    scores: tuple[float | None, ...]
    """One a response, as they stand in the input. None: the judge decided nothing about it."""
    num_calls: int
    """Judgments that it rests on."""
    num_undecided: int
    """Of these, judgments without a verdict."""


class Reranking(BaseModel):
    """What came of a file."""

    num_lines: int
    """Of the output."""
    num_failed: int
    """Problems that we failed to judge; they have no line, and the next run tries them again."""
    num_bad_rows: int
    """Rows that could not be used."""
    num_calls: int
    """Judgments that this run made."""


async def rerank_file(
    path: Path,
    *,
    out: Path,
    method: str,
    opening: AbstractAsyncContextManager[OpenJudge],
    choosing: Choosing,
    limit: int | None,
    concurrency: int,
    console: Console,
    prices: Prices | None = None,
) -> Reranking:
    """Rank what a file holds; one line out for each problem, in the order of the input.

    Args:
        path: the input.
        out: the output.
        method: how the best is found.
        opening: the judge, not open yet.
        choosing: how it is asked.
        limit: take only the first problems; None: all.
        concurrency: the most judgments under way at a time.
        console: where progress and broken rows are shown.
        prices: of tokens, to show the cost.

    Raises:
        InputError: the input cannot be read, or there is another file where the output would go.
        RunStopped: the judge is gone, or the disk is full.
    """
    folder = folder_of(out)
    problems, num_bad = load_problems(path, console=console)
    problems = problems[:limit]
    choices = [ProblemSelection(problem=problem, method=method, answers=problem.answers) for problem in problems]
    check_answers(choices, way_out=f"{path} needs a column `answers`")
    async with opening as opened:
        selections = await choose_all(
            choices,
            folder=folder,
            opened=opened,
            choosing=choosing,
            concurrency=concurrency,
            progress=RunProgress(len(problems), console=console, prices=prices),
        )
    made = selections.made
    lines = [_line(problem, made[problem.id, method]) for problem in problems if (problem.id, method) in made]
    write_output(out, jsonl(lines))
    return Reranking(
        num_lines=len(lines),
        num_failed=selections.num_failed,
        num_bad_rows=num_bad,
        num_calls=selections.num_calls,
    )


def folder_of(out: Path) -> Path:
    """Where the judgments behind an output are.

    Raises:
        InputError: the output is a folder, or another file, which would be lost.
    """
    if out.is_dir():
        raise InputError(f"{out}: a folder given; a file that can be written is needed")
    folder = out.with_name(out.name + FOLDER_ENDING)
    if out.exists() and not folder.exists():
        raise InputError(f"{out} is there and is none of ours ({folder.name} is not beside it); give another --out")
    return folder


def _line(problem: BestOfNProblem, selection: Selection) -> Reranked:
    return Reranked(
        id=problem.id,
        method=selection.method,
        best=selection.best,
        order=selection.ranking,
        scores=selection.scores,
        num_calls=selection.num_calls,
        num_undecided=selection.num_undecided,
    )

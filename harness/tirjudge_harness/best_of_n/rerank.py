"""`tirjudge rerank FILE`: rank the responses to each prompt of a file, best first.

Judgments are saved in a folder next to the output, each on disk as soon as it is made. The output is written from them
at the end. So a killed run resumes, and a run with a different method reuses every judgment that both methods need.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from pydantic import BaseModel
from rich.console import Console

from tirjudge.best_of_n import Selection
from tirjudge.prices import Prices
from tirjudge_harness.best_of_n.datasets import BestOfNProblem
from tirjudge_harness.best_of_n.run import load_problems
from tirjudge_harness.best_of_n.selecting import Choosing, ProblemSelection, check_answers, choose_all
from tirjudge_harness.items import InputError, ItemId
from tirjudge_harness.judges import OpenJudge
from tirjudge_harness.progress import RunProgress
from tirjudge_harness.run_store import StoredModel, jsonl, write_output

FOLDER_ENDING = ".judgments"
"""Suffix of the name of the folder with the judgments, which is next to the output."""


class Reranked(StoredModel):
    """A line of the output."""

    id: ItemId
    """Id of the input row."""
    method: str
    """Name of the strategy."""
    best: int
    """Index of the best response."""
    order: tuple[int, ...]
    """Indexes of all responses, best first."""
    scores: tuple[float | None, ...]
    """Score of each response, in the order of the input. None: no judgment of this response has a verdict."""
    num_calls: int
    """Number of judgments used, saved ones included."""
    num_undecided: int
    """Number of these judgments that have no verdict."""


class Reranking(BaseModel):
    """Counts of one run of `tirjudge rerank`."""

    num_lines: int
    """Lines of the output."""
    num_failed: int
    """Problems that could not be judged. They have no line; the next run retries them."""
    num_bad_rows: int
    """Rows that were left out because they are not valid."""
    num_calls: int
    """Judgments made by this run."""


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
    max_error_rate: float | None = None,
    prices: Prices | None = None,
) -> Reranking:
    """Rank the responses to each problem of a file. Write one line per problem, in the order of the input.

    Args:
        path: the input file.
        out: the output file.
        method: name of the strategy.
        opening: context manager that opens the judge.
        choosing: settings of the requests to the judge.
        limit: number of problems to read, from the start of the file. None: all.
        concurrency: maximum number of concurrent judgments.
        console: shows progress and invalid rows.
        max_error_rate: maximum share of invalid rows. None: `MAX_BAD_ROWS`.
        prices: token prices, to show the cost. None: no cost is shown.

    Raises:
        InputError: the input cannot be read, too many rows are invalid, or `out` is a file that this command did not write.
        RunStopped: the judge does not answer, or the disk is full.
    """
    folder = folder_of(out)
    problems, num_bad = load_problems(path, max_error_rate=max_error_rate, console=console)
    problems = problems[:limit]
    choices = [ProblemSelection(problem=problem, method=method, answers=problem.answers) for problem in problems]
    check_answers(choices, remedy=f"add a column `answers` to {path}")
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
    """Return the folder of the judgments behind an output file.

    Raises:
        InputError: the output is a folder, or a file that `tirjudge rerank` did not write and would overwrite.
    """
    if out.is_dir():
        raise InputError(f"{out}: is a folder; give the path of a file to write")
    folder = out.with_name(out.name + FOLDER_ENDING)
    if out.exists() and not folder.exists():
        raise InputError(
            f"{out} exists and was not written by `tirjudge rerank` (no folder {folder.name} next to it); give another --out"
        )
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

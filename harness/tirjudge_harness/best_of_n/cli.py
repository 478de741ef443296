"""The commands that choose among N responses: `tirjudge rerank` and `tirjudge bench best-of-n`. What is heavy is imported
when one of them runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tirjudge.best_of_n import GROUP_SIZE
from tirjudge.strategies import STRATEGIES
from tirjudge_harness.best_of_n.grading import Grading
from tirjudge_harness.options import (
    BUNDLED,
    PACE,
    VOTING,
    AsJson,
    JudgeOptions,
    PaceOptions,
    Tools,
    VoteOptions,
    asking_a_judge,
)

if TYPE_CHECKING:
    from rich.table import Table

    from tirjudge_harness.best_of_n.results import BestOfN
    from tirjudge_harness.best_of_n.selecting import Choosing

GroupSize = Annotated[int, typer.Option("--group-size", min=2, max=26, help="Most responses in a listwise comparison.")]


def strategy_named(name: str) -> str:
    """
    Raises:
        typer.BadParameter: there is no such strategy.
    """
    try:
        STRATEGIES.named(name)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return name


StrategyName = Annotated[str, typer.Option(parser=strategy_named, metavar="NAME", help="How the best is found.")]


@asking_a_judge
def rerank(
    file: Annotated[Path, typer.Argument(help="id, prompt and responses a row; .jsonl, .json, .csv, .parquet, .gz.")],
    out: Annotated[Path, typer.Option(help="JSONL to write, a line for each row, best first.")],
    method: StrategyName = "knockout",
    group_size: GroupSize = GROUP_SIZE,
    asking: VoteOptions = VOTING,
    limit: Annotated[int | None, typer.Option(min=1, help="Take only the first rows.")] = None,
    judge_options: JudgeOptions = BUNDLED,
    pace: PaceOptions = PACE,
    json: AsJson = False,
) -> None:
    """Put the responses to each prompt of a file in order, the best first.

    Each line of the output has `id`, `best` (an index), `order` (all indexes, best first), `scores` (one a response) and
    what it rests on. Judgments are kept beside the output: stopped or killed, the same command goes on where it was.
    Exits 1 if a row failed; run again to retry it.
    """
    from rich.console import Console

    from tirjudge_harness.best_of_n.rerank import rerank_file
    from tirjudge_harness.progress import run_resumable

    choosing = _choosing(asking, methods=[method], group_size=group_size)
    console = Console(stderr=True)
    reranking = rerank_file(
        file,
        out=out,
        method=method,
        opening=judge_options.opened(tools=asking.tools),
        choosing=choosing,
        limit=limit,
        concurrency=pace.concurrency,
        console=console,
        prices=pace.prices,
    )
    done = run_resumable(reranking, out=out, console=console)
    if json:
        typer.echo(done.model_dump_json())
    else:
        failed = f", {done.num_failed} failed and have none" if done.num_failed else ""
        typer.echo(f"{out}: {done.num_lines} lines, {done.num_calls} new judgments{failed}")
    if done.num_failed or not done.num_lines:
        raise typer.Exit(1)


@asking_a_judge
def best_of_n(
    file: Annotated[Path, typer.Argument(help="Problems with N responses each: plain rows, or JETTS' layout.")],
    out: Annotated[Path, typer.Option(help="Folder of the run.")],
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            parser=strategy_named, metavar="NAME", help="How the best is found; repeatable. Default: knockout."
        ),
    ] = None,
    grader: Annotated[
        Grading, typer.Option(help="Who says what is right; given: correct, scores or label of the file.")
    ] = Grading.GIVEN,
    dataset: Annotated[str | None, typer.Option(help="Its name in tables; default: the file's.")] = None,
    policy: Annotated[str, typer.Option(help="Name of the model that wrote the responses.")] = "",
    group_size: GroupSize = GROUP_SIZE,
    asking: VoteOptions = VOTING,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Take a sample of so many problems, of each subset its share.")
    ] = None,
    judge_options: JudgeOptions = BUNDLED,
    pace: PaceOptions = PACE,
    json: AsJson = False,
) -> None:
    """Let a judge choose one of N responses to each problem, and count the problems solved.

    Beside the judge stand the first response, the mean over all (pass@1), the majority's answer and the oracle. Stopped or
    killed, the same command goes on where it was; other strategies may be added in the same folder. Exits 1 if a problem
    failed; run again to retry it.
    """
    from json import dumps

    from rich.console import Console

    from tirjudge_harness.bench_run import run_with_judge
    from tirjudge_harness.best_of_n.grading import open_grader
    from tirjudge_harness.best_of_n.run import BestOfNSettings, run_best_of_n
    from tirjudge_harness.row_files import stem_of

    strategies = tuple(dict.fromkeys(strategy or ["knockout"]))
    settings = BestOfNSettings(
        strategies=strategies,
        grading=grader,
        choosing=_choosing(asking, methods=strategies, group_size=group_size),
        dataset=dataset or stem_of(file),
        policy=policy,
        limit=limit,
    )
    grading = open_grader(grader, slots=judge_options.slots, allow_unsafe_sandbox=judge_options.allow_unsafe_sandbox)
    results = run_with_judge(
        lambda context: run_best_of_n(
            file,
            out=out,
            opened=context.opened,
            grading=grading,
            settings=settings,
            concurrency=context.concurrency,
            console=context.console,
            prices=context.prices,
        ),
        judge=judge_options,
        tools=asking.tools,
        out=out,
        pace=pace,
    )
    if json:
        typer.echo(dumps([result.model_dump(mode="json") for result in results]))
    else:
        Console().print(results_table(results))
        for remark in remarks_on(results):
            typer.echo(remark)
    if any(result.num_missing for result in results):
        raise typer.Exit(1)


def results_table(results: Sequence[BestOfN]) -> Table:
    """The results for a terminal."""
    from rich.table import Table
    from rich.text import Text

    title = " ".join(filter(None, (results[0].dataset, results[0].policy)))
    table = Table(title=Text(title), box=None, pad_edge=False, title_justify="left")
    table.add_column("strategy", no_wrap=True)
    for column in ("solved", "share", "95 %", "helpfulness", "judgments"):
        table.add_column(column, justify="right", no_wrap=True)
    for one in results:
        table.add_row(
            one.strategy,
            f"{one.solved:.10g}/{one.num_problems}",
            "-" if one.share is None else f"{one.share:.1%}",
            "-" if one.interval is None else "{:.1%} to {:.1%}".format(*one.interval),
            "-" if one.helpfulness is None else f"{one.helpfulness:.2f}",
            str(one.num_calls or ""),
        )
    return table


def remarks_on(results: Sequence[BestOfN]) -> list[str]:
    """What is to be known of them besides, a line each."""
    missing = [f"{one.strategy}: {one.num_missing} problems could not be judged" for one in results if one.num_missing]
    return missing + [
        f"{one.strategy}: {one.num_undecided} of {one.num_calls} judgments decided nothing"
        for one in results
        if one.num_undecided
    ]


def _choosing(asking: VoteOptions, *, methods: Sequence[str], group_size: int) -> Choosing:
    """How the best is sought.

    Raises:
        InputError: options that do not go together.
    """
    from tirjudge_harness.best_of_n.selecting import Choosing
    from tirjudge_harness.items import InputError

    for name in methods:
        if STRATEGIES.named(name).needs_answers and asking.tools is Tools.OFF:
            raise InputError(f"{name}: it counts what programs verified, and --tools off was given")
    judging = asking.fields
    return Choosing(seed=judging.pop("seed"), group_size=group_size, judging=judging)

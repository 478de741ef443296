"""The commands that choose among N responses: `tirjudge rerank` and `tirjudge bench best-of-n`. What is heavy is imported
when one of them runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tirjudge.best_of_n import GROUP_SIZE, Selecting
from tirjudge_harness.best_of_n.grading import Grading
from tirjudge_harness.cli import Orders
from tirjudge_harness.options import (
    BUNDLED,
    AsJson,
    Concurrency,
    JudgeOptions,
    PriceIn,
    PriceOut,
    Seed,
    ToolCalls,
    Tools,
    ToolUse,
    asking_a_judge,
)

if TYPE_CHECKING:
    from rich.table import Table

    from tirjudge_harness.best_of_n.results import BestOfN

GroupSize = Annotated[int, typer.Option("--group-size", min=2, max=26, help="Most responses in a listwise comparison.")]
OrdersShown = Annotated[
    Orders, typer.Option("--orders", help="One order drawn from the content, or two opposite ones.")
]
Votes = Annotated[int, typer.Option("--votes", min=1, max=64, help="Rollouts per order.")]


@asking_a_judge
def rerank(
    file: Annotated[Path, typer.Argument(help="id, prompt and responses a row; .jsonl, .json, .csv, .parquet, .gz.")],
    out: Annotated[Path, typer.Option(help="JSONL to write, a line for each row, best first.")],
    method: Annotated[Selecting, typer.Option(help="How the best is found.")] = Selecting.KNOCKOUT,
    group_size: GroupSize = GROUP_SIZE,
    tools: ToolUse = Tools.AUTO,
    orders: OrdersShown = Orders.SINGLE,
    votes: Votes = 1,
    max_tool_calls: ToolCalls = 3,
    seed: Seed = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="Take only the first rows.")] = None,
    concurrency: Concurrency = 64,
    judge_options: JudgeOptions = BUNDLED,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    json: AsJson = False,
) -> None:
    """Put the responses to each prompt of a file in order, the best first.

    Each line of the output has `id`, `best` (an index), `order` (all indexes, best first), `scores` (one a response) and
    what it rests on. Judgments are kept beside the output: stopped or killed, the same command goes on where it was.
    Exits 1 if a row failed; run again to retry it.
    """

    from rich.console import Console

    from tirjudge_harness.best_of_n.rerank import rerank_file
    from tirjudge_harness.best_of_n.selecting import Choosing
    from tirjudge_harness.prices import Prices
    from tirjudge_harness.progress import run_resumable

    _refuse_off(method, tools=tools)
    opening = judge_options.opened(tools=tools)
    console = Console(stderr=True)
    reranking = rerank_file(
        file,
        out=out,
        method=method,
        opening=opening,
        choosing=Choosing(
            seed=seed,
            group_size=group_size,
            judging=_judging(tools=tools, orders=orders, votes=votes, max_tool_calls=max_tool_calls),
        ),
        limit=limit,
        concurrency=concurrency,
        console=console,
        prices=Prices(input=price_in, output=price_out),
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
        list[Selecting] | None, typer.Option(help="How the best is found; repeatable. Default: knockout.")
    ] = None,
    grader: Annotated[
        Grading, typer.Option(help="Who says what is right; given: correct, scores or label of the file.")
    ] = Grading.GIVEN,
    dataset: Annotated[str | None, typer.Option(help="Its name in tables; default: the file's.")] = None,
    policy: Annotated[str, typer.Option(help="Name of the model that wrote the responses.")] = "",
    group_size: GroupSize = GROUP_SIZE,
    tools: ToolUse = Tools.AUTO,
    orders: OrdersShown = Orders.SINGLE,
    votes: Votes = 1,
    max_tool_calls: ToolCalls = 3,
    seed: Seed = 0,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Take a sample of so many problems, of each subset its share.")
    ] = None,
    concurrency: Concurrency = 64,
    judge_options: JudgeOptions = BUNDLED,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    json: AsJson = False,
) -> None:
    """Let a judge choose one of N responses to each problem, and count the problems solved.

    Beside the judge stand the first response, the mean over all (pass@1), the majority's answer and the oracle. Stopped or
    killed, the same command goes on where it was; other strategies may be added in the same folder. Exits 1 if a problem
    failed; run again to retry it.
    """
    from json import dumps

    from rich.console import Console

    from tirjudge_harness.best_of_n.grading import open_grader
    from tirjudge_harness.best_of_n.run import BestOfNSettings, run_best_of_n
    from tirjudge_harness.best_of_n.selecting import Choosing
    from tirjudge_harness.prices import Prices
    from tirjudge_harness.progress import run_resumable
    from tirjudge_harness.row_files import stem_of

    strategies = tuple(dict.fromkeys(strategy or [Selecting.KNOCKOUT]))
    for each in strategies:
        _refuse_off(each, tools=tools)
    settings = BestOfNSettings(
        strategies=strategies,
        grading=grader,
        choosing=Choosing(
            seed=seed,
            group_size=group_size,
            judging=_judging(tools=tools, orders=orders, votes=votes, max_tool_calls=max_tool_calls),
        ),
        dataset=dataset or stem_of(file),
        policy=policy,
        limit=limit,
    )
    opening = judge_options.opened(tools=tools)
    console = Console(stderr=True)

    async def run() -> list[BestOfN]:
        async with opening as opened:
            return await run_best_of_n(
                file,
                out=out,
                opened=opened,
                grading=open_grader(
                    grader,
                    slots=judge_options.slots,
                    allow_unsafe_sandbox=judge_options.allow_unsafe_sandbox,
                ),
                settings=settings,
                concurrency=concurrency,
                console=console,
                prices=Prices(input=price_in, output=price_out),
            )

    results = run_resumable(run(), out=out, console=console)
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
    undecided = [
        f"{one.strategy}: {one.num_undecided} of {one.num_calls} judgments decided nothing"
        for one in results
        if one.num_undecided
    ]
    return missing + undecided


def _judging(*, tools: Tools, orders: Orders, votes: int, max_tool_calls: int) -> dict[str, Any]:
    """Fields of every request."""
    return {"tools": tools.value, "orders": orders.value, "votes": votes, "max_tool_calls": max_tool_calls}


def _refuse_off(method: Selecting, *, tools: Tools) -> None:
    from tirjudge_harness.items import InputError

    if method is Selecting.VERIFIED_VOTE and tools is Tools.OFF:
        raise InputError(f"{method.value}: it counts what programs verified, and --tools off was given")

"""The commands that choose among N responses: `tirjudge rerank` and `tirjudge bench best-of-n`.

Heavy modules are imported inside the commands, so that `tirjudge --help` stays fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tirjudge.best_of_n import GROUP_SIZE
from tirjudge.counted import counted
from tirjudge.strategies import STRATEGIES
from tirjudge_harness.best_of_n.grading import Grading
from tirjudge_harness.options import (
    BUNDLED,
    PACE,
    VOTING,
    AsJson,
    JudgeOptions,
    MaxErrorRate,
    PaceOptions,
    Tools,
    VoteOptions,
    asking_a_judge,
)

if TYPE_CHECKING:
    from rich.table import Table

    from tirjudge_harness.best_of_n.results import BestOfN
    from tirjudge_harness.best_of_n.selecting import Choosing

GroupSize = Annotated[
    int, typer.Option("--group-size", min=2, max=26, help="Maximum responses per listwise comparison.")
]


def strategy_named(name: str) -> str:
    """Return the name of a strategy unchanged.

    Raises:
        typer.BadParameter: no strategy has this name.
    """
    try:
        STRATEGIES.named(name)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return name


StrategyName = Annotated[
    str, typer.Option(parser=strategy_named, metavar="NAME", help="Strategy that finds the best response.")
]


@asking_a_judge
def rerank(
    file: Annotated[
        Path, typer.Argument(help="Rows with id, prompt and responses; .jsonl, .json, .csv, .parquet, .gz.")
    ],
    out: Annotated[Path, typer.Option(help="JSONL file to write, one line per row.")],
    method: StrategyName = "knockout",
    group_size: GroupSize = GROUP_SIZE,
    asking: VoteOptions = VOTING,
    limit: Annotated[int | None, typer.Option(min=1, help="Read only this many rows. Default: all.")] = None,
    max_error_rate: MaxErrorRate = None,
    judge_options: JudgeOptions = BUNDLED,
    pace: PaceOptions = PACE,
    json: AsJson = False,
) -> None:
    """Rank the responses to each prompt of a file, best first.

    Each line of the output has `id`, `best` (an index), `order` (all indexes, best first), `scores` (one per response)
    and the number of judgments behind it. Judgments are saved beside the output. After an interruption, the same
    command resumes. Exits 1 if a row failed; run the command again to retry it. Exits 2 if too many rows are invalid.

    Examples:
        tirjudge rerank answers.jsonl --out ranked.jsonl
        tirjudge rerank answers.jsonl --out ranked.jsonl --url http://127.0.0.1:8400
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
        max_error_rate=max_error_rate,
        prices=pace.prices,
    )
    done = run_resumable(reranking, out=out, console=console)
    if json:
        typer.echo(done.model_dump_json())
    else:
        failed = f", {done.num_failed} failed problems without a line" if done.num_failed else ""
        bad = f", {counted(done.num_bad_rows, 'invalid row')} left out" if done.num_bad_rows else ""
        typer.echo(f"{out}: {done.num_lines} lines, {done.num_calls} new judgments{failed}{bad}")
    num_rows = done.num_lines + done.num_failed
    if not done.num_lines or done.num_failed > (max_error_rate or 0.0) * num_rows:
        raise typer.Exit(1)


@asking_a_judge
def best_of_n(
    file: Annotated[Path, typer.Argument(help="Problems with N responses each: plain rows, or JETTS' layout.")],
    out: Annotated[Path, typer.Option(help="Folder of the run.")],
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            parser=strategy_named,
            metavar="NAME",
            help="Strategy that finds the best response; repeatable. Those of an earlier run are kept. Default: knockout.",
        ),
    ] = None,
    grader: Annotated[
        Grading, typer.Option(help="Grader of the responses; given: use correct, scores or label of the file.")
    ] = Grading.GIVEN,
    dataset: Annotated[
        str | None, typer.Option(help="Name of the dataset in tables. Default: the name of the file.")
    ] = None,
    policy: Annotated[str, typer.Option(help="Name of the model that wrote the responses.")] = "",
    group_size: GroupSize = GROUP_SIZE,
    asking: VoteOptions = VOTING,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Judge a sample of this many problems, stratified by subset.")
    ] = None,
    max_error_rate: MaxErrorRate = None,
    judge_options: JudgeOptions = BUNDLED,
    pace: PaceOptions = PACE,
    json: AsJson = False,
) -> None:
    """Let a judge choose one of N responses to each problem, and count the problems solved.

    The table also shows four baselines: the first response, the mean over all responses (pass@1), the majority answer
    and the oracle. After an interruption, the same command resumes. Other strategies can be added in the same folder.
    Exits 1 if a problem failed; run the command again to retry it. Exits 2 if too many rows are invalid.

    Examples:
        tirjudge bench best-of-n answers.jsonl --out runs/best --grader gsm8k
    """
    from json import dumps

    from rich.console import Console

    from tirjudge_harness.bench_run import run_with_judge
    from tirjudge_harness.best_of_n.grading import open_grader
    from tirjudge_harness.best_of_n.run import BestOfNManifest, BestOfNSettings, left_out_lines, run_best_of_n
    from tirjudge_harness.row_files import stem_of
    from tirjudge_harness.run import MANIFEST
    from tirjudge_harness.run_store import read_stored

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
            max_error_rate=max_error_rate,
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
        manifest = read_stored(out / MANIFEST, model=BestOfNManifest)
        for remark in (*left_out_lines(manifest, results), *remarks_on(results)):
            typer.echo(remark)
    if any(one.num_missing > (max_error_rate or 0.0) * (one.num_problems + one.num_missing) for one in results):
        raise typer.Exit(1)


def results_table(results: Sequence[BestOfN]) -> Table:
    """Return the results as a table for a terminal, one row per strategy or baseline."""
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
            f"{_number(one.solved)}/{one.num_problems}",
            "-" if one.share is None else f"{one.share:.1%}",
            "-" if one.interval is None else "{:.1%} to {:.1%}".format(*one.interval),
            "-" if one.helpfulness is None else f"{one.helpfulness:.2f}",
            str(one.num_calls or ""),
        )
    return table


def _number(solved: float) -> str:
    """Return a number of solved problems. Only fractions, such as those of pass@1, have digits after the point."""
    solved = round(solved, 9)
    return f"{solved:.0f}" if solved.is_integer() else f"{solved:.2f}"


def remarks_on(results: Sequence[BestOfN]) -> list[str]:
    """Return one line per strategy for problems that could not be judged, and one for judgments without a verdict."""
    missing = [f"{one.strategy}: {one.num_missing} problems could not be judged" for one in results if one.num_missing]
    return missing + [
        f"{one.strategy}: {one.num_undecided} of {one.num_calls} judgments have no verdict"
        for one in results
        if one.num_undecided
    ]


def _choosing(asking: VoteOptions, *, methods: Sequence[str], group_size: int) -> Choosing:
    """Return the settings of the requests to the judge, from the options of a command.

    Raises:
        InputError: a method needs programs and tools are off.
    """
    from tirjudge_harness.best_of_n.selecting import Choosing
    from tirjudge_harness.items import InputError

    for name in methods:
        if STRATEGIES.named(name).needs_answers and asking.tools is Tools.OFF:
            raise InputError(f"{name} counts answers that programs verified; --tools off runs none")
    judging = asking.fields
    return Choosing(seed=judging.pop("seed"), group_size=group_size, judging=judging)

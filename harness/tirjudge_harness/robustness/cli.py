"""`tirjudge bench attack`: how often a judge is talked into a wrong response."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tirjudge.types import Mode
from tirjudge_harness.options import (
    BUNDLED,
    AsJson,
    Concurrency,
    Data,
    JudgeOptions,
    Parts,
    PriceIn,
    PriceOut,
    Seed,
    ToolCalls,
    Tools,
    ToolUse,
    asking_a_judge,
)


@asking_a_judge
def attack(
    out: Annotated[Path, typer.Option(help="Folder, with one for the untouched run and one for each attack in it.")],
    benchmark: Annotated[
        str | None,
        typer.Argument(help="As `tirjudge bench list` has it; without one, --data has rows with a label."),
    ] = None,
    data: Data = None,
    part: Parts = None,
    names: Annotated[
        list[str] | None, typer.Option("--attack", help="Of docs/robustness.md; repeatable. Default: all that fit the mode.")
    ] = None,
    mode: Annotated[
        Mode | None, typer.Option(help="pairwise or pointwise; default: the first of them that the benchmark has.")
    ] = None,
    tools: ToolUse = Tools.AUTO,
    max_tool_calls: ToolCalls = 3,
    seed: Seed = 0,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Attack a sample of so many examples, of each subset its share.")
    ] = None,
    concurrency: Concurrency = 64,
    judge_options: JudgeOptions = BUNDLED,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    json: AsJson = False,
) -> None:
    """Tamper with wrong responses, and see how often the judge then takes them for right.

    Pairwise, both orders are judged, before and after. Stopped or killed, the same command goes on where it was. Exits 1
    if an example could not be judged; run again to retry it.
    """
    from json import dumps

    from rich.console import Console

    from tirjudge_harness.benchmark import BENCHMARKS
    from tirjudge_harness.items import InputError
    from tirjudge_harness.planning import RunSettings
    from tirjudge_harness.prices import Prices
    from tirjudge_harness.progress import run_resumable
    from tirjudge_harness.protocols import BOTH_ORDERS, PAPER
    from tirjudge_harness.reports.formats import print_table
    from tirjudge_harness.robustness.attacks import chosen_attacks
    from tirjudge_harness.robustness.report import as_json, attack_table
    from tirjudge_harness.robustness.run import LABELLED, attack_judge, mode_of

    if benchmark is None and data is None:
        raise InputError("neither a benchmark nor --data given; name a benchmark, or a file of rows with a label")
    try:
        found = LABELLED if benchmark is None else BENCHMARKS.named(benchmark)
    except ValueError as error:
        raise InputError(str(error)) from error
    asked = mode_of(found, mode)
    settings = RunSettings(
        mode=asked,
        protocol=BOTH_ORDERS if asked is Mode.PAIRWISE else PAPER,
        tools=tools.value,
        max_tool_calls=max_tool_calls,
        seed=seed,
        parts=tuple(part or ()),
        data=data,
        limit=limit,
    )
    attacks = chosen_attacks(names or (), mode=asked)
    opening = judge_options.opened(tools=tools)
    console = Console(stderr=True)

    async def judge_all():
        async with opening as opened:
            return await attack_judge(
                found,
                attacks=attacks,
                out=out,
                opened=opened,
                settings=settings,
                concurrency=concurrency,
                console=console,
                prices=Prices(input=price_in, output=price_out),
            )

    attacked = run_resumable(judge_all(), out=out, console=console)
    if json:
        typer.echo(dumps(as_json(attacked)))
    else:
        print_table(attack_table(attacked, title=f"{found.title} under attack"), console=Console())
    if attacked.num_missing:
        raise typer.Exit(1)

"""`tirjudge bench attack`: how often a judge is talked into a wrong response."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tirjudge.types import Mode
from tirjudge_harness.options import (
    ASKING,
    BUNDLED,
    PACE,
    AsJson,
    AskOptions,
    Data,
    JudgeOptions,
    PaceOptions,
    Parts,
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
        list[str] | None,
        typer.Option("--attack", help="Of docs/robustness.md; repeatable. Default: all that fit the mode."),
    ] = None,
    mode: Annotated[
        Mode | None, typer.Option(help="pairwise or pointwise; default: the first of them that the benchmark has.")
    ] = None,
    asking: AskOptions = ASKING,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Attack a sample of so many examples, of each subset its share.")
    ] = None,
    judge_options: JudgeOptions = BUNDLED,
    pace: PaceOptions = PACE,
    json: AsJson = False,
) -> None:
    """Tamper with wrong responses, and see how often the judge then takes them for right.

    Pairwise, both orders are judged, before and after. Stopped or killed, the same command goes on where it was. Exits 1
    if an example could not be judged; run again to retry it.
    """
    from json import dumps

    from rich.console import Console

    from tirjudge_harness.bench_run import run_with_judge
    from tirjudge_harness.benchmark import BENCHMARKS
    from tirjudge_harness.items import InputError, as_input_error
    from tirjudge_harness.planning import RunSettings
    from tirjudge_harness.protocols import BOTH_ORDERS, PAPER
    from tirjudge_harness.reports.formats import print_table
    from tirjudge_harness.robustness.attacks import chosen_attacks
    from tirjudge_harness.robustness.report import as_json, attack_table
    from tirjudge_harness.robustness.run import LABELLED, attack_judge, mode_of

    if benchmark is None and data is None:
        raise InputError("neither a benchmark nor --data given; name a benchmark, or a file of rows with a label")
    with as_input_error():
        found = LABELLED if benchmark is None else BENCHMARKS.named(benchmark)
    asked = mode_of(found, mode)
    settings = RunSettings(
        mode=asked,
        protocol=BOTH_ORDERS if asked is Mode.PAIRWISE else PAPER,
        **asking.fields,
        parts=tuple(part or ()),
        data=data,
        limit=limit,
    )
    attacks = chosen_attacks(names or (), mode=asked)
    attacked = run_with_judge(
        lambda context: attack_judge(found, attacks=attacks, out=out, settings=settings, context=context),
        opening=judge_options.opened(tools=asking.tools),
        out=out,
        concurrency=pace.concurrency,
        prices=pace.prices,
    )
    if json:
        typer.echo(dumps(as_json(attacked)))
    else:
        print_table(attack_table(attacked, title=f"{found.title} under attack"), console=Console())
    if attacked.num_missing:
        raise typer.Exit(1)

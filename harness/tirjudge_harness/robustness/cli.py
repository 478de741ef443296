"""`tirjudge bench attack`: measure how often attacks in a wrong response mislead a judge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tirjudge.types import Mode
from tirjudge_harness.options import (
    ASKING,
    BUNDLED,
    COLUMNS,
    PACE,
    ROWS,
    AsJson,
    AskOptions,
    ColumnOptions,
    JudgeOptions,
    PaceOptions,
    RowOptions,
    asking_a_judge,
)


@asking_a_judge
def attack(
    out: Annotated[Path, typer.Option(help="Folder for the run without an attack and one run per attack.")],
    benchmark: Annotated[
        str | None,
        typer.Argument(help="Name from `tirjudge bench list`. Default: your own rows in --data."),
    ] = None,
    rows: RowOptions = ROWS,
    columns: ColumnOptions = COLUMNS,
    names: Annotated[
        list[str] | None,
        typer.Option("--attack", help="Name from docs/robustness.md; repeatable. Default: all attacks for the mode."),
    ] = None,
    mode: Annotated[
        Mode | None, typer.Option(help="pairwise or pointwise. Default: the first of the two that the benchmark has.")
    ] = None,
    asking: AskOptions = ASKING,
    judge_options: JudgeOptions = BUNDLED,
    pace: PaceOptions = PACE,
    json: AsJson = False,
) -> None:
    """Add attacks to wrong responses, and measure how often the judge then prefers them.

    In pairwise mode, both orders are judged, without and with the attack. To continue a stopped or killed run, run the same
    command again. The exit status is 1 if an example failed; the same command retries it.

    Examples:
        tirjudge bench attack judgebench --out runs/attacks
        tirjudge bench attack --data mine.csv --out runs/attacks
    """
    from json import dumps

    from rich.console import Console

    from tirjudge_harness.bench_run import load_given, run_with_judge
    from tirjudge_harness.planning import RunSettings
    from tirjudge_harness.protocols import BOTH_ORDERS, PAPER
    from tirjudge_harness.reports.formats import print_table
    from tirjudge_harness.robustness.attacks import chosen_attacks
    from tirjudge_harness.robustness.report import as_json, attack_table
    from tirjudge_harness.robustness.run import attack_judge, mode_of

    data = load_given(benchmark, rows=rows, columns=columns.given, console=Console(stderr=True))
    asked = mode_of(data.benchmark, mode)
    settings = RunSettings(
        mode=asked,
        protocol=BOTH_ORDERS if asked is Mode.PAIRWISE else PAPER,
        **asking.fields,
        **rows.fields,
    )
    attacks = chosen_attacks(names or (), mode=asked)
    attacked = run_with_judge(
        lambda context: attack_judge(data, attacks=attacks, out=out, settings=settings, context=context),
        judge=judge_options,
        tools=asking.tools,
        out=out,
        pace=pace,
    )
    if json:
        typer.echo(dumps(as_json(attacked)))
    else:
        print_table(attack_table(attacked, title=f"{data.benchmark.title} under attack"), console=Console())
    if attacked.num_missing:
        raise typer.Exit(1)

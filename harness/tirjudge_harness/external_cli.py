"""`tirjudge bench score`: score the verdicts of another program, by the rules of a benchmark or by labels in the file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tirjudge.types import Mode
from tirjudge_harness.options import AsJson, Data, MaxErrorRate, Parts


def score(
    decisions: Annotated[
        Path,
        typer.Option(
            help='JSONL file (.jsonl or .jsonl.gz): {"id", "decisions": ["A>B", null, ...]} or {"id", "scores": [...]}.'
        ),
    ],
    benchmark: Annotated[
        str | None, typer.Argument(help="Name from `tirjudge bench list`. Default: the lines carry labels.")
    ] = None,
    data: Data = None,
    part: Parts = None,
    mode: Annotated[Mode | None, typer.Option(help="Default: detected from the file.")] = None,
    protocol: Annotated[str, typer.Option(help="official, paper, single_game, both_orders or votes=N.")] = "official",
    flipped: Annotated[
        bool,
        typer.Option("--flipped", help="All decisions about an example use the labels of its first order."),
    ] = False,
    scalar: Annotated[
        bool,
        typer.Option(
            "--scalar", help="The scores are those of a scalar reward model, whose ties official rules count as wrong."
        ),
    ] = False,
    max_error_rate: MaxErrorRate = None,
    json: AsJson = False,
) -> None:
    """Score verdicts of another program.

    By default, the first decision is about the listed order of the responses, the second about the reversed order, and
    so on in turn. A is the response that was shown first. "A>>B" equals "A>B", "A=B" is a tie, a letter names one of
    several responses, and null means no verdict. "shown", such as [[0, 3], [3, 0]], gives other orders. Examples without a
    line are missing and count in no metric. Without a benchmark, each line has the right answer in "label" (an index,
    "A>B" or "A=B") and optionally a "subset"; the result is then the accuracy by every rule, the agreement with the
    labels, and the effect of the second order.

    Examples:
        tirjudge bench score --decisions verdicts.jsonl judgebench
        tirjudge bench score --decisions labeled.jsonl
    """
    from json import dumps

    from rich.console import Console

    from tirjudge_harness.bench_run import load
    from tirjudge_harness.benchmark import BENCHMARKS
    from tirjudge_harness.evaluation import evaluate
    from tirjudge_harness.external import read_decisions, read_lines
    from tirjudge_harness.items import InputError, as_input_error
    from tirjudge_harness.labelled import add_up
    from tirjudge_harness.progress import print_some
    from tirjudge_harness.protocols import find_protocol
    from tirjudge_harness.reports.evaluated import evaluation_table, labelled_tables
    from tirjudge_harness.reports.formats import print_table

    if benchmark is None:
        if data is not None or part:
            raise InputError("--data and --part need a benchmark; name a benchmark, or remove these options")
        labelled = add_up(read_decisions(decisions, None, mode=mode, flipped=flipped, scalar=scalar))
        result, tables = labelled.as_json(), labelled_tables(labelled, title=decisions.name)
    else:
        with as_input_error():
            found, counting = BENCHMARKS.named(benchmark), find_protocol(protocol)
        lines = read_lines(decisions)  # before a download of examples
        console = Console(stderr=True)
        rows = load(found, data=data, parts=part or (), max_error_rate=max_error_rate, console=console)
        examples = rows.examples
        outlines = [example.outline for example in examples]
        junk: list[str] = []
        ignores = counting.counting is None and any(one.ignores_junk for one in found.official.values())
        judged = read_decisions(
            decisions,
            outlines,
            lines=lines,
            mode=mode,
            flipped=flipped,
            scalar=scalar,
            on_junk=junk.append if ignores else None,
        )
        if junk:
            console.print(f"{len(junk)} decisions that were not offered count as no verdict, as in the official code:")
            print_some(junk, console=console, rest="more decisions")
        with as_input_error(decisions):
            evaluation = evaluate(found, judged, mode=judged[0].mode, protocol=counting)
        result = {"benchmark": benchmark, "protocol": protocol, "ignored_decisions": len(junk), **evaluation.as_json()}
        tables = [evaluation_table(evaluation, title=f"{found.title}, {protocol}")]
    if json:
        typer.echo(dumps(result))
        return
    console = Console()
    for place, table in enumerate(tables):
        if place:
            console.print()
        print_table(table, console=console)

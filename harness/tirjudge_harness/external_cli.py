"""`tirjudge bench score`: verdicts made elsewhere, scored by the rules of a benchmark or by the labels that they carry."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tirjudge.types import Mode
from tirjudge_harness.options import AsJson, Data, Parts


def score(
    decisions: Annotated[
        Path,
        typer.Option(
            help='JSONL, perhaps .gz: {"id", "decisions": ["A>B", null, ...]}, one a look, or {"id", "scores": [...]}.'
        ),
    ],
    benchmark: Annotated[
        str | None, typer.Argument(help="As `tirjudge bench list` has it; without one, lines carry a label.")
    ] = None,
    data: Data = None,
    part: Parts = None,
    mode: Annotated[Mode | None, typer.Option(help="Default: by what the file holds.")] = None,
    protocol: Annotated[str, typer.Option(help="official, paper, both_orders or votes=N.")] = "official",
    flipped: Annotated[
        bool,
        typer.Option("--flipped", help="Decisions are in the labels of the first look, not each in those of its own."),
    ] = False,
    json: AsJson = False,
) -> None:
    """Score verdicts that were made elsewhere.

    The responses are taken to be shown as they are listed at the first look, the other way round at the second, and so
    on by turns; A is what was shown first. "A>>B" is "A>B", "A=B" a tie, a letter names one of many, null is no verdict;
    "shown", such as [[0, 3], [3, 0]], says that other responses were shown. Examples without a line are missing, and in
    no figure. Without a benchmark, a line says what is right in "label" (an index, "A>B" or "A=B"), and perhaps its
    "subset"; then accuracy is given by every rule, with agreement and what the second order changed.
    """
    from json import dumps

    from rich.console import Console

    from tirjudge_harness.bench_run import load
    from tirjudge_harness.benchmark import BENCHMARKS
    from tirjudge_harness.evaluation import evaluate
    from tirjudge_harness.external import read_decisions
    from tirjudge_harness.items import InputError, as_input_error
    from tirjudge_harness.labelled import add_up
    from tirjudge_harness.protocols import find_protocol
    from tirjudge_harness.reports.evaluated import evaluation_table, labelled_tables
    from tirjudge_harness.reports.formats import print_table

    if benchmark is None:
        if data is not None or part:
            raise InputError("--data, --part given without a benchmark; name it, or leave them out")
        labelled = add_up(read_decisions(decisions, None, mode=mode, flipped=flipped))
        result, tables = labelled.as_json(), labelled_tables(labelled, title=decisions.name)
    else:
        with as_input_error():
            found, counting = BENCHMARKS.named(benchmark), find_protocol(protocol)
        examples, _ = load(found, data=data, parts=part or (), console=Console(stderr=True))
        outlines = [example.outline for example in examples]
        judged = read_decisions(decisions, outlines, mode=mode, flipped=flipped)
        with as_input_error(decisions):
            evaluation = evaluate(found, judged, mode=judged[0].mode, protocol=counting)
        result = {"benchmark": benchmark, "protocol": protocol, **evaluation.as_json()}
        tables = [evaluation_table(evaluation, title=f"{found.title}, {protocol}")]
    if json:
        typer.echo(dumps(result))
        return
    console = Console()
    for place, table in enumerate(tables):
        if place:
            console.print()
        print_table(table, console=console)

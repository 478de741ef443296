"""`tirjudge judge`. Heavy modules are imported inside the command, so that `tirjudge --help` stays fast."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tirjudge.types import Mode
from tirjudge_harness.options import (
    BUNDLED,
    COLUMNS,
    VOTING,
    AsJson,
    ColumnOptions,
    Concurrency,
    JudgeOptions,
    MaxErrorRate,
    MinAccuracy,
    VoteOptions,
    asking_a_judge,
)

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from tirjudge_harness.items import JudgeSettings
    from tirjudge_harness.judges import OpenJudge


@asking_a_judge
def judge(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE | PROMPT FILE...",
            help="With --out: a file of items (.jsonl, .csv, .tsv, .parquet, or a .json list, optionally .gz). "
            "Without --out: one JSON request, or a prompt (a text or a file) and one file per response. - is standard input.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="JSONL file to write, one judgment per line; an existing file is resumed. FILE.csv: a table of verdicts, "
            "with the judgments in FILE.csv.jsonl. - is standard output. Default: judge one request, and print its verdict "
            "with its programs."
        ),
    ] = None,
    mode: Annotated[
        Mode | None, typer.Option(help="Default: pairwise for two responses, listwise for more, pointwise for one.")
    ] = None,
    columns: ColumnOptions = COLUMNS,
    asking: VoteOptions = VOTING,
    limit: Annotated[int | None, typer.Option(min=1, help="Judge only the first items.")] = None,
    concurrency: Concurrency = 16,
    judge_options: JudgeOptions = BUNDLED,
    min_accuracy: MinAccuracy = None,
    max_error_rate: MaxErrorRate = None,
    full: Annotated[bool, typer.Option("--full", help="Print long texts of one request whole.")] = False,
    json: AsJson = False,
) -> None:
    """Judge one request, or the items of a file, and report how often the judge is right.

    Accuracy covers the items with a label, with Wilson's 95 % interval. A judgment scores 1 if it names the labeled
    response, and 0 otherwise. In pointwise mode, if k responses share the highest score and the labeled one is among them,
    the judgment scores 1/k. In the other modes, a tie and an abstention score 0, and the summary also counts them
    separately. Coverage is the share of the items with a verdict. Accuracy is also given over these items alone, and over
    the verdicts that a program checked, that were reasoned, and that were guessed. Failed items are not scored; run the
    same command again to retry them. The exit status is 1 if an item failed, if no judgment was made, or if the accuracy is
    below --min-accuracy. It is 2 if too many lines are invalid.

    Examples:
        tirjudge judge "Write exactly two words." a.txt b.txt    # one response per file; print the verdict with its programs
        tirjudge judge request.json --json               # a JSON request; print the judgment as JSON
        tirjudge judge items.jsonl --out judged.jsonl    # judge a file of items, and print a summary
        tirjudge judge pairs.csv --out verdicts.csv      # a table with the best response of each row
        tirjudge judge pairs.csv --out verdicts.csv --prompt-column task --response-column old --response-column new
        tirjudge judge pairs.csv --out -                 # judgments to standard output
    """
    from json import dumps
    from os.path import exists

    from rich.console import Console

    from tirjudge_harness.item_files import is_item_file
    from tirjudge_harness.items import InputError, JudgeSettings
    from tirjudge_harness.judging import judge_file
    from tirjudge_harness.progress import run_resumable
    from tirjudge_harness.single_request import STDIN, path_of
    from tirjudge_harness.summary import problems_of, summary_table

    settings = JudgeSettings(mode=mode, **asking.fields)
    if out is None and len(inputs) == 1 and is_item_file(inputs[0]) and exists(inputs[0]):
        raise InputError(f"{inputs[0]} is a file of items; give --out FILE, or --out - for standard output")
    if out is None:
        given = {"--limit": limit, "--min-accuracy": min_accuracy, "--max-error-rate": max_error_rate}
        if unused := [name for name, value in given.items() if value is not None]:
            raise InputError(f"{', '.join(unused)}: only for a file of items; give --out FILE")
        if columns != COLUMNS:
            raise InputError("options for columns are only for a file of items; give --out FILE")
        _judge_one(inputs, settings=settings, opening=judge_options.opened(tools=asking.tools), full=full, json=json)
        return
    if len(inputs) > 1:
        raise InputError("--out: give one file of items; without --out, a prompt and responses are judged once")
    stored = None if str(out) == STDIN else out
    if json and stored is None:
        raise InputError(
            "--json prints the summary to standard output, which has the judgments; remove it, or give --out FILE"
        )
    console = Console(stderr=True)
    judging = judge_file(
        path_of(inputs[0]),
        out=stored,
        settings=settings,
        opening=judge_options.opened(tools=asking.tools),
        limit=limit,
        concurrency=concurrency,
        console=console,
        max_error_rate=max_error_rate,
        columns=columns.given,
    )
    summary = run_resumable(judging, out=stored, console=console)
    if json:
        typer.echo(dumps(summary.as_json()))
    else:
        (console if stored is None else Console()).print(summary_table(summary))
    problems = problems_of(summary, max_error_rate=max_error_rate, min_accuracy=min_accuracy)
    for problem in problems:
        typer.echo(problem, err=True)
    if problems:
        raise typer.Exit(1)


def _judge_one(
    inputs: list[str],
    *,
    settings: JudgeSettings,
    opening: AbstractAsyncContextManager[OpenJudge],
    full: bool,
    json: bool,
) -> None:
    """Judge one request, and print it with its judgment."""
    from rich.console import Console

    from tirjudge_harness.judging import judge_request
    from tirjudge_harness.progress import run_resumable
    from tirjudge_harness.showing.items import item_of
    from tirjudge_harness.showing.printing import print_item
    from tirjudge_harness.single_request import read_request

    request = read_request(inputs, settings=settings)
    console = Console(stderr=True)
    with console.status("judging"):
        judgment = run_resumable(judge_request(request, opening=opening), out=None, console=console)
    if json:
        typer.echo(judgment.model_dump_json())
        return
    prompt = request.prompt if isinstance(request.prompt, str) else tuple(request.prompt)
    print_item(
        item_of(judgment, id="", prompt=prompt, responses=tuple(request.responses)), console=Console(), full=full
    )

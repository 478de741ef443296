"""`tirjudge judge FILE`. Heavy modules are imported inside the command, so that `tirjudge --help` stays fast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tirjudge.types import Mode
from tirjudge_harness.options import BUNDLED, VOTING, AsJson, Concurrency, JudgeOptions, VoteOptions, asking_a_judge


@asking_a_judge
def judge(
    file: Annotated[
        Path, typer.Argument(help="JSONL file (.jsonl or .jsonl.gz): id, prompt, responses, and optionally label.")
    ],
    out: Annotated[Path, typer.Option(help="JSONL file to write, one judgment per line. An existing file is resumed.")],
    mode: Annotated[
        Mode | None, typer.Option(help="Default: pairwise for two responses, listwise for more, pointwise for one.")
    ] = None,
    asking: VoteOptions = VOTING,
    limit: Annotated[int | None, typer.Option(min=1, help="Judge only the first items.")] = None,
    concurrency: Concurrency = 16,
    judge_options: JudgeOptions = BUNDLED,
    json: AsJson = False,
) -> None:
    """Judge the items of a file, and report how often the judge is right.

    Accuracy covers the items with a label, with Wilson's 95 % interval. A judgment scores 1 if it names the labeled
    response, and 0 otherwise. In pointwise mode, if k responses share the highest score and the labeled one is among them,
    the judgment scores 1/k. In the other modes, a tie and an abstention score 0, and the summary also counts them
    separately. Coverage is the share of the items with a verdict. Accuracy is also given over these items alone, and over
    the verdicts that a program checked, that were reasoned, and that were guessed. Failed items are not scored; run the
    same command again to retry them. The exit status is 1 if an item failed, or if no judgment was made.
    """
    from json import dumps

    from rich.console import Console

    from tirjudge_harness.items import JudgeSettings
    from tirjudge_harness.judging import judge_file
    from tirjudge_harness.progress import run_resumable
    from tirjudge_harness.summary import summary_table

    settings = JudgeSettings(mode=mode, **asking.fields)
    opening = judge_options.opened(tools=asking.tools)
    console = Console(stderr=True)
    judging = judge_file(
        file, out=out, settings=settings, opening=opening, limit=limit, concurrency=concurrency, console=console
    )
    summary = run_resumable(judging, out=out, console=console)
    if json:
        typer.echo(dumps(summary.as_json()))
    else:
        Console().print(summary_table(summary))
    if summary.num_failed or not summary.num_judged:
        raise typer.Exit(1)

"""The command `tirjudge batch`. What is heavy is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tirjudge_harness.options import BUNDLED, AsJson, Concurrency, JudgeOptions, asking_a_judge

if TYPE_CHECKING:
    from tirjudge_harness.batch.run import BatchExecutor


@asking_a_judge
def batch(
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="INPUT...",
            help="JSONL, perhaps .gz, or Parquet, or folders of such: requests as of POST /v1/judge, perhaps with a key.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder to write; if it has results, the run goes on.")],
    limit: Annotated[int | None, typer.Option(min=1, help="Judge only the first keys.")] = None,
    concurrency: Concurrency = 16,
    on_ray: Annotated[
        bool, typer.Option("--ray", help="Judge on a Ray cluster, in actors that each have a judge.")
    ] = False,
    ray_address: Annotated[
        str | None,
        typer.Option(
            help="Of the cluster, with --ray; default: $RAY_ADDRESS, the one this machine is in, or a new one on it."
        ),
    ] = None,
    actors: Annotated[
        str, typer.Option(help="How many, with --ray: 4, or 2:16 for a pool that grows and shrinks.")
    ] = "1",
    actor_cpus: Annotated[float, typer.Option(min=0.0, help="Cores that Ray sets aside for each.")] = 1.0,
    judge_options: JudgeOptions = BUNDLED,
    json: AsJson = False,
) -> None:
    """Judge any number of requests into a folder of Parquet files, one result a key.

    Stopped, killed, or with nodes lost, the same command goes on where it was. Failures that may pass are tried again by
    the next run; requests that this judge cannot take are results, with the reason. Rows that are no requests are named
    by file and row, and stop no others. --concurrency is that of each actor. Exits 1 if something failed, or if there is
    no result at all.
    """
    from dataclasses import asdict
    from functools import partial
    from json import dumps

    from rich.console import Console

    from tirjudge_harness.batch.run import run_batch
    from tirjudge_harness.batch.summary import summary_table
    from tirjudge_harness.options import Tools
    from tirjudge_harness.progress import run_resumable

    judging = _judging(on_ray=on_ray, address=ray_address, actors=actors, concurrency=concurrency, num_cpus=actor_cpus)
    judge_options.opened(tools=Tools.AUTO)  # options that do not go together are refused before anything is read
    console = Console(stderr=True)
    running = run_batch(
        inputs,
        out=out,
        opening_for=lambda tools: partial(judge_options.opened, tools=Tools.AUTO if tools else Tools.OFF),
        judging=judging,
        console=console,
        limit=limit,
    )
    summary = run_resumable(running, out=out, console=console)
    if json:
        typer.echo(dumps(asdict(summary)))
    else:
        Console().print(summary_table(summary))
    if summary.num_failed or not summary.num_results:
        raise typer.Exit(1)


def _judging(*, on_ray: bool, address: str | None, actors: str, concurrency: int, num_cpus: float) -> BatchExecutor:
    """Who judges.

    Raises:
        InputError: options that do not go together.
    """
    from tirjudge_harness.batch.local import Here
    from tirjudge_harness.items import InputError

    if not on_ray:
        if address is not None or actors != "1" or num_cpus != 1.0:
            raise InputError("--ray-address, --actors or --actor-cpus given without --ray; add it, or leave them out")
        return Here(concurrency=concurrency)
    low, _, high = actors.partition(":")
    if not (low.isdecimal() and (high or low).isdecimal() and 1 <= int(low) <= int(high or low)):
        raise InputError(f"--actors: {actors!r} given; 4, or 2:16, would do")
    from tirjudge_harness.batch.on_ray import OnRay

    return OnRay(
        address=address, min_actors=int(low), max_actors=int(high or low), concurrency=concurrency, num_cpus=num_cpus
    )

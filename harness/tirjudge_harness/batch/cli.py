"""The command `tirjudge batch`. Heavy modules are imported inside the command, so that `tirjudge --help` stays fast."""

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
            help="JSONL (optionally .gz) or Parquet files, or folders: requests of POST /v1/judge, optionally with a key.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Output folder. A folder with results is resumed.")],
    limit: Annotated[int | None, typer.Option(min=1, help="Judge only the first N keys.")] = None,
    concurrency: Concurrency = 16,
    on_ray: Annotated[
        bool, typer.Option("--ray", help="Judge on a Ray cluster. Each actor has its own judge.")
    ] = False,
    ray_address: Annotated[
        str | None,
        typer.Option(
            help="Cluster address, with --ray. Default: $RAY_ADDRESS, the cluster of this machine, or a new cluster."
        ),
    ] = None,
    actors: Annotated[
        str, typer.Option(help="Number of actors, with --ray: 4, or 2:16 for an autoscaling pool.")
    ] = "1",
    actor_cpus: Annotated[float, typer.Option(min=0.0, help="CPU cores that Ray reserves for each actor.")] = 1.0,
    judge_options: JudgeOptions = BUNDLED,
    json: AsJson = False,
) -> None:
    """Judge files of requests into a folder of Parquet files, with one result per key.

    To continue a stopped or killed run, run the same command again. It retries temporary failures. A request that the
    judge cannot process has a result with the reason. Invalid rows are reported with file and row number, and do not
    stop the others. --concurrency applies to each actor. The exit status is 1 if a request failed, or if there is no
    result.

    Examples:
        tirjudge batch requests.jsonl --out judged
        tirjudge batch requests.jsonl --out judged --ray --engine http://gpu-1:8000
    """
    from dataclasses import asdict
    from functools import partial
    from json import dumps

    from rich.console import Console

    from tirjudge_harness.batch.run import run_batch
    from tirjudge_harness.batch.summary import summary_table
    from tirjudge_harness.options import Tools
    from tirjudge_harness.progress import run_resumable

    judging = _executor(on_ray=on_ray, address=ray_address, actors=actors, concurrency=concurrency, num_cpus=actor_cpus)
    judge_options.opened(tools=Tools.AUTO)  # reports conflicting options before the input is read
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


def _executor(*, on_ray: bool, address: str | None, actors: str, concurrency: int, num_cpus: float) -> BatchExecutor:
    """Return the executor.

    Raises:
        InputError: the options conflict.
    """
    from tirjudge_harness.batch.local import Here
    from tirjudge_harness.items import InputError

    if not on_ray:
        if address is not None or actors != "1" or num_cpus != 1.0:
            raise InputError("--ray-address, --actors and --actor-cpus need --ray")
        return Here(concurrency=concurrency)
    low, _, high = actors.partition(":")
    if not (low.isdecimal() and (high or low).isdecimal() and 1 <= int(low) <= int(high or low)):
        raise InputError(f"--actors: expected a number such as 4, or a range such as 2:16, got {actors!r}")
    from tirjudge_harness.batch.on_ray import OnRay

    return OnRay(
        address=address, min_actors=int(low), max_actors=int(high or low), concurrency=concurrency, num_cpus=num_cpus
    )

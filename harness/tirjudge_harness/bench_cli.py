"""The commands of `tirjudge bench`. Heavy modules are imported inside the commands, so that `--help` stays fast."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tirjudge.types import Mode
from tirjudge_harness.benchmark_list import list_benchmarks
from tirjudge_harness.best_of_n.cli import best_of_n
from tirjudge_harness.downloads.cli import download
from tirjudge_harness.external_cli import score
from tirjudge_harness.options import (
    ASKING,
    BUNDLED,
    PACE,
    ROWS,
    AsJson,
    AskOptions,
    JudgeOptions,
    PaceOptions,
    ProtocolName,
    RowOptions,
    asking_a_judge,
)
from tirjudge_harness.reports.cli import compare, export, plot, report
from tirjudge_harness.robustness.cli import attack

if TYPE_CHECKING:
    from tirjudge_harness.bench_run import RunContext
    from tirjudge_harness.run import BenchmarkRun

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Run judges on benchmarks, and report the results.")


@app.command("run")
@asking_a_judge
def run(
    benchmarks: Annotated[list[str], typer.Argument(help="Names from `tirjudge bench list`.")],
    out: Annotated[Path, typer.Option(help="Folder of the run. Several benchmarks get one folder each in it.")],
    rows: RowOptions = ROWS,
    mode: Annotated[Mode | None, typer.Option(help="Default: the first mode of the benchmark.")] = None,
    protocol: ProtocolName = "paper",
    asking: AskOptions = ASKING,
    shard: Annotated[str | None, typer.Option(help="i/n: judge shard i of n. `bench merge` merges the shards.")] = None,
    judge_options: JudgeOptions = BUNDLED,
    pace: PaceOptions = PACE,
    json: AsJson = False,
) -> None:
    """Run a judge on benchmarks, and print its results.

    To continue a stopped or killed run, run the same command again. Failed examples are not scored; the same command
    retries them. The exit status is 1 if an example failed, or if no judgment was made.
    """
    from json import dumps

    from rich.console import Console

    from tirjudge_harness.bench_run import data_of, run_benchmark, run_with_judge
    from tirjudge_harness.benchmark import BENCHMARKS
    from tirjudge_harness.evaluation import evaluate
    from tirjudge_harness.items import InputError, as_input_error
    from tirjudge_harness.planning import RunSettings
    from tirjudge_harness.protocols import find_protocol
    from tirjudge_harness.reports.evaluated import evaluation_table
    from tirjudge_harness.reports.formats import print_table
    from tirjudge_harness.row_sampling import Shard

    with as_input_error():
        chosen = [BENCHMARKS.named(name) for name in dict.fromkeys(benchmarks)]
        counting = find_protocol(protocol)
    names = [benchmark.name for benchmark in chosen]
    if rows.part and len(names) > 1:
        raise InputError("--part needs a single benchmark; run each benchmark separately")
    whole = RunSettings(
        mode=mode,
        protocol=counting,
        **asking.fields,
        **rows.fields,
        shard=None if shard is None else Shard.parse(shard),
    )
    settings = [replace(whole, data=data_of(name, data=rows.data, names=names)) for name in names]

    async def judge_all(context: RunContext) -> list[BenchmarkRun]:
        return [
            await run_benchmark(
                benchmark, out=out if len(names) == 1 else out / benchmark.name, settings=its, context=context
            )
            for benchmark, its in zip(chosen, settings, strict=True)
        ]

    runs = run_with_judge(judge_all, judge=judge_options, tools=asking.tools, out=out, pace=pace)
    with as_input_error():
        evaluations = [
            evaluate(benchmark, run.examples, mode=run.manifest.mode, protocol=counting)
            for benchmark, run in zip(chosen, runs, strict=True)
        ]
    if json:
        results = zip(runs, evaluations, strict=True)
        typer.echo(dumps([_as_json(run) | evaluation.as_json() for run, evaluation in results]))
    else:
        for benchmark, evaluation in zip(chosen, evaluations, strict=True):
            print_table(evaluation_table(evaluation, title=benchmark.title), console=Console())
    if any(run.num_missing or not run.judged for run in runs):
        raise typer.Exit(1)


@app.command("merge")
def merge_shards(
    out: Annotated[Path, typer.Argument(help="New folder for the merged run.")],
    shards: Annotated[
        list[Path], typer.Argument(help="Folders of all shards of one run. Each shard must be complete.")
    ],
) -> None:
    """Merge the shards of a run. The result equals a run without shards."""
    from tirjudge_harness.merging import merge

    num_examples = merge(out, shards=shards)
    typer.echo(f"{out}: {num_examples} examples of {len(shards)} shards")


app.command("list")(list_benchmarks)
app.command("download")(download)
app.command("score")(score)
app.command("report")(report)
app.command("compare")(compare)
app.command("plot")(plot)
app.command("export")(export)
app.command("best-of-n")(best_of_n)
app.command("attack")(attack)


def _as_json(run: BenchmarkRun) -> dict[str, Any]:
    return {
        "benchmark": run.manifest.benchmark,
        "out": str(run.path),
        "manifest": run.manifest.model_dump(mode="json"),
        "num_failed": len(run.failures),
        "num_missing": run.num_missing,
    }

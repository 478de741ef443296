"""The commands of `tirjudge bench`. Heavy modules are imported inside the commands, so that `--help` stays fast."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tirjudge.counted import counted
from tirjudge.types import Mode
from tirjudge_harness.benchmark_list import list_benchmarks
from tirjudge_harness.best_of_n.cli import best_of_n
from tirjudge_harness.downloads.cli import download
from tirjudge_harness.external_cli import score
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
    MaxErrorRate,
    MinAccuracy,
    PaceOptions,
    Parts,
    ProtocolName,
    RowOptions,
    asking_a_judge,
)
from tirjudge_harness.reports.cli import compare, export, plot, report
from tirjudge_harness.reports.pages.cli import index
from tirjudge_harness.reports.statistics_cli import estimate, power, rank
from tirjudge_harness.robustness.cli import attack

if TYPE_CHECKING:
    from tirjudge_harness.bench_run import RunContext
    from tirjudge_harness.run import BenchmarkRun

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Run judges on benchmarks, and report the results.")


@app.command("run")
@asking_a_judge
def run(
    out: Annotated[Path, typer.Option(help="Folder of the run. Several benchmarks get one folder each in it.")],
    benchmarks: Annotated[
        list[str] | None,
        typer.Argument(help="Names from `tirjudge bench list`. Default: your own rows in --data."),
    ] = None,
    rows: RowOptions = ROWS,
    columns: ColumnOptions = COLUMNS,
    mode: Annotated[Mode | None, typer.Option(help="Default: the first mode of the benchmark.")] = None,
    protocol: ProtocolName = "paper",
    asking: AskOptions = ASKING,
    shard: Annotated[str | None, typer.Option(help="i/n: judge shard i of n. `bench merge` merges the shards.")] = None,
    judge_options: JudgeOptions = BUNDLED,
    pace: PaceOptions = PACE,
    min_accuracy: MinAccuracy = None,
    json: AsJson = False,
) -> None:
    """Run a judge on benchmarks or on your own rows, and print its results.

    Without the name of a benchmark, --data is your own file. The meaning of its columns is found by their names and values,
    and printed; `tirjudge bench inspect FILE` shows it without judging.

    To continue a stopped or killed run, run the same command again. Failed examples are not scored; the same command
    retries them. The exit status is 1 if an example failed, if no judgment was made, or if the main figure is below
    --min-accuracy. It is 2 if too many rows are invalid.

    Examples:
        tirjudge bench run --data mine.csv --out runs/mine    # your own rows
        tirjudge bench run judgebench rmbench --out runs --url http://127.0.0.1:8400
        tirjudge bench run judgebench --out runs/judgebench --engine http://gpu-1:8000 --limit 100
    """
    from json import dumps

    from rich.console import Console

    from tirjudge_harness.bench_run import check_runs, data_of, load_given, run_benchmark, run_data, run_with_judge
    from tirjudge_harness.benchmark import BENCHMARKS
    from tirjudge_harness.evaluation import evaluate
    from tirjudge_harness.items import InputError, as_input_error
    from tirjudge_harness.own_data.benchmark import benchmark_of
    from tirjudge_harness.planning import RunSettings
    from tirjudge_harness.protocols import find_protocol
    from tirjudge_harness.reports.evaluated import evaluation_table
    from tirjudge_harness.reports.formats import print_table
    from tirjudge_harness.row_sampling import Shard

    names = list(dict.fromkeys(benchmarks or ()))
    with as_input_error():
        chosen = [BENCHMARKS.named(name) for name in names]
        counting = find_protocol(protocol)
    if rows.part and len(names) > 1:
        raise InputError("--part needs a single benchmark; run each benchmark separately")
    settings = RunSettings(
        mode=mode,
        protocol=counting,
        **asking.fields,
        **rows.fields,
        shard=None if shard is None else Shard.parse(shard),
    )
    own = None
    if not names or columns != COLUMNS:
        own = load_given(next(iter(names), None), rows=rows, columns=columns.given, console=Console(stderr=True))

    async def judge_all(context: RunContext) -> list[BenchmarkRun]:
        if own is not None:
            return [await run_data(own, out=out, settings=settings, context=context)]
        return [
            await run_benchmark(
                benchmark,
                out=out if len(names) == 1 else out / benchmark.name,
                settings=replace(settings, data=data_of(benchmark.name, data=rows.data, names=names)),
                context=context,
                max_error_rate=rows.max_error_rate,
            )
            for benchmark in chosen
        ]

    runs = run_with_judge(judge_all, judge=judge_options, tools=asking.tools, out=out, pace=pace)
    with as_input_error():
        judged = [(run, benchmark_of(run.manifest, run.outlines)) for run in runs]
        evaluations = [
            evaluate(benchmark, run.examples, mode=run.manifest.mode, protocol=counting) for run, benchmark in judged
        ]
    if json:
        results = zip(runs, evaluations, strict=True)
        typer.echo(dumps([_as_json(run) | evaluation.as_json() for run, evaluation in results]))
    else:
        for (_, benchmark), evaluation in zip(judged, evaluations, strict=True):
            print_table(evaluation_table(evaluation, title=benchmark.title), console=Console())
    problems = check_runs(runs, evaluations, max_error_rate=rows.max_error_rate, min_accuracy=min_accuracy)
    for problem in problems:
        typer.echo(problem, err=True)
    if problems:
        raise typer.Exit(1)


@app.command("inspect")
@asking_a_judge
def inspect_rows(
    data: Annotated[Path, typer.Argument(help="Your own file or folder of rows.")],
    part: Parts = None,
    columns: ColumnOptions = COLUMNS,
    num: Annotated[int, typer.Option("--num", min=0, help="Number of rows to show.")] = 3,
    max_error_rate: MaxErrorRate = None,
    json: AsJson = False,
) -> None:
    """Show how `tirjudge bench run --data FILE` reads your own rows: the meaning of the columns, and the first rows.

    Nothing is judged. Invalid rows are listed. The exit status is 2 if the meaning of a column is not clear, or if too many
    rows are invalid; the valid rows are then shown, too.

    Examples:
        tirjudge bench inspect mine.csv
        tirjudge bench inspect mine.csv --chosen-column winner --rejected-column loser
    """
    from json import dumps

    from rich.console import Console

    from tirjudge_harness.bench_run import load_own_data
    from tirjudge_harness.items import check_bad_rows
    from tirjudge_harness.own_data.preview import example_lines, shown_example

    console = Console(stderr=json)
    found = load_own_data(data, parts=tuple(part or ()), given=columns.given, max_error_rate=1.0, console=console)
    shown = found.examples[:num]
    if json:
        used = None if found.columns is None else found.columns.model_dump(mode="json")
        counts = {"num_examples": len(found.examples), "num_unlabeled": found.num_unlabeled}
        counts |= {"num_bad_rows": found.num_bad_rows}
        typer.echo(dumps({"columns": used, **counts, "examples": [shown_example(one) for one in shown]}))
    else:
        for line in example_lines(shown):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    num_valid = len(found.examples) + found.num_unlabeled
    check_bad_rows(found.num_bad_rows, num_valid=num_valid, max_error_rate=max_error_rate)


@app.command("merge")
def merge_shards(
    out: Annotated[Path, typer.Argument(help="New folder for the merged run.")],
    shards: Annotated[
        list[Path], typer.Argument(help="Folders of all shards of one run. Each shard must be complete.")
    ],
) -> None:
    """Merge the shards of a run. The result equals a run without shards.

    Examples:
        tirjudge bench merge runs/all runs/shard-1 runs/shard-2
    """
    from tirjudge_harness.merging import merge

    num_examples = merge(out, shards=shards)
    typer.echo(f"{out}: {counted(num_examples, 'example')} of {counted(len(shards), 'shard')}")


app.command("list")(list_benchmarks)
app.command("download")(download)
app.command("score")(score)
app.command("report")(report)
app.command("compare")(compare)
app.command("index")(index)
app.command("estimate")(estimate)
app.command("rank")(rank)
app.command("power")(power)
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

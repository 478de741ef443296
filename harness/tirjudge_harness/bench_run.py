"""`tirjudge bench run`: load a benchmark, send the unanswered requests to a judge, and store the judgments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from tirjudge.errors import TirjudgeError
from tirjudge.prices import Prices
from tirjudge.types import JudgeRequest, Judgment
from tirjudge_harness.benchmark import BENCHMARKS, Benchmark, BuiltInSource
from tirjudge_harness.evaluation import Evaluation, marks_of
from tirjudge_harness.examples import Example
from tirjudge_harness.items import InputError, as_input_error, check_bad_rows
from tirjudge_harness.judges import OpenJudge
from tirjudge_harness.options import JudgeOptions, PaceOptions, RowOptions, Tools
from tirjudge_harness.own_data.mapping import ColumnMapping, GivenColumns
from tirjudge_harness.pacing import Pace
from tirjudge_harness.planning import RunPlan, RunSettings, plan_run
from tirjudge_harness.progress import RunProgress, print_some, run_resumable
from tirjudge_harness.protocols import find_protocol
from tirjudge_harness.row_files import is_row_file
from tirjudge_harness.run import BenchmarkRun, create_or_resume, judged_of, load_run
from tirjudge_harness.run_store import JudgmentStore
from tirjudge_harness.runner import Runner, run_all

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The open judge, the concurrency, and the console of a run."""

    opened: OpenJudge
    concurrency: int
    """Maximum number of concurrent requests."""
    console: Console
    """Console for progress and invalid rows."""
    prices: Prices = field(default_factory=Prices)
    """Prices of tokens, to show the cost."""

    def progress(self, num: int, *, title: str) -> RunProgress:
        """Return a progress display for `num` requests."""
        return RunProgress(num, console=self.console, title=title, prices=self.prices)

    def runner(self, store: JudgmentStore) -> Runner:
        """Return a runner that sends requests to the judge and keeps the answers in the store."""
        pace = Pace(most=self.concurrency)
        return Runner(self.opened.judge, identity=self.opened.identity, store=store, pace=pace)


def run_with_judge(
    work: Callable[[RunContext], Awaitable[T]],
    *,
    judge: JudgeOptions,
    tools: Tools,
    out: Path,
    pace: PaceOptions,
) -> T:
    """Open a judge, run `work`, and return its result.

    Args:
        work: the run.
        judge: options that select the judge.
        tools: whether the judge can run programs.
        out: output file or folder, for the message after Ctrl-C.
        pace: concurrency and prices.

    Raises:
        InputError: the options conflict.
        typer.Exit: the run was stopped with Ctrl-C.
    """
    console = Console(stderr=True)
    opening = judge.opened(tools=tools)

    async def run() -> T:
        async with opening as opened:
            context = RunContext(opened=opened, concurrency=pace.concurrency, console=console, prices=pace.prices)
            return await work(context)

    return run_resumable(run(), out=out, console=console)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunData:
    """The examples of a run."""

    benchmark: Benchmark
    examples: list[Example]
    num_bad_rows: int = 0
    """Number of skipped invalid rows."""
    columns: ColumnMapping | None = None
    """The meaning of the columns of a user's file. None: rows of an installed benchmark."""
    num_unlabeled: int = 0
    """Number of skipped rows without a label, a right or a wrong response."""

    def plan(self, *, opened: OpenJudge, settings: RunSettings) -> RunPlan:
        """Return all requests of a run on these examples. See `plan_run`."""
        return plan_run(
            self.benchmark,
            self.examples,
            opened=opened,
            settings=settings,
            num_bad_rows=self.num_bad_rows,
            columns=self.columns,
            num_unlabeled=self.num_unlabeled,
        )


async def run_benchmark(
    benchmark: Benchmark,
    *,
    out: Path,
    settings: RunSettings,
    context: RunContext,
    max_error_rate: float | None = None,
) -> BenchmarkRun:
    """Judge the examples that are not in the folder yet, and load the run. `max_error_rate`: see `load`.

    Raises:
        InputError: the benchmark has no rows or too many invalid rows, or the folder belongs to another run.
        RunStopped: the judge is unavailable, or the disk is full.
    """
    data = load(
        benchmark, data=settings.data, parts=settings.parts, max_error_rate=max_error_rate, console=context.console
    )
    return await run_data(data, out=out, settings=settings, context=context)


async def run_data(data: RunData, *, out: Path, settings: RunSettings, context: RunContext) -> BenchmarkRun:
    """Judge the examples that are not in the folder yet, and load the run.

    Raises:
        InputError: the folder belongs to another run.
        RunStopped: the judge is unavailable, or the disk is full.
    """
    sampling = data.benchmark.sampling(settings.protocol, mode=settings.mode or data.benchmark.default_mode)
    context = replace(context, opened=context.opened.sampled_as(sampling))
    plan = data.plan(opened=context.opened, settings=settings)
    return await judge_plan(plan, benchmark=data.benchmark, out=out, context=context)


def load(
    benchmark: Benchmark,
    *,
    data: Path | None,
    parts: Sequence[str] = (),
    max_error_rate: float | None = None,
    console: Console,
) -> RunData:
    """Return the examples of a benchmark. Print the first invalid rows.

    Args:
        benchmark: the benchmark.
        data: file or folder of the rows. None: the sources of the benchmark.
        parts: parts to load. Empty: the default parts.
        max_error_rate: maximum share of invalid rows. None: `MAX_BAD_ROWS`.
        console: console for invalid rows.

    Raises:
        InputError: the rows cannot be read or downloaded, a file has no valid row, or too many rows are invalid.
    """
    from tirjudge_harness.sources import BadRow, load_examples

    bad: list[BadRow] = []
    valid: list[int] = []
    examples = load_examples(benchmark, data=data, parts=parts, on_bad=bad.append, on_valid=valid.append)
    print_some([str(row) for row in bad], console=console, rest=f"more invalid rows of {benchmark.name}")
    check_bad_rows(len(bad), num_valid=sum(valid), max_error_rate=max_error_rate)
    return RunData(benchmark=benchmark, examples=examples, num_bad_rows=len(bad))


def load_own_data(
    path: Path, *, parts: Sequence[str], given: GivenColumns, max_error_rate: float | None, console: Console
) -> RunData:
    """Return the examples of a user's file. Print the meaning of its columns, and the first invalid rows.

    Args:
        path: the file or folder.
        parts: parts of a folder to load. Empty: the only part.
        given: the columns that the user named.
        max_error_rate: maximum share of invalid rows. None: `MAX_BAD_ROWS`.
        console: console for the meaning of the columns and invalid rows.

    Raises:
        InputError: the file cannot be read, the meaning of a column is not clear, or too many rows are invalid.
    """
    from tirjudge_harness.own_data.loading import load_own
    from tirjudge_harness.own_data.preview import mapping_lines

    own = load_own(path, parts=parts, given=given)
    for line in mapping_lines(own):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    print_some([str(row) for row in own.bad_rows], console=console, rest="more invalid rows")
    check_bad_rows(len(own.bad_rows), num_valid=len(own.examples) + own.num_unlabeled, max_error_rate=max_error_rate)
    return RunData(
        benchmark=own.benchmark,
        examples=own.examples,
        num_bad_rows=len(own.bad_rows),
        columns=own.columns,
        num_unlabeled=own.num_unlabeled,
    )


def load_given(benchmark: str | None, *, rows: RowOptions, columns: GivenColumns, console: Console) -> RunData:
    """Return the examples that the options of a command select: those of a benchmark, or the user's own.

    Raises:
        InputError: unknown benchmark, or neither a benchmark nor rows are given; columns are given for a benchmark; or the
            rows cannot be used, see `load` and `load_own_data`.
    """
    if benchmark is None and rows.data is None:
        raise InputError("name a benchmark from `tirjudge bench list`, or give your own rows with --data")
    parts = tuple(rows.part or ())
    if benchmark is None and rows.data is not None:
        return load_own_data(rows.data, parts=parts, given=columns, max_error_rate=rows.max_error_rate, console=console)
    if columns != GivenColumns():
        raise InputError(
            f"{benchmark} has its own columns; to use other columns, remove the name of the benchmark, so that --data is "
            "your own file"
        )
    with as_input_error():
        found = BENCHMARKS.named(benchmark or "")
    return load(found, data=rows.data, parts=parts, max_error_rate=rows.max_error_rate, console=console)


def check_runs(
    runs: Sequence[BenchmarkRun],
    evaluations: Sequence[Evaluation],
    *,
    max_error_rate: float | None,
    min_accuracy: float | None,
) -> list[str]:
    """Return the reasons why a command fails, one sentence each. Empty: every run is good enough.

    Args:
        runs: the runs.
        evaluations: the evaluation of each run. Its first figure is the accuracy.
        max_error_rate: maximum share of the examples that are not judged. None: every example must be judged.
        min_accuracy: minimum of the first figure. None: no minimum.
    """
    problems: list[str] = []
    for run, evaluation in zip(runs, evaluations, strict=True):
        name, num = run.manifest.benchmark, len(run.outlines)
        if run.num_missing > (max_error_rate or 0.0) * num:
            more = "" if max_error_rate is None else f", more than --max-error-rate {max_error_rate:g}"
            problems.append(f"{name}: {run.num_missing} of {num} examples are not judged{more}; run the command again")
        elif not any(one.decisions for one in run.judged):
            problems.append(f"{name}: no judgment was made")
        if min_accuracy is None:
            continue
        main = evaluation.figures[0]
        if main.value is None:
            problems.append(f"{name}: {main.name} has no value, so it does not reach --min-accuracy {min_accuracy:g}")
        elif main.value < min_accuracy:
            problems.append(
                f"{name}: {main.name} is {main.value:.1%} over {main.num_marks}, below --min-accuracy {min_accuracy:g}"
            )
    return problems


async def judge_plan(
    plan: RunPlan, *, benchmark: Benchmark, out: Path, context: RunContext, title: str = ""
) -> BenchmarkRun:
    """Send the requests that are not answered in the folder yet, and load the run.

    Args:
        plan: all requests of the run.
        benchmark: provides the scoring rule for the accuracy in the progress display.
        out: folder of the run.
        context: the judge.
        title: title of the progress display. Empty: the name of the benchmark.

    Raises:
        InputError: the folder belongs to another run.
        RunStopped: the judge is unavailable, or the disk is full.
    """
    manifest = plan.manifest
    _, counting = benchmark.rule(find_protocol(manifest.protocol), mode=manifest.mode)
    planned = {one.outline.id: one for one in plan.planned}
    num_open = {one.outline.id: len(one.asked) for one in plan.planned}
    questions = [(one.outline.id, asked.key) for one in plan.planned for asked in one.asked]
    async with (
        JudgmentStore(out) as answers,
        context.progress(len(questions), title=title or benchmark.name) as progress,
    ):
        create_or_resume(out, manifest=manifest, planned=plan.planned)
        runner = context.runner(answers)

        def count(example: str) -> None:
            """Count one answered request. An example counts toward the accuracy once all its requests are answered."""
            num_open[example] -= 1
            if num_open[example]:
                return
            judged = judged_of(planned[example], answers.judgments, manifest=manifest)
            if judged is not None:
                compared = benchmark.compared(judged.outline, judged.mode)
                for mark in marks_of(judged, compared=compared, counting=counting):
                    progress.scored(mark.credit)

        def show(question: tuple[str, str], answer: Judgment | TirjudgeError) -> None:
            if isinstance(answer, TirjudgeError):
                progress.failed(question[0], f"{type(answer).__name__}: {answer}")
            else:
                count(question[0])
                progress.answered(answer)

        remaining: list[tuple[tuple[str, str], JudgeRequest]] = []
        for example, key in questions:
            kept = answers.find(key)
            if kept is None:
                remaining.append(((example, key), plan.requests[key]))
            else:
                count(example)
                progress.kept(kept)
        # Requests that failed in an earlier run come last. If they fail again and stop the run, the others are done.
        remaining.sort(key=lambda one: one[0][1] in answers.failed)
        await run_all(remaining, runner=runner, on_done=show)
    return load_run(out)


def data_of(name: str, *, data: Path | None, names: Sequence[str]) -> Path | None:
    """Return the path of the rows of one benchmark: `data` if there is only one benchmark, and otherwise the file or folder
    in `data` that has the name of the benchmark. None: the Hugging Face hub, or the rows of the package.

    Raises:
        InputError: no file or folder has that name, and the rows are not part of the package.
    """
    if data is None or len(names) == 1:
        return data
    found = sorted(path for path in (data / name, *data.glob(f"{name}.*")) if path.is_dir() or is_row_file(path))
    if not found and all(isinstance(source, BuiltInSource) for source in BENCHMARKS[name].sources.values()):
        return None
    if not found:
        raise InputError(f"--data: {data} has no folder {name} and no file such as {name}.jsonl")
    return found[0]

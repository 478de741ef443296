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
from tirjudge_harness.benchmark import Benchmark
from tirjudge_harness.evaluation import marks_of
from tirjudge_harness.examples import Example
from tirjudge_harness.items import InputError
from tirjudge_harness.judges import OpenJudge
from tirjudge_harness.options import JudgeOptions, PaceOptions, Tools
from tirjudge_harness.pacing import Pace
from tirjudge_harness.planning import RunPlan, RunSettings, plan_run
from tirjudge_harness.progress import RunProgress, run_resumable
from tirjudge_harness.protocols import find_protocol
from tirjudge_harness.row_files import is_row_file
from tirjudge_harness.run import BenchmarkRun, create_or_resume, judged_of, load_run
from tirjudge_harness.run_store import JudgmentStore
from tirjudge_harness.runner import Runner, run_all

SHOWN_BAD_ROWS = 20
"""Maximum number of invalid rows that are printed. Further ones are only counted."""


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


async def run_benchmark(benchmark: Benchmark, *, out: Path, settings: RunSettings, context: RunContext) -> BenchmarkRun:
    """Judge the examples that are not in the folder yet, and load the run.

    Raises:
        InputError: the benchmark has no rows, or the folder belongs to another run.
        RunStopped: the judge is unavailable, or the disk is full.
    """
    examples, num_bad_rows = load(benchmark, data=settings.data, parts=settings.parts, console=context.console)
    sampling = benchmark.sampling(settings.protocol, mode=settings.mode or benchmark.default_mode)
    context = replace(context, opened=context.opened.sampled_as(sampling))
    plan = plan_run(benchmark, examples, opened=context.opened, settings=settings, num_bad_rows=num_bad_rows)
    return await judge_plan(plan, benchmark=benchmark, out=out, context=context)


def load(
    benchmark: Benchmark, *, data: Path | None, parts: Sequence[str] = (), console: Console
) -> tuple[list[Example], int]:
    """Return the examples of a benchmark and the number of invalid rows. Print the first invalid rows.

    Raises:
        InputError: the rows cannot be read or downloaded, or a file has no valid row.
    """
    from tirjudge_harness.sources import BadRow, load_examples

    num_bad = 0

    def show(row: BadRow) -> None:
        nonlocal num_bad
        num_bad += 1
        if num_bad <= SHOWN_BAD_ROWS:
            console.print(str(row), markup=False, highlight=False, soft_wrap=True)

    examples = load_examples(benchmark, data=data, parts=parts, on_bad=show)
    if num_bad > SHOWN_BAD_ROWS:
        console.print(f"{benchmark.name}: {num_bad - SHOWN_BAD_ROWS} more invalid rows")
    return examples, num_bad


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
    in `data` that has the name of the benchmark. None: the Hugging Face hub.

    Raises:
        InputError: no file or folder has that name.
    """
    if data is None or len(names) == 1:
        return data
    found = sorted(path for path in (data / name, *data.glob(f"{name}.*")) if path.is_dir() or is_row_file(path))
    if not found:
        raise InputError(f"--data: {data} has no folder {name} and no file such as {name}.jsonl")
    return found[0]

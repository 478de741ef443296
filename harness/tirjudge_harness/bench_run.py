"""`tirjudge bench run`: load a benchmark, ask a judge what is not known yet, and write it down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from tirjudge.errors import TirjudgeError
from tirjudge.types import JudgeRequest, Judgment
from tirjudge_harness.benchmark import Benchmark
from tirjudge_harness.evaluation import marks_of
from tirjudge_harness.examples import Example
from tirjudge_harness.items import InputError
from tirjudge_harness.judges import OpenJudge
from tirjudge_harness.pacing import Pace
from tirjudge_harness.planning import RunPlan, RunSettings, plan_run
from tirjudge_harness.prices import Prices
from tirjudge_harness.progress import RunProgress, run_resumable
from tirjudge_harness.protocols import find_protocol
from tirjudge_harness.row_files import is_row_file
from tirjudge_harness.run import BenchmarkRun, create_or_resume, judged_of, load_run
from tirjudge_harness.run_store import JudgmentStore
from tirjudge_harness.runner import Runner, run_all

SHOWN_BAD_ROWS = 20
"""How many broken rows are named; the rest are counted."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Who is asked, how fast, and where it is shown."""

    opened: OpenJudge
    concurrency: int
    """The most questions under way at a time."""
    console: Console
    """Where progress and broken rows are shown."""
    prices: Prices = field(default_factory=Prices)
    """Of tokens, to show the cost."""

    def progress(self, num: int, *, title: str) -> RunProgress:
        return RunProgress(num, console=self.console, title=title, prices=self.prices)

    def runner(self, store: JudgmentStore) -> Runner:
        pace = Pace(most=self.concurrency)
        return Runner(self.opened.judge, identity=self.opened.identity, store=store, pace=pace)


def run_with_judge(
    work: Callable[[RunContext], Awaitable[T]],
    *,
    opening: AbstractAsyncContextManager[OpenJudge],
    out: Path,
    concurrency: int,
    prices: Prices,
) -> T:
    """What a command does while a judge is open.

    Raises:
        typer.Exit: it was stopped with Ctrl-C.
    """
    console = Console(stderr=True)

    async def run() -> T:
        async with opening as opened:
            return await work(RunContext(opened=opened, concurrency=concurrency, console=console, prices=prices))

    return run_resumable(run(), out=out, console=console)


async def run_benchmark(benchmark: Benchmark, *, out: Path, settings: RunSettings, context: RunContext) -> BenchmarkRun:
    """Judge what the folder does not have yet, and load it.

    Raises:
        InputError: there are no rows, or the folder belongs to another run.
        RunStopped: the judge is gone, or the disk is full.
    """
    examples, num_bad_rows = load(benchmark, data=settings.data, parts=settings.parts, console=context.console)
    plan = plan_run(benchmark, examples, opened=context.opened, settings=settings, num_bad_rows=num_bad_rows)
    return await judge_plan(plan, benchmark=benchmark, out=out, context=context)


def load(
    benchmark: Benchmark, *, data: Path | None, parts: Sequence[str] = (), console: Console
) -> tuple[list[Example], int]:
    """The examples of a benchmark, and how many rows are broken; the first of those are shown.

    Raises:
        InputError: there is nothing to load.
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
        console.print(f"{benchmark.name}: {num_bad - SHOWN_BAD_ROWS} more broken rows")
    return examples, num_bad


async def judge_plan(
    plan: RunPlan, *, benchmark: Benchmark, out: Path, context: RunContext, title: str = ""
) -> BenchmarkRun:
    """Ask what the folder does not have yet, and load it.

    Args:
        plan: what is asked.
        benchmark: by whose rule the accuracy so far is counted.
        out: the folder of the run.
        context: who is asked.
        title: of the progress; empty: the benchmark's name.

    Raises:
        InputError: the folder belongs to another run.
        RunStopped: the judge is gone, or the disk is full.
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
            """An example counts for the accuracy so far once all of its questions are answered."""
            num_open[example] -= 1
            if num_open[example]:
                return
            judged = judged_of(planned[example], answers.judgments, manifest=manifest)
            if judged is not None:
                compared = benchmark.compared(judged.outline, manifest.mode)
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
        # What failed before comes last: if it fails again and the run is stopped for it, all else is judged by then.
        remaining.sort(key=lambda one: one[0][1] in answers.failed)
        await run_all(remaining, runner=runner, on_done=show)
    return load_run(out)


def data_of(name: str, *, data: Path | None, names: Sequence[str]) -> Path | None:
    """Where the rows of one of several benchmarks are: `data` itself for one alone, else what has its name in there.

    Raises:
        InputError: there is nothing of that name.
    """
    if data is None or len(names) == 1:
        return data
    found = sorted(path for path in (data / name, *data.glob(f"{name}.*")) if path.is_dir() or is_row_file(path))
    if not found:
        raise InputError(f"--data: {data} has neither a folder {name} nor a file such as {name}.jsonl")
    return found[0]

"""`tirjudge bench run`: load a benchmark, ask a judge what is not known yet, and write it down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tirjudge.errors import TirjudgeError
from tirjudge.types import JudgeRequest, Judgment
from tirjudge_harness.benchmark import Benchmark, official_of
from tirjudge_harness.evaluation import marks_of
from tirjudge_harness.examples import Example
from tirjudge_harness.items import InputError
from tirjudge_harness.judges import OpenJudge
from tirjudge_harness.pacing import Pace
from tirjudge_harness.planning import JudgeQuestion, RunPlan, RunSettings, plan_run
from tirjudge_harness.prices import Prices
from tirjudge_harness.progress import RunProgress
from tirjudge_harness.protocols import find_protocol, rule_of
from tirjudge_harness.row_files import is_row_file
from tirjudge_harness.run import BenchmarkRun, create_or_resume, judged_of, load_run
from tirjudge_harness.run_store import JudgmentStore
from tirjudge_harness.runner import Runner, run_all

SHOWN_BAD_ROWS = 20
"""How many broken rows are named; the rest are counted."""


async def run_benchmark(
    benchmark: Benchmark,
    *,
    out: Path,
    opened: OpenJudge,
    settings: RunSettings,
    concurrency: int,
    console: Console,
    prices: Prices | None = None,
) -> BenchmarkRun:
    """Judge what the folder does not have yet, and load it.

    Args:
        benchmark: what is judged.
        out: the folder of the run.
        opened: the judge.
        settings: how it is asked.
        concurrency: the most questions under way at a time.
        console: where progress and broken rows are shown.
        prices: of tokens, to show the cost.

    Raises:
        InputError: there are no rows, or the folder belongs to another run.
        RunStopped: the judge is gone, or the disk is full.
    """
    examples, num_bad_rows = load(benchmark, settings=settings, console=console)
    plan = plan_run(benchmark, examples, opened=opened, settings=settings, num_bad_rows=num_bad_rows)
    await judge_plan(
        plan, benchmark=benchmark, out=out, opened=opened, concurrency=concurrency, console=console, prices=prices
    )
    return load_run(out)


def load(benchmark: Benchmark, *, settings: RunSettings, console: Console) -> tuple[list[Example], int]:
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

    examples = load_examples(benchmark, data=settings.data, parts=settings.parts, on_bad=show)
    if num_bad > SHOWN_BAD_ROWS:
        console.print(f"{benchmark.name}: {num_bad - SHOWN_BAD_ROWS} more broken rows")
    return examples, num_bad


async def judge_plan(
    plan: RunPlan,
    *,
    benchmark: Benchmark,
    out: Path,
    opened: OpenJudge,
    concurrency: int,
    console: Console,
    prices: Prices | None = None,
) -> None:
    """Ask what the folder does not have yet.

    Raises:
        InputError: the folder belongs to another run.
        RunStopped: the judge is gone, or the disk is full.
    """
    async with JudgmentStore(out) as answers:
        create_or_resume(out, manifest=plan.manifest, planned=plan.planned)
        runner = Runner(opened.judge, identity=opened.identity, store=answers, pace=Pace(most=concurrency))
        progress = RunProgress(len(plan.questions), console=console, title=benchmark.name, prices=prices)
        accuracy = _Accuracy(plan, benchmark=benchmark, answers=answers, progress=progress)

        def show(question: JudgeQuestion, answer: Judgment | TirjudgeError) -> None:
            if isinstance(answer, TirjudgeError):
                progress.failed(question.example, f"{type(answer).__name__}: {answer}")
            else:
                accuracy.answered(question)
                progress.answered(answer)

        async with progress:
            remaining: list[tuple[JudgeQuestion, JudgeRequest]] = []
            for question in plan.questions:
                kept = answers.find(question.key)
                if kept is None:
                    remaining.append((question, question.request))
                else:
                    accuracy.answered(question)
                    progress.kept(kept)
            # What failed before comes last: if it fails again and the run is stopped for it, all else is judged by then.
            remaining.sort(key=lambda pair: pair[0].key in answers.failed)
            await run_all(remaining, runner=runner, on_done=show)


class _Accuracy:
    """The accuracy so far; an example counts once all of its questions are answered."""

    def __init__(self, plan: RunPlan, *, benchmark: Benchmark, answers: JudgmentStore, progress: RunProgress) -> None:
        manifest = plan.manifest
        official = official_of(benchmark, mode=manifest.mode)
        _, self._counting = rule_of(find_protocol(manifest.protocol), official=official)
        self._manifest = manifest
        self._compared = benchmark.compared
        self._planned = {planned.outline.id: planned for planned in plan.planned}
        self._num_open = Counter(question.example for question in plan.questions)
        self._answers = answers
        self._progress = progress

    def answered(self, question: JudgeQuestion) -> None:
        self._num_open[question.example] -= 1
        if self._num_open[question.example]:
            return
        judged = judged_of(self._planned[question.example], self._answers.judgments, manifest=self._manifest)
        if judged is not None:
            compared = self._compared(judged.outline, self._manifest.mode)
            for mark in marks_of(judged, compared=compared, counting=self._counting):
                self._progress.scored(mark.credit)


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

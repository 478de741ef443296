"""`tirjudge judge FILE`: read the file, open a judge, run, and summarize."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from time import perf_counter

from rich.console import Console

from tirjudge.errors import TirjudgeError
from tirjudge.types import Judgment
from tirjudge_harness.items import JudgeSettings, Task, read_tasks
from tirjudge_harness.judges import OpenJudge
from tirjudge_harness.output import Output
from tirjudge_harness.pacing import Pace
from tirjudge_harness.progress import RunProgress, print_some
from tirjudge_harness.runner import Runner, key_of, run_all
from tirjudge_harness.summary import Summary, summarize


async def judge_file(
    path: Path,
    *,
    out: Path,
    settings: JudgeSettings,
    opening: AbstractAsyncContextManager[OpenJudge],
    limit: int | None,
    concurrency: int,
    console: Console,
) -> Summary:
    """Judge the items of a file that are not in the output yet, and summarize the output.

    Args:
        path: input file.
        out: output file, from which a run is resumed.
        settings: settings for all items.
        opening: opens the judge.
        limit: maximum number of items, from the start of the file. None: all items.
        concurrency: maximum number of concurrent judgments.
        console: console for progress and invalid lines.

    Raises:
        InputError: the input cannot be read, or the output belongs to another run.
        RunStopped: the judge is unavailable, or the disk is full.
    """
    every, bad = read_tasks(path, settings=settings)
    lines = [f"{path}, line {line.number}: {line.problem}" for line in bad]
    print_some(lines, console=console, rest=f"more invalid lines in {path}")
    tasks = every[:limit]
    async with opening as opened:
        configuration = {**settings.configuration, "model": opened.model, "fingerprint": opened.fingerprint}
        if opened.format is not None:
            configuration["format"] = opened.format
        if opened.functions:
            configuration["functions"] = dict(opened.functions)

        def key(task: Task) -> str:
            return key_of(task.request, identity=opened.identity)

        async with Output(out, configuration=configuration, tasks=every, key=key) as output:
            runner = Runner(opened.judge, identity=opened.identity, store=output, pace=Pace(most=concurrency))
            started = perf_counter()
            async with RunProgress(len(tasks), console=console) as progress:
                num_new = await _judge(tasks, runner=runner, output=output, progress=progress)
            return summarize(
                [output.lines[task.item.id] for task in tasks if task.item.id in output.lines],
                num_failed=progress.num_failed,
                num_malformed=len(bad),
                num_new=num_new,
                elapsed_s=perf_counter() - started,
            )


async def _judge(tasks: Sequence[Task], *, runner: Runner, output: Output, progress: RunProgress) -> int:
    """Judge the items that are not in the output. Return the number of items that were added to the output."""
    done = [task for task in tasks if task.item.id in output.lines]
    for task in done:
        record = output.lines[task.item.id]
        if record.judgment is not None:
            progress.kept(record.judgment)
        if record.correct is not None:
            progress.scored(record.correct)

    def show(task: Task, answer: Judgment | TirjudgeError) -> None:
        if isinstance(answer, TirjudgeError):
            progress.failed(str(task.item.id), f"{type(answer).__name__}: {answer}")
            return
        record = output.lines[task.item.id]
        if record.correct is not None:
            progress.scored(record.correct)
        progress.answered(answer)

    remaining = [task for task in tasks if task.item.id not in output.lines]
    await run_all([(task, task.request) for task in remaining], runner=runner, on_done=show)
    return sum(task.item.id in output.lines for task in remaining)

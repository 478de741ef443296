"""`tirjudge judge`: judge the items of a file and summarize them, or judge one request."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from rich.console import Console

from tirjudge.errors import TirjudgeError
from tirjudge.types import JudgeRequest, Judgment
from tirjudge_harness.item_files import read_item_file
from tirjudge_harness.items import JudgeSettings, Task, check_bad_rows
from tirjudge_harness.judges import OpenJudge
from tirjudge_harness.output import COLUMNS_KEY, Output
from tirjudge_harness.own_data.mapping import GivenColumns
from tirjudge_harness.pacing import Pace
from tirjudge_harness.progress import RunProgress, print_some
from tirjudge_harness.run_store import RunStopped
from tirjudge_harness.runner import Runner, key_of, run_all
from tirjudge_harness.summary import Summary, summarize
from tirjudge_harness.verdict_table import is_table, judgments_of, refuse_other_formats, write_table


async def judge_file(
    path: Path,
    *,
    out: Path | None,
    settings: JudgeSettings,
    opening: AbstractAsyncContextManager[OpenJudge],
    limit: int | None,
    concurrency: int,
    console: Console,
    max_error_rate: float | None = None,
    columns: GivenColumns | None = None,
) -> Summary:
    """Judge the items of a file that are not in the output yet, and summarize the output.

    Args:
        path: input file.
        out: output file, from which a run is resumed, or a table of verdicts (`.csv`) with the output file beside it. None:
            lines go to standard output, and nothing is resumed.
        settings: settings for all items.
        opening: opens the judge.
        limit: maximum number of items, from the start of the file. None: all items.
        concurrency: maximum number of concurrent judgments.
        console: console for progress and invalid lines.
        max_error_rate: maximum share of invalid lines. None: `MAX_BAD_ROWS`.
        columns: columns that the user named. They become part of the configuration. None: none.

    Raises:
        InputError: the input cannot be read, too many lines are invalid, or the output belongs to another run.
        RunStopped: the judge is unavailable, or the disk is full.
    """
    refuse_other_formats(out)
    stored = judgments_of(out, source=path) if out is not None and is_table(out) else out
    read = read_item_file(path, settings=settings, given=columns)
    every, bad = read.tasks, read.problems
    for line in read.meaning:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    print_some(bad, console=console, rest=f"more invalid lines in {path}")
    check_bad_rows(len(bad), num_valid=len(every), max_error_rate=max_error_rate)
    tasks = every[:limit]
    async with AsyncExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory())) / "out.jsonl" if stored is None else stored
        opened = await stack.enter_async_context(opening)
        configuration = {**settings.configuration, **_configuration_of(opened)}
        if columns is not None and columns != GivenColumns() and read.columns is not None:
            configuration[COLUMNS_KEY] = read.columns.model_dump(mode="json", exclude_defaults=True)

        def key(task: Task) -> str:
            return key_of(task.request, identity=opened.identity)

        on_line = _print_line if out is None else None
        async with Output(place, configuration=configuration, tasks=every, key=key, on_line=on_line) as output:
            runner = Runner(opened.judge, identity=opened.identity, store=output, pace=Pace(most=concurrency))
            started = perf_counter()
            async with RunProgress(len(tasks), console=console) as progress:
                num_new = await _judge(tasks, runner=runner, output=output, progress=progress)
            if out is not None and is_table(out):
                write_table(out, tasks=tasks, lines=output.lines)
            return summarize(
                [output.lines[task.item.id] for task in tasks if task.item.id in output.lines],
                num_failed=progress.num_failed,
                num_malformed=len(bad),
                num_new=num_new,
                elapsed_s=perf_counter() - started,
            )


def _configuration_of(opened: OpenJudge) -> dict[str, Any]:
    """Return the model, the format and the functions of a judge, for the configuration of an output file."""
    configuration: dict[str, Any] = {"model": opened.model, "fingerprint": opened.fingerprint}
    if opened.format is not None:
        configuration["format"] = opened.format
    if opened.functions:
        configuration["functions"] = dict(opened.functions)
    return configuration


def _print_line(line: str) -> None:
    """Print a line to standard output.

    Raises:
        RunStopped: standard output was closed.
    """
    try:
        print(line, flush=True)
    except OSError as error:
        raise RunStopped(f"standard output: {error.strerror}; the other judgments are lost") from error


async def judge_request(request: JudgeRequest, *, opening: AbstractAsyncContextManager[OpenJudge]) -> Judgment:
    """Open a judge, and judge one request."""
    async with opening as opened:
        return await opened.judge(request)


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

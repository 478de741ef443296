"""A batch from beginning to end: plan, judge, plan again what was lost on the way, sum up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

from rich.console import Console

from tirjudge.errors import TirjudgeError
from tirjudge_harness.batch.asking import Opening
from tirjudge_harness.batch.inputs import Stretch, files_of
from tirjudge_harness.batch.parquet_store import ParquetStore
from tirjudge_harness.batch.plan import BatchPlan, Piece, plan_batch
from tirjudge_harness.batch.results import Result
from tirjudge_harness.batch.summary import BatchSummary, summarize
from tirjudge_harness.progress import RunProgress, print_some
from tirjudge_harness.run_store import RunStopped


class RoundEnded(TirjudgeError):
    """Those who judged are gone before everything was judged; others may go on."""


class OpenedJudging(Protocol):
    @property
    def identity(self) -> Mapping[str, Any]:
        """What tells the judge from others."""
        ...

    async def judge(self, pieces: Sequence[Piece], *, on_result: Callable[[Result], None]) -> None:
        """Judge all that is left of these pieces. A result may come twice, or be lost.

        Raises:
            RoundEnded: they are gone.
            RunStopped: the run cannot go on.
        """
        ...


class BatchExecutor(Protocol):
    """Who judges: `Here`, or `OnRay`."""

    def opened(self, opening: Opening, *, place: str) -> AbstractAsyncContextManager[OpenedJudging]: ...


async def run_batch(
    inputs: Sequence[Path],
    *,
    out: Path,
    opening_for: Callable[[bool], Opening],
    judging: BatchExecutor,
    console: Console,
    limit: int | None = None,
) -> BatchSummary:
    """Judge what the input asks and the output does not answer yet.

    Args:
        inputs: files, and folders of files.
        out: folder of the output.
        opening_for: opens the judge, given whether any request may run programs.
        judging: who judges.
        console: where progress and bad rows are shown.
        limit: judge only the first keys; None: all.

    Raises:
        InputError: the input cannot be read, or the output belongs to another run.
        RunStopped: the judge is gone, or the disk is full.
    """
    files = files_of(inputs, out=out)
    with ParquetStore(out) as folder:
        with console.status("Reading the input") as status:

            def show(stretch: Stretch) -> None:
                status.update(f"Reading the input: {stretch.file}, row {stretch.end - 1:,}")

            plan = plan_batch(files, find=folder.find, limit=limit, on_stretch=show)
        folder.write_bad(plan.bad)
        problems = [f"{row.file}, row {row.number}: {row.problem}" for row in plan.bad]
        print_some(problems, console=console, rest=f"more bad rows are in {out / 'bad.jsonl'}.")
        started = perf_counter()
        async with judging.opened(opening_for(plan.offers_tools), place=str(out)) as opened:
            folder.create_or_resume(opened.identity)
            first, num_rounds, num_left = plan, 0, plan.num_left
            async with RunProgress(num_left, console=console) as progress:
                while num_left:
                    num_rounds += 1
                    num_settled = folder.num_settled
                    await _round(plan, opened=opened, folder=folder, progress=progress, console=console)
                    num_left -= folder.num_settled - num_settled
                    if num_left and folder.num_settled == num_settled:
                        raise RunStopped(f"stopped: {num_left} rows came to nothing; what was judged is in {out}")
                    if num_left:
                        plan = plan_batch(files, find=folder.find, limit=limit)
        folder.write()
        return summarize(folder, plan=first, num_rounds=num_rounds, elapsed_s=perf_counter() - started)


async def _round(
    plan: BatchPlan, *, opened: OpenedJudging, folder: ParquetStore, progress: RunProgress, console: Console
) -> None:
    """Judge what is left, as far as it goes.

    Raises:
        RunStopped: nothing was judged before it ended.
    """
    num_new = folder.num_new

    def take(result: Result) -> None:
        if not folder.keep(result):
            return
        if result.get("error") is None:
            progress.judged(input_tokens=result["input_tokens"], output_tokens=result["output_tokens"])
        else:
            progress.failed(result["key"], result["error"])

    writing = asyncio.create_task(folder.write_in_time())
    try:
        await opened.judge(plan.pieces, on_result=take)
    except RoundEnded as ended:
        if folder.num_new == num_new:
            raise RunStopped(
                f"stopped: {ended}; what was judged is in {folder.path}, and the same command goes on from there"
            ) from ended
        console.print(f"Going on after this: {ended}", markup=False, highlight=False, soft_wrap=True)
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)  # a full disk shows itself at the next result, too

"""Run a batch: plan, judge, judge lost rows again, and summarize."""

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
from tirjudge_harness.batch.inputs import RowRange, files_of
from tirjudge_harness.batch.parquet_store import ParquetStore
from tirjudge_harness.batch.plan import BatchPlan, Piece, plan_batch
from tirjudge_harness.batch.results import Result
from tirjudge_harness.batch.summary import BatchSummary, summarize
from tirjudge_harness.progress import RunProgress, print_some
from tirjudge_harness.run_store import RunStopped


class RoundEnded(TirjudgeError):
    """A round ended before all rows were judged. Another round may judge the remaining rows."""


class OpenedJudging(Protocol):
    """An executor with open judges."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """JSON data that identifies the judge."""
        ...

    async def judge(self, pieces: Sequence[Piece], *, on_result: Callable[[Result], None]) -> None:
        """Judge the remaining rows. Results can be duplicated or lost.

        Raises:
            RoundEnded: the executor failed. Another round may succeed.
            RunStopped: the run cannot continue.
        """
        ...


class BatchExecutor(Protocol):
    """Judges rows: `Here` in this process, or `OnRay` on a Ray cluster."""

    def opened(self, opening: Opening, *, place: str) -> AbstractAsyncContextManager[OpenedJudging]:
        """Open the judges. `place`: path of the results, for messages."""
        ...


async def run_batch(
    inputs: Sequence[Path],
    *,
    out: Path,
    opening_for: Callable[[bool], Opening],
    judging: BatchExecutor,
    console: Console,
    limit: int | None = None,
) -> BatchSummary:
    """Judge the requests of the input that have no result in the output yet.

    Args:
        inputs: files and folders.
        out: output folder.
        opening_for: function that returns an opener of the judge, given whether any request can run programs.
        judging: the executor.
        console: console for progress and invalid rows.
        limit: maximum number of keys to judge, from the start of the input. None: all keys.

    Raises:
        InputError: the input cannot be read, or the output belongs to another run.
        RunStopped: the judge is unavailable, or the disk is full.
    """
    files = files_of(inputs, out=out)
    with ParquetStore(out) as folder:
        with console.status("Reading the input") as status:

            def show(row_range: RowRange) -> None:
                status.update(f"Reading the input: {row_range.file}, row {row_range.end - 1:,}")

            plan = plan_batch(files, find=folder.find, limit=limit, on_range=show)
        folder.write_bad(plan.bad)
        problems = [f"{row.file}, row {row.number}: {row.problem}" for row in plan.bad]
        print_some(problems, console=console, rest=f"more invalid rows are in {out / 'bad.jsonl'}.")
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
                        raise RunStopped(f"run stopped: {num_left} rows have no result; the other results are in {out}")
                    if num_left:
                        plan = plan_batch(files, find=folder.find, limit=limit)
        folder.write()
        return summarize(folder, plan=first, num_rounds=num_rounds, elapsed_s=perf_counter() - started)


async def _round(
    plan: BatchPlan, *, opened: OpenedJudging, folder: ParquetStore, progress: RunProgress, console: Console
) -> None:
    """Judge the remaining rows until they are done or the round ends.

    Raises:
        RunStopped: the round ended without a new result.
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
                f"run stopped: {ended}; results are stored in {folder.path}, run the same command again to continue"
            ) from ended
        console.print(f"Starting another round after: {ended}", markup=False, highlight=False, soft_wrap=True)
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)  # the next result reports a full disk

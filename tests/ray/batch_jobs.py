"""Batch runs on a Ray cluster. These functions run in a driver process (see `tests.ray.driver`)."""

from __future__ import annotations

import asyncio
import io
import logging
import threading
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from tests.harness.batch.scripted_judge import Watched, open_scripted
from tests.waiting import until
from tirjudge_harness.batch.asking import Opening
from tirjudge_harness.batch.on_ray import OnRay
from tirjudge_harness.batch.run import run_batch
from tirjudge_harness.options import JudgeOptions, Tools
from tirjudge_harness.run_store import RunStopped

POLL_S = 0.02


def judge(
    *,
    rows: str,
    out: str,
    delay_s: float = 0.0,
    progress: str | None = None,
    progress_after: int = 0,
    **settings: Any,
) -> dict[str, Any]:
    """Judge a file of rows with the scripted judge.

    Args:
        rows: the input file.
        out: the output folder.
        delay_s: seconds that each judgment takes.
        progress: file to create after `progress_after` results. None: no file.
        progress_after: number of results.
        settings: fields of `OnRay`.

    Returns:
        The fields of the batch summary, and the text shown to the user as `shown`. If the run stopped, the message as
        `stopped` instead of a summary.
    """
    judging = Watched(judging=_on_ray(**settings))
    stop = threading.Event()
    if progress is not None:
        threading.Thread(target=_report, args=(judging, Path(progress), progress_after, stop), daemon=True).start()
    try:
        return asyncio.run(_judged(rows, out=out, opening=partial(open_scripted, delay_s=delay_s), judging=judging))
    finally:
        stop.set()


def judge_with_model(*, rows: str, out: str, model: str, api_key: str, **settings: Any) -> dict[str, Any]:
    """Judge a file of rows with a checkpoint and a sandbox in one actor."""
    options = JudgeOptions(model=Path(model), chat_api_key=api_key, slots=1)
    judging = _on_ray(**{"min_actors": 1, "max_actors": 1, **settings})
    return asyncio.run(_judged(rows, out=out, opening=partial(options.opened, tools=Tools.AUTO), judging=judging))


def wait_for_warning(*, rows: str, out: str, text: str, **settings: Any) -> bool:
    """Start a batch run, and cancel it as soon as a text is logged. Return whether it was still running."""
    logged = io.StringIO()
    logging.getLogger("tirjudge_harness").addHandler(logging.StreamHandler(logged))

    async def run() -> bool:
        running = asyncio.create_task(
            _judged(rows, out=out, opening=open_scripted, judging=Watched(judging=_on_ray(**settings)))
        )
        await until(lambda: text in logged.getvalue() or running.done(), at_most_s=120)
        was_waiting = not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return was_waiting

    return asyncio.run(run())


def _on_ray(**settings: Any) -> OnRay:
    return OnRay(**{"concurrency": 16, "min_actors": 2, "max_actors": 2, **settings})


async def _judged(rows: str, *, out: str, opening: Opening, judging: Any) -> dict[str, Any]:
    shown = io.StringIO()
    run = run_batch(
        [Path(rows)],
        out=Path(out),
        opening_for=lambda offers_tools: opening,
        judging=judging,
        console=Console(file=shown, width=400),
    )
    try:
        return {**asdict(await run), "shown": shown.getvalue()}
    except RunStopped as error:
        return {"stopped": str(error), "shown": shown.getvalue()}


def _report(judging: Watched, progress: Path, num_results: int, stop: threading.Event) -> None:
    while not stop.wait(POLL_S):
        if len(judging.times) >= num_results:
            progress.touch()
            return

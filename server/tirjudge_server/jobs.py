"""Jobs: long work whose state is on disk, such as a batch or a run of an eval. They continue after a crash or a restart.

Each kind of job has a store, which knows the state of each job and the rows that are done. This module runs the jobs: a few
at a time, each with several rows at a time. Temporary failures of the server are retried.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import Any, TypeVar

from tirjudge.concurrency import gather_fail_fast
from tirjudge.errors import DeadlineExceeded, RecordsUnavailable
from tirjudge.http.exchange import EngineRefused
from tirjudge_web.errors import UNAVAILABLE, QueueFull, ShuttingDown
from tirjudge_web.tracebacks import frames_of

logger = logging.getLogger(__name__)

Row = TypeVar("Row")
T = TypeVar("T")

MAX_ACTIVE = 4
"""Maximum number of jobs of one kind that run concurrently. The others wait."""

MAX_TRIES = 8
"""Maximum number of attempts for a row that fails temporarily, for example because the engine is down."""

PASSING = (*UNAVAILABLE, DeadlineExceeded, RecordsUnavailable)
"""Temporary errors. A row that fails with one of them is retried."""

FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
"""Seconds to wait before the first retry, doubled for each further one, and the maximum."""


class Jobs:
    """Runs the jobs of one kind.

    Args:
        advance: Runs a job from its stored state to its end.
        fail: Records that the server failed at a job. The server's log has the cause.
        unfinished: Returns the ids of the jobs that have not ended.

    Attributes:
        has_started: Whether `start` was called.
    """

    def __init__(
        self,
        *,
        advance: Callable[[str], Awaitable[None]],
        fail: Callable[[str], Awaitable[None]],
        unfinished: Callable[[], Iterable[str]],
    ) -> None:
        self._advance, self._fail, self._unfinished = advance, fail, unfinished
        self._runs: dict[str, asyncio.Task[None]] = {}
        self._work: dict[str, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(MAX_ACTIVE)
        self.has_started = False

    def start(self) -> None:
        """Continue the unfinished jobs on disk. Later calls do nothing."""
        if not self.has_started:
            self.has_started = True
            for job_id in self._unfinished():
                self.run(job_id)

    async def stop(self) -> None:
        """Stop all work. The jobs on disk stay unfinished and continue at the next start."""
        runs = list(self._runs.values())
        for task in runs:
            task.cancel()
        await asyncio.gather(*runs, return_exceptions=True)

    @property
    def working(self) -> frozenset[str]:
        """Ids of the jobs whose work `interrupt` would end."""
        return frozenset(self._work)

    def knows(self, job_id: str) -> bool:
        """Whether a job runs, or waits for its turn."""
        return job_id in self._runs

    def run(self, job_id: str) -> None:
        """Start or continue a job."""
        task = asyncio.create_task(self._run(job_id))
        self._runs[job_id] = task
        task.add_done_callback(lambda _: self._runs.pop(job_id, None))

    def interrupt(self, job_id: str) -> None:
        """Drop the rows in flight of a job whose state has changed. The job goes on from its new state."""
        if (work := self._work.get(job_id)) is not None:
            work.cancel()
        elif job_id not in self._runs:
            self.run(job_id)

    async def work(
        self, job_id: str, work: Coroutine[Any, Any, None], *, timeout_s: float | None = None
    ) -> asyncio.Task[None] | None:
        """Run the part of a job that `interrupt` can end.

        Args:
            job_id: The job.
            work: What to run.
            timeout_s: Seconds after which the work is cancelled. None: no limit.

        Returns:
            The finished task. None: the timeout passed.
        """
        task = asyncio.create_task(work)
        self._work[job_id] = task
        try:
            done, _ = await asyncio.wait({task}, timeout=timeout_s)
            return task if done else None
        finally:
            del self._work[job_id]
            task.cancel()
            await asyncio.wait({task})

    async def _run(self, job_id: str) -> None:
        """Run a job to its end. After an error of the server, the job fails and records it."""
        async with self._places:
            try:
                await self._advance(job_id)
            except ShuttingDown:
                return
            except Exception as error:
                logger.error("%s failed\n%s", job_id, frames_of(error))
                await self._fail(job_id)


async def work_through(rows: Iterator[Row], do: Callable[[Row], Awaitable[None]], *, num_parallel: int) -> None:
    """Call a function with each row, with several rows at a time. The first exception ends the work.

    Args:
        rows: The rows. They are read in a thread.
        do: The function.
        num_parallel: Maximum number of rows at a time.
    """
    reading = asyncio.Lock()

    async def work() -> None:
        while True:
            async with reading:
                row = await asyncio.to_thread(next, rows, None)
            if row is None:
                return
            await do(row)

    await gather_fail_fast([work() for _ in range(num_parallel)])


async def persistently(answer: Callable[[], Awaitable[T]]) -> T:
    """Call a function until it does not fail temporarily.

    Raises:
        ShuttingDown: The server is shutting down.
        Exception: A permanent failure, or the failure of the last attempt.
    """
    num_tries = 0
    while True:
        try:
            return await answer()
        except QueueFull as error:
            await asyncio.sleep(error.retry_after_s)
        except EngineRefused:
            raise  # an `EngineUnavailable` that does not pass by waiting
        except PASSING:
            num_tries += 1
            if num_tries == MAX_TRIES:
                raise
            await asyncio.sleep(min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** (num_tries - 1)))

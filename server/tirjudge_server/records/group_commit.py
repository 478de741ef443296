"""Group commit: one thread runs jobs in transactions. All jobs that arrive during a transaction share the next one.

The cost of a transaction (a disk sync and a thread switch) does not depend on the number of its jobs. So jobs get cheaper
under load, and a job waits for at most two transactions.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from sqlalchemy.exc import SQLAlchemyError

S = TypeVar("S")
T = TypeVar("T")

MAX_BATCH = 256
"""Maximum number of jobs in one transaction."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Job:
    work: Callable[[Any], Any]
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[Any]


class GroupCommitWriter(Generic[S]):
    """Runs jobs in transactions on a separate thread, which the first job starts.

    The thread ends with `close`, or after the writer was garbage collected.

    Args:
        name: Name of the thread.
        transaction: Opens a transaction, and yields the object that jobs are called with.
    """

    def __init__(self, name: str, *, transaction: Callable[[], AbstractContextManager[S]]) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=_run, args=(self._jobs, transaction), name=name, daemon=True)
        weakref.finalize(self, self._jobs.put, None)

    async def do(self, work: Callable[[S], T]) -> T:
        """Run a job in a transaction, and return its result after the commit. Cancelling the wait does not cancel the job.

        Args:
            work: The job. Its exceptions are raised here. It must raise them before its first change.

        Raises:
            RecordsUnavailable: The transaction failed and none of its jobs was written.
        """
        loop = asyncio.get_running_loop()
        job = _Job(work=work, loop=loop, done=loop.create_future())
        self._jobs.put(job)
        if self._thread.ident is None:
            self._thread.start()
        return await job.done

    def close(self) -> None:
        """Wait until all jobs are done, and end the thread."""
        self._jobs.put(None)
        if self._thread.ident is not None:
            self._thread.join()


def _run(queue: SimpleQueue[_Job | None], transaction: Callable[[], AbstractContextManager[Any]]) -> None:
    """Run the jobs of a queue until it yields None. A function, because a method would keep its writer alive."""
    while _run_batch(queue, transaction):
        pass


def _run_batch(queue: SimpleQueue[_Job | None], transaction: Callable[[], AbstractContextManager[Any]]) -> bool:
    """Wait for jobs, and run those that are there; return whether more may come."""
    jobs = [queue.get()]
    while len(jobs) < MAX_BATCH and not queue.empty():
        jobs.append(queue.get())
    batch = [job for job in jobs if job is not None]
    if batch:
        _resolve_batch(batch, results=_results(batch, transaction=transaction))
    return None not in jobs


def _results(batch: Sequence[_Job], *, transaction: Callable[[], AbstractContextManager[Any]]) -> list[Any]:
    """Return the result or the exception of each job. If the transaction failed, every job gets its exception."""
    try:
        with transaction() as session:
            return [_result(job, session=session) for job in batch]
    except Exception as error:
        return [error] * len(batch)


def _result(job: _Job, *, session: Any) -> Any:
    try:
        return job.work(session)
    except SQLAlchemyError:
        raise
    except Exception as error:
        return error


def _resolve_batch(batch: Sequence[_Job], *, results: Sequence[Any]) -> None:
    """Set the results of all jobs, with one call per event loop, because waking a loop is expensive."""
    for loop in {job.loop for job in batch}:
        own = [(job.done, result) for job, result in zip(batch, results, strict=True) if job.loop is loop]
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, own)


def _resolve(own: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    for done, result in own:
        if done.done():
            continue
        if isinstance(result, Exception):
            done.set_exception(result)
        else:
            done.set_result(result)

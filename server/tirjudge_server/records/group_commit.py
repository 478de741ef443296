"""Group commit: one thread works on the database, with one transaction for all work that came during the last one.

A transaction costs a wait for the disk, or a change of threads, whether it does one piece of work or a hundred; so under
load each gets cheaper, and none waits for more than two.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from sqlalchemy.exc import SQLAlchemyError

S = TypeVar("S")
T = TypeVar("T")

MAX_BATCH = 256
"""Most pieces of work in one transaction."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Job:
    work: Callable[[Any], Any]
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[Any]


class GroupCommitWriter(Generic[S]):
    """Started by the first piece of work; `close` finishes what was given.

    Args:
        name: of the thread.
        transaction: what work is done in.
    """

    def __init__(self, name: str, *, transaction: Callable[[], AbstractContextManager[S]]) -> None:
        self._transaction = transaction
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    async def do(self, work: Callable[[S], T]) -> T:
        """Do some work in a transaction, and return when that has ended. Cancelling the wait does not undo it.

        Args:
            work: what it raises is raised here, and must come before its first change.

        Raises:
            RecordsUnavailable: the transaction failed, and nothing of it was written.
        """
        loop = asyncio.get_running_loop()
        job = _Job(work=work, loop=loop, done=loop.create_future())
        self._jobs.put(job)
        if self._thread.ident is None:
            self._thread.start()
        return await job.done

    def close(self) -> None:
        """Waits until all that was given is done."""
        self._jobs.put(None)
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        ended = False
        while not ended:
            jobs = [self._jobs.get()]
            while len(jobs) < MAX_BATCH and not self._jobs.empty():
                jobs.append(self._jobs.get())
            ended = None in jobs
            batch = [job for job in jobs if job is not None]
            if batch:
                _resolve_batch(batch, results=self._results(batch))

    def _results(self, batch: Sequence[_Job]) -> list[Any]:
        """What each returned or raised. If the transaction failed, that is what each of them raised."""
        try:
            with self._transaction() as session:
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
    """Wakes each loop once, since waking it is what costs."""
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

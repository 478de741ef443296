"""What runs batches: each line is a call of its endpoint behind all others, and what is done is written down at once.

A batch is a small machine whose state is on disk (`batchstore`): validating, in progress, finalizing, ended. Whatever ends
the process, the next one goes on where the lines end. What the server itself could not do (a full queue, an engine that is
down) is tried again, and only in the end written down as an error.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from tirjudge.concurrency import gather_fail_fast
from tirjudge.errors import DeadlineExceeded, RecordsUnavailable
from tirjudge_server.call import Call, Priority
from tirjudge_server.openai.batchlines import BatchLine, answer_line, check, lines, unanswered_line, usage_in
from tirjudge_server.openai.batchstore import (
    BatchCounts,
    BatchStore,
    Kind,
    LineErrors,
    StoredBatch,
    digest,
)
from tirjudge_server.openai.filestore import FileStore, StoredFile
from tirjudge_web.errors import UNAVAILABLE, QueueFull, ShuttingDown, problem_from
from tirjudge_web.tracebacks import frames_of

logger = logging.getLogger(__name__)

Endpoint = Callable[[Mapping[str, Any], Call], Awaitable[Mapping[str, Any]]]
"""Answers the body of a line. Raises what the endpoint raises."""

MAX_ACTIVE = 4
"""Batches side by side; the others wait, still validating."""

MAX_TRIES = 8
"""How often a line is tried whose failure may pass, such as an engine that is down."""

PASSING = (*UNAVAILABLE, DeadlineExceeded, RecordsUnavailable)
"""What may work the next time."""

FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0

EXPIRED = ("batch_expired", "This request could not be executed before the completion window expired.")
CANCELLED = ("batch_cancelled", "This batch was cancelled before this request was executed.")


class BatchRunner:
    """Runs the batches of a server.

    Args:
        files: what they read and write.
        batches: where they stand.
        endpoints: path -> what answers it.
        num_parallel: lines of one batch side by side.
        max_line_bytes: a longer line is an error.
    """

    def __init__(
        self,
        *,
        files: FileStore,
        batches: BatchStore,
        endpoints: Mapping[str, Endpoint],
        num_parallel: int,
        max_line_bytes: int,
    ) -> None:
        self.endpoints = endpoints
        self._files, self._batches = files, batches
        files.is_read = self.reads
        self._num_parallel, self._max_line_bytes = num_parallel, max_line_bytes
        self._runs: dict[str, asyncio.Task[None]] = {}
        self._work: dict[str, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(MAX_ACTIVE)
        self._started = False

    def start(self) -> None:
        """Take up what was left unfinished; later calls do nothing."""
        if not self._started:
            self._started = True
            for batch in self._batches.unfinished():
                self.run(batch)

    async def stop(self) -> None:
        """Leave everything where it stands."""
        runs = list(self._runs.values())
        for task in runs:
            task.cancel()
        await asyncio.gather(*runs, return_exceptions=True)

    def run(self, batch: StoredBatch) -> None:
        """Start or continue a batch."""
        task = asyncio.create_task(self._run(batch.id))
        self._runs[batch.id] = task
        task.add_done_callback(lambda _: self._runs.pop(batch.id, None))

    def cancel(self, batch: StoredBatch) -> StoredBatch:
        """Start no more lines of a batch, and drop those under way."""
        if batch.status in ("cancelling", "finalizing"):
            return batch
        batch = self._batches.update(batch.id, status="cancelling", cancelling_at=self._batches.now())
        if (work := self._work.get(batch.id)) is not None:
            work.cancel()
        elif batch.id not in self._runs:
            self.run(batch)
        return batch

    def reads(self, file: StoredFile) -> bool:
        """Whether an unfinished batch needs a file."""
        return any(batch.input_file_id == file.id for batch in self._batches.unfinished())

    async def _run(self, batch_id: str) -> None:
        """From wherever a batch stands to its end. One that breaks for a reason of ours fails, and says so."""
        async with self._places:
            try:
                if self._batches.known(batch_id).status == "validating":
                    await self._validate(batch_id)
                if self._batches.known(batch_id).status == "in_progress":
                    await self._work_through(batch_id)
                if self._batches.known(batch_id).status == "cancelling":
                    await asyncio.to_thread(self._begin_end, batch_id, "cancelled")
                if self._batches.known(batch_id).status == "finalizing":
                    await asyncio.to_thread(self._finalize, batch_id)
            except ShuttingDown:
                return
            except Exception as error:
                logger.error("%s failed\n%s", batch_id, frames_of(error))
                self._fail(batch_id, LineErrors.model_validate({"data": [_OUR_FAULT]}))

    async def _validate(self, batch_id: str) -> None:
        batch = self._batches.known(batch_id)
        path = self._files.path(batch.input_file_id)
        found = await asyncio.to_thread(check, path, endpoint=batch.endpoint, max_line_bytes=self._max_line_bytes)
        if self._batches.known(batch_id).status != "validating":
            return
        if found.errors:
            self._fail(batch_id, LineErrors(data=list(found.errors)))
            return
        self._batches.update(
            batch_id,
            status="in_progress",
            in_progress_at=self._batches.now(),
            model=found.model,
            request_counts=BatchCounts(total=found.num_lines),
        )

    def _fail(self, batch_id: str, errors: LineErrors) -> None:
        self._batches.update(batch_id, status="failed", failed_at=self._batches.now(), errors=errors)

    async def _work_through(self, batch_id: str) -> None:
        """All lines, until they are done, the time is up, or the batch is cancelled."""
        batch = self._batches.known(batch_id)
        work = asyncio.create_task(self._do_lines(batch))
        self._work[batch_id] = work
        try:
            await asyncio.wait({work}, timeout=max(0, batch.expires_at - self._batches.now()))
            ending = "completed" if work.done() else "expired"
        finally:
            del self._work[batch_id]
            work.cancel()
            await asyncio.wait({work})
        if self._batches.known(batch_id).status == "cancelling":
            return
        if ending == "completed":
            work.result()
        await asyncio.to_thread(self._begin_end, batch_id, ending)

    async def _do_lines(self, batch: StoredBatch) -> None:
        progress = await asyncio.to_thread(self._batches.progress, batch.id)
        self._batches.count(batch.id, progress)
        with (
            self._batches.appending(batch.id, "output") as output,
            self._batches.appending(batch.id, "errors") as errors,
        ):
            waiting = self._left(batch, done=frozenset(progress.done))
            reading = asyncio.Lock()

            async def work() -> None:
                while True:
                    async with reading:
                        line = await asyncio.to_thread(next, waiting, None)
                    if line is None:
                        return
                    status, request_id, body = await self._answer(batch, line)
                    failed = status >= 400
                    file = errors if failed else output
                    file.write(answer_line(line.custom_id, status=status, request_id=request_id, body=body))
                    file.flush()
                    progress.add(line.custom_id, failed=failed)
                    self._batches.count(batch.id, progress)

            await gather_fail_fast([work() for _ in range(self._num_parallel)])

    def _left(self, batch: StoredBatch, *, done: frozenset[bytes]) -> Iterator[BatchLine]:
        """The lines of a batch that are not done yet."""
        path = self._files.path(batch.input_file_id)
        for line in lines(path, endpoint=batch.endpoint, max_line_bytes=self._max_line_bytes):
            if digest(line.custom_id) not in done:
                yield line

    async def _answer(self, batch: StoredBatch, line: BatchLine) -> tuple[int, str, Mapping[str, Any]]:
        """The status, the request's id and the body of one line's answer."""
        request_id = f"req_{uuid.uuid4().hex}"
        call = Call(
            dialect="openai.batch",
            caller=batch.owner,
            priority=Priority.BATCH,
            # The same line of the same batch is judged once, however often the process is started anew.
            idempotency_key=f"{batch.id}/{digest(line.custom_id).hex()}",
            request_id=request_id,
        )
        num_tries = 0
        while True:
            try:
                return 200, request_id, await self.endpoints[batch.endpoint](line.body, call)
            except ShuttingDown:
                raise
            except QueueFull as error:
                await asyncio.sleep(error.retry_after_s)
            except Exception as error:
                num_tries += 1
                if not isinstance(error, PASSING) or num_tries == MAX_TRIES:
                    status, problem, _ = problem_from(error)
                    if status >= 500:
                        logger.error("%s failed\n%s", request_id, frames_of(error))
                    return status, request_id, {"error": problem.model_dump()}
                await asyncio.sleep(min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** (num_tries - 1)))

    def _begin_end(self, batch_id: str, ending: str) -> None:
        """Write down the lines that will not be run, and name the files that there will be."""
        batch = self._batches.known(batch_id)
        progress = self._batches.progress(batch_id)
        if ending != "completed":
            code, message = EXPIRED if ending == "expired" else CANCELLED
            with self._batches.appending(batch_id, "errors") as errors:
                for line in self._left(batch, done=frozenset(progress.done)):
                    errors.write(unanswered_line(line.custom_id, code=code, message=message))
                    progress.add(line.custom_id, failed=True)
        self._batches.update(
            batch_id,
            status="finalizing",
            ending=ending,
            finalizing_at=self._batches.now(),
            output_file_id=self._files.new_id() if progress.num_completed else None,
            error_file_id=self._files.new_id() if progress.num_failed else None,
            request_counts=progress.counts(total=max(batch.request_counts.total, len(progress.done))),
        )

    def _finalize(self, batch_id: str) -> None:
        """The lines become files. Done twice, it gives the same."""
        batch = self._batches.known(batch_id)
        file_ids: dict[Kind, str | None] = {"output": batch.output_file_id, "errors": batch.error_file_id}
        for kind, file_id in file_ids.items():
            if file_id is not None and not self._files.has(file_id):
                self._batches.keep(batch_id, kind, self._files.path(file_id))
                self._files.add(
                    file_id,
                    filename=f"{batch_id}_{kind}.jsonl",
                    purpose="batch_output",
                    owner=batch.owner,
                    lifetime_s=batch.output_lifetime_s,
                )
        usage = usage_in(self._batches.path(batch_id, "output"))
        ended = {f"{batch.ending}_at": self._batches.now()}
        self._batches.update(batch_id, status=batch.ending, usage=usage, **ended)
        self._batches.forget_lines(batch_id)


_OUR_FAULT = {"code": "internal", "message": "the server failed; its log has the cause"}

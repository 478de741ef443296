"""Runs batches. Each line is one call of its endpoint with the lowest priority, and each answer is written immediately.

A batch is a state machine whose state is on disk (`batchstore`): validating, in progress, finalizing, ended. After a crash or
restart, the next process runs the lines that have no answer yet. Temporary failures of the server (a full queue, an engine
that is down) are retried, and recorded as an error of the line only after the last retry.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from tirjudge_server.call import Call, Priority
from tirjudge_server.jobs import Jobs, persistently, work_through
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
from tirjudge_web.errors import ShuttingDown, problem_from
from tirjudge_web.tracebacks import frames_of

logger = logging.getLogger(__name__)

Endpoint = Callable[[Mapping[str, Any], Call], Awaitable[Mapping[str, Any]]]
"""Answers the body of a line. Raises the errors of its endpoint."""

EXPIRED = ("batch_expired", "This request could not be executed before the completion window expired.")
CANCELLED = ("batch_cancelled", "This batch was cancelled before this request was executed.")


class BatchRunner:
    """Runs the batches of a server.

    Args:
        files: Holds the input and output files.
        batches: Holds the state of the batches.
        endpoints: Path -> the function that answers it.
        num_parallel: Maximum number of lines of one batch that run concurrently.
        max_line_bytes: Maximum length of a line. A longer one is an error of the file.
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
        files.readers.append(self.reads)
        self._num_parallel, self._max_line_bytes = num_parallel, max_line_bytes
        self.jobs = Jobs(
            advance=self._advance,
            fail=self._fail_internally,
            unfinished=lambda: [batch.id for batch in batches.unfinished()],
        )

    def cancel(self, batch: StoredBatch) -> StoredBatch:
        """Cancel a batch: drop the lines in flight and start no others."""
        if batch.status in ("cancelling", "finalizing"):
            return batch
        batch = self._batches.update(batch.id, status="cancelling", cancelling_at=self._batches.now())
        self.jobs.interrupt(batch.id)
        return batch

    def reads(self, file: StoredFile) -> bool:
        """Whether an unfinished batch reads a file."""
        return any(batch.input_file_id == file.id for batch in self._batches.unfinished())

    async def _advance(self, batch_id: str) -> None:
        """Run a batch from its current state to its end."""
        if self._batches.known(batch_id).status == "validating":
            await self._validate(batch_id)
        if self._batches.known(batch_id).status == "in_progress":
            await self._work_through(batch_id)
        if self._batches.known(batch_id).status == "cancelling":
            await asyncio.to_thread(self._begin_end, batch_id, "cancelled")
        if self._batches.known(batch_id).status == "finalizing":
            await asyncio.to_thread(self._finalize, batch_id)

    async def _fail_internally(self, batch_id: str) -> None:
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
        """Run all lines until they are done, the batch expires, or the batch is cancelled."""
        batch = self._batches.known(batch_id)
        timeout_s = max(0, batch.expires_at - self._batches.now())
        done = await self.jobs.work(batch_id, self._do_lines(batch), timeout_s=timeout_s)
        if self._batches.known(batch_id).status == "cancelling":
            return
        if done is not None:
            done.result()
        await asyncio.to_thread(self._begin_end, batch_id, "expired" if done is None else "completed")

    async def _do_lines(self, batch: StoredBatch) -> None:
        progress = await asyncio.to_thread(self._batches.progress, batch.id)
        self._batches.count(batch.id, progress)
        with (
            self._batches.appending(batch.id, "output") as output,
            self._batches.appending(batch.id, "errors") as errors,
        ):

            async def work(line: BatchLine) -> None:
                status, request_id, body = await self._answer(batch, line)
                failed = status >= 400
                file = errors if failed else output
                file.write(answer_line(line.custom_id, status=status, request_id=request_id, body=body))
                file.flush()
                progress.add(line.custom_id, failed=failed)
                self._batches.count(batch.id, progress)

            waiting = self._left(batch, done=frozenset(progress.done))
            await work_through(waiting, work, num_parallel=self._num_parallel)

    def _left(self, batch: StoredBatch, *, done: frozenset[bytes]) -> Iterator[BatchLine]:
        """Yield the lines of a batch that are not done."""
        path = self._files.path(batch.input_file_id)
        for line in lines(path, endpoint=batch.endpoint, max_line_bytes=self._max_line_bytes):
            if digest(line.custom_id) not in done:
                yield line

    async def _answer(self, batch: StoredBatch, line: BatchLine) -> tuple[int, str, Mapping[str, Any]]:
        """Return the HTTP status, the request id and the body of the answer to one line."""
        request_id = f"req_{uuid.uuid4().hex}"
        call = Call(
            dialect="openai.batch",
            caller=batch.owner,
            priority=Priority.BATCH,
            # A line is judged once, even if the server is restarted while it runs.
            idempotency_key=f"{batch.id}/{digest(line.custom_id).hex()}",
            request_id=request_id,
        )
        try:
            answer = persistently(lambda: self.endpoints[batch.endpoint](line.body, call))
            return 200, request_id, await answer
        except ShuttingDown:
            raise
        except Exception as error:
            status, problem, _ = problem_from(error)
            if status >= 500:
                logger.error("%s failed\n%s", request_id, frames_of(error))
            return status, request_id, {"error": problem.model_dump()}

    def _begin_end(self, batch_id: str, ending: str) -> None:
        """Record the lines that will not run, and choose the ids of the output files."""
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
        """Turn the done lines into output files. Idempotent."""
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

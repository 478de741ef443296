"""`/v1/batches`: many requests in one file, judged with the lowest priority."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

from fastapi import APIRouter, FastAPI, Request

from tirjudge.http.protocol import invalid, shown
from tirjudge.types import Integer, Text
from tirjudge_server.openai.batchrun import BatchRunner
from tirjudge_server.openai.batchstore import BatchStore
from tirjudge_server.openai.bodies import BatchObject, BatchPage
from tirjudge_server.openai.files import lifetime, owner_of
from tirjudge_server.openai.filestore import FileStore, StoredFile
from tirjudge_server.openai.pages import BatchesQuery, listed, page, query_parameters
from tirjudge_server.openai.wire import Foreign, Metadata, parse, parsed
from tirjudge_server.openapi import error_responses
from tirjudge_web.body import read_body
from tirjudge_web.errors import Refused

BATCHES_PATH = "/v1/batches"
MAX_BODY_BYTES = 64 * 1024
"""Maximum size of a request that creates a batch."""

_WINDOW = re.compile(r"([1-9][0-9]{0,5})([smhd])")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class OutputExpiresAfter(Foreign):
    """When the files that a batch writes are deleted."""

    anchor: Literal["created_at"]
    """Always `created_at`: the lifetime begins when the file is created, at the end of the batch."""
    seconds: Integer
    """Lifetime in seconds: 3,600 (one hour) to 2,592,000 (thirty days)."""


class BatchCreation(Foreign):
    """Body of a request that creates a batch."""

    input_file_id: Text
    """Id of an uploaded file with the purpose `batch`. Each line of it is one request."""
    endpoint: Text
    """Path of all requests: `/v1/judge`, `/v1/chat/completions` or `/v1/decisions`. Each line must name it in `url`."""
    completion_window: Text
    """Time until the batch expires: an integer from 1 to 999,999 with the unit `s`, `m`, `h` or `d`, such as `24h`.
    Requests that have not run by then count as failed."""
    metadata: Metadata | None = None
    """Notes on the batch, which responses repeat: at most 16, with names of up to 64 and texts of up to 512 characters.
    None: none."""
    output_expires_after: OutputExpiresAfter | None = None
    """Lifetime of the files that the batch writes. None: thirty days."""


def router(runner: BatchRunner, *, files: FileStore, batches: BatchStore) -> APIRouter:
    """Return the endpoints. Unfinished batches continue when the application starts.

    Args:
        runner: Runs the batches.
        files: Holds the input and output files.
        batches: Holds the state of the batches.
    """

    @asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[None]:
        runner.jobs.start()
        yield
        await runner.jobs.stop()

    routes = APIRouter(lifespan=running)

    @routes.post(
        BATCHES_PATH,
        response_model=BatchObject,
        responses=error_responses({429: "The caller has too many unfinished batches."}),
    )
    async def create(request: Request) -> dict[str, Any]:
        """Create and start a batch."""
        body = parse(await read_body(request, max_bytes=MAX_BODY_BYTES), BatchCreation)
        file = _checked(body, files=files, owner=owner_of(request), endpoints=sorted(runner.endpoints))
        kept = body.output_expires_after
        runner.jobs.start()
        batch = batches.create(
            window_s=window_s(body.completion_window),
            owner=file.owner,
            output_lifetime_s=None if kept is None else lifetime(kept.seconds, param="output_expires_after"),
            **body.model_dump(include={"endpoint", "input_file_id", "completion_window", "metadata"}),
        )
        runner.jobs.run(batch.id)
        return batch.shown()

    @routes.get(BATCHES_PATH, openapi_extra={"parameters": query_parameters(BatchesQuery)}, response_model=BatchPage)
    async def list_batches(request: Request) -> dict[str, Any]:
        """List the caller's batches, newest first."""
        query = parsed(dict(request.query_params), BatchesQuery)
        own = batches.of(owner_of(request))[::-1]
        found, has_more = page(own, after=query.after, limit=query.limit, id_of=lambda batch: batch.id)
        return listed([batch.shown() for batch in found], has_more=has_more)

    @routes.get(BATCHES_PATH + "/{batch_id}", response_model=BatchObject)
    async def retrieve(request: Request, batch_id: str) -> dict[str, Any]:
        """Return the state of a batch."""
        return batches.get(batch_id, owner=owner_of(request)).shown()

    @routes.post(
        BATCHES_PATH + "/{batch_id}/cancel",
        response_model=BatchObject,
        responses=error_responses({409: "The batch has already ended."}),
    )
    async def cancel(request: Request, batch_id: str) -> dict[str, Any]:
        """Cancel a batch. Its files keep the lines that are done."""
        batch = batches.get(batch_id, owner=owner_of(request))
        if batch.has_ended:
            message = f"batch: already {batch.status}; an ended batch cannot be cancelled"
            problem = invalid(message, param="batch_id", code="batch_ended")
            # OpenAI's clients retry a 409 unless this header forbids it.
            raise Refused(problem, status=409, headers={"x-should-retry": "false"})
        return runner.cancel(batch).shown()

    return routes


def window_s(window: str) -> int:
    """Parse a completion window such as `24h`: a number of seconds, minutes, hours or days.

    Returns:
        Seconds.

    Raises:
        Refused: The text is not a completion window.
    """
    match = _WINDOW.fullmatch(window)
    if match is None:
        message = f'completion_window: {shown(window)} given; expected: a number and s, m, h or d, such as "24h"'
        raise Refused(invalid(message, param="completion_window", code="invalid_value"))
    return int(match[1]) * _UNIT_S[match[2]]


def _checked(body: BatchCreation, *, files: FileStore, owner: str | None, endpoints: list[str]) -> StoredFile:
    """Return the input file of a new batch.

    Raises:
        Refused: The endpoint is unknown, the file is missing or not meant for batches, or the caller's quota is full.
    """
    if body.endpoint not in endpoints:
        message = f"endpoint: {shown(body.endpoint)} given; expected one of: {', '.join(endpoints)}"
        raise Refused(invalid(message, param="endpoint", code="invalid_value"))
    file = files.get(body.input_file_id, owner=owner)
    if file.purpose != "batch":
        message = f'input_file_id: a file with purpose "{file.purpose}" given; expected: a file with purpose "batch"'
        raise Refused(invalid(message, param="input_file_id", code="invalid_value"))
    files.check_full(owner)
    return file

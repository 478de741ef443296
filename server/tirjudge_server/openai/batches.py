"""`/v1/batches`: many requests in a file, answered when no other request waits."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from fastapi import APIRouter, FastAPI, Request
from pydantic import Field

from tirjudge.http.protocol import invalid, shown
from tirjudge.types import Text
from tirjudge_server.openai.batchrun import BatchRunner
from tirjudge_server.openai.batchstore import BatchStore
from tirjudge_server.openai.files import lifetime, owner_of
from tirjudge_server.openai.filestore import FileStore, StoredFile
from tirjudge_server.openai.pages import BatchesQuery, listed, page, query_parameters
from tirjudge_server.openai.wire import Foreign, parse, parsed
from tirjudge_server.openapi import error_responses
from tirjudge_web.body import read_body
from tirjudge_web.errors import Refused

BATCHES_PATH = "/v1/batches"
MAX_BODY_BYTES = 64 * 1024

_WINDOW = re.compile(r"([1-9][0-9]{0,5})([smhd])")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class OutputExpiresAfter(Foreign):
    anchor: Literal["created_at"]
    seconds: int


class BatchCreation(Foreign):
    input_file_id: Text
    endpoint: Text
    completion_window: Text
    metadata: dict[Annotated[Text, Field(max_length=64)], Annotated[Text, Field(max_length=512)]] | None = Field(
        default=None, max_length=16
    )
    output_expires_after: OutputExpiresAfter | None = None


def router(runner: BatchRunner, *, files: FileStore, batches: BatchStore) -> APIRouter:
    """The endpoints; unfinished batches continue when the application starts.

    Args:
        runner: runs them.
        files: what they read and write.
        batches: where they stand.
    """

    @asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[None]:
        runner.start()
        yield
        await runner.stop()

    routes = APIRouter(lifespan=running)

    @routes.post(BATCHES_PATH, responses=error_responses({429: "The caller has too many unfinished batches."}))
    async def create(request: Request) -> dict[str, Any]:
        """Begin a batch."""
        asked = parse(await read_body(request, max_bytes=MAX_BODY_BYTES), BatchCreation)
        file = _checked(asked, files=files, owner=owner_of(request), endpoints=sorted(runner.endpoints))
        kept = asked.output_expires_after
        runner.start()
        batch = batches.create(
            window_s=window_s(asked.completion_window),
            owner=file.owner,
            output_lifetime_s=None if kept is None else lifetime(kept.seconds, param="output_expires_after"),
            **asked.model_dump(include={"endpoint", "input_file_id", "completion_window", "metadata"}),
        )
        runner.run(batch)
        return batch.shown()

    @routes.get(BATCHES_PATH, openapi_extra={"parameters": query_parameters(BatchesQuery)})
    async def list_batches(request: Request) -> dict[str, Any]:
        """The caller's batches, the newest first."""
        asked = parsed(dict(request.query_params), BatchesQuery)
        own = batches.of(owner_of(request))[::-1]
        found, has_more = page(own, after=asked.after, limit=asked.limit, id_of=lambda batch: batch.id)
        return listed([batch.shown() for batch in found], has_more=has_more)

    @routes.get(BATCHES_PATH + "/{batch_id}")
    async def retrieve(request: Request, batch_id: str) -> dict[str, Any]:
        """Where a batch stands."""
        return batches.get(batch_id, owner=owner_of(request)).shown()

    @routes.post(BATCHES_PATH + "/{batch_id}/cancel", responses=error_responses({409: "It has ended already."}))
    async def cancel(request: Request, batch_id: str) -> dict[str, Any]:
        """End a batch; what is done by then is in its files."""
        batch = batches.get(batch_id, owner=owner_of(request))
        if batch.has_ended:
            message = f"batch: it is {batch.status} already, and cannot be cancelled"
            problem = invalid(message, param="batch_id", code="batch_ended")
            # Clients take a 409 for something that passes, and this does not.
            raise Refused(problem, status=409, headers={"x-should-retry": "false"})
        return runner.cancel(batch).shown()

    return routes


def window_s(window: str) -> int:
    """How long a batch may take: `24h`, or any other number of seconds, minutes, hours or days.

    Raises:
        Refused: it is none.
    """
    match = _WINDOW.fullmatch(window)
    if match is None:
        message = f'completion_window: {shown(window)} given; expected: a number and s, m, h or d, such as "24h"'
        raise Refused(invalid(message, param="completion_window", code="invalid_value"))
    return int(match[1]) * _UNIT_S[match[2]]


def _checked(asked: BatchCreation, *, files: FileStore, owner: str | None, endpoints: list[str]) -> StoredFile:
    """The input of a batch that can be begun.

    Raises:
        Refused: it cannot be; the caller keeps too many files, for one.
    """
    if asked.endpoint not in endpoints:
        message = f"endpoint: {shown(asked.endpoint)} given; there are {', '.join(endpoints)}"
        raise Refused(invalid(message, param="endpoint", code="invalid_value"))
    file = files.get(asked.input_file_id, owner=owner)
    if file.purpose != "batch":
        message = f'input_file_id: a file for "{file.purpose}" given; expected: one uploaded for "batch"'
        raise Refused(invalid(message, param="input_file_id", code="invalid_value"))
    files.check_full(owner)
    return file

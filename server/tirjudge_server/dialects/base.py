"""A dialect: the endpoints of one reward protocol, as data, and the handlers that the server creates for them.

To add a dialect, define `DIALECT` in a module and register it in `pyproject.toml`:

    [project.entry-points."tirjudge.dialects"]
    toy = "tirjudge_toy.dialect:DIALECT"

Most endpoints read responses from the body and write their rewards: `reply=scored(read, write)`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from tirjudge_server.call import Priority, call_of
from tirjudge_server.dialects.context import DialectContext, DialectSettings
from tirjudge_server.dialects.options import DialectOptions, options_of
from tirjudge_server.failure import FailureRow
from tirjudge_server.request_batch import RequestBatch
from tirjudge_server.rewards import answer_headers
from tirjudge_server.scoring import ResponseGroup, ResponseScore
from tirjudge_server.service import JudgeService
from tirjudge_web.body import parse_body, read_body
from tirjudge_web.connection import while_connected
from tirjudge_web.openapi import answers_with

Reply = Callable[[Any, DialectContext], Coroutine[Any, Any, Any]]
"""Returns the response to a body, as a JSON value."""

Read = Callable[[Any, DialectContext], Sequence[ResponseGroup | ResponseScore | None]]
"""Returns the responses in a body, grouped by prompt. None: the text of this group cannot be parsed, or is ambiguous. A
`ResponseScore`: a known score, no judgment is needed. The function runs in a thread and may change `context.scoring`."""

Write = Callable[[Any, list[ResponseScore], DialectContext], Any]
"""Returns the response to a body, as a JSON value, from one score for each response, in order."""

Handler = Callable[[Request, bytes | None], Awaitable[Response]]
"""Handles a request, given its body; None: the body was not read yet."""


def scored(read: Read, write: Write) -> Reply:
    """A reply that reads the responses of a body, scores them, and writes the scores."""

    async def reply(body: Any, context: DialectContext) -> Any:
        groups = await asyncio.to_thread(read, body, context)
        return write(body, await context.score(groups), context)

    return reply


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectEndpoint:
    """One POST endpoint of a dialect."""

    path: str
    """Path of the endpoint. At `/v1/rerank`, a dialect receives only bodies with `documents` or `texts`."""
    body: type[BaseModel]
    """Model of the request body."""
    reply: Reply
    """Computes the response."""
    summary: str
    """Description for the OpenAPI schema."""
    examples: Mapping[str, Any] = field(default_factory=dict)
    """Title -> body of an example for the OpenAPI schema. Each of them gets a 200."""
    answer: Any = None
    """Type of the response, for the OpenAPI schema: a pydantic model, or another type that pydantic knows. None: the schema
    allows any JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A reward protocol."""

    name: str
    """Name of the dialect, as in `--dialects`."""
    endpoints: Sequence[DialectEndpoint]
    """The endpoints."""
    deadline_s: float | None
    """Deadline of a request in seconds, less than the client's timeout; None: the client has no timeout."""
    failures: FailureRow
    """How missing scores are reported."""
    failures_at: Mapping[str, FailureRow] = field(default_factory=dict)
    """Rows for a path (`/compare`) or for requests with an option (`?reward_key`) that differ from `failures`."""
    options: type[DialectOptions] = DialectOptions
    """Model of the URL query."""
    open_state: Callable[[DialectSettings], Any] | None = None
    """Creates the state that a server keeps between requests, `context.state`; None: no state."""
    routes: Callable[[DialectSettings], APIRouter] | None = None
    """Creates the endpoints without a request body; None: no such endpoints."""

    @property
    def rows(self) -> dict[str, FailureRow]:
        """Label of the row -> row of the failure table."""
        return {self.name: self.failures, **{self.name + key: row for key, row in self.failures_at.items()}}

    def label(self, request: Request) -> str:
        """The label of the failure row that applies to a request."""
        keys = (request.url.path, *(f"?{name}" for name in request.query_params))
        return self.name + next((key for key in keys if key in self.failures_at), "")


def handlers(dialect: Dialect, service: JudgeService, *, settings: DialectSettings) -> dict[str, Handler]:
    """Path -> handler, for all endpoints of a dialect."""
    state = None if dialect.open_state is None else dialect.open_state(settings)

    def handler(endpoint: DialectEndpoint) -> Handler:
        async def answer(request: Request, body: bytes | None) -> Response:
            options = options_of(request.query_params, model=dialect.options)
            if body is None:
                async with service.draining.limit():
                    body = await read_body(request, max_bytes=settings.max_body_bytes)
            asked, label = parse_body(body, endpoint.body), dialect.label(request)
            failures, name = dialect.rows[label], label.partition("?")[0]
            call = call_of(request, dialect=name, priority=Priority.REWARD, deadline_s=dialect.deadline_s)
            patience_s = settings.patience_s if failures.is_patient else 0.0
            batch = RequestBatch(service, call=call, patience_s=patience_s)
            context = DialectContext(
                label=label,
                failures=failures,
                path=request.url.path,
                options=options,
                settings=settings,
                state=state,
                batch=batch,
            )
            value = await while_connected(request.receive, endpoint.reply(asked, context))
            headers = answer_headers(context.rewards, judgment_ids=batch.judgment_ids)
            # The JSON is ASCII, because a text that the response repeats may contain an unpaired surrogate.
            return Response(json.dumps(value, allow_nan=False), headers=headers, media_type="application/json")

        return answer

    return {endpoint.path: handler(endpoint) for endpoint in dialect.endpoints}


def add_endpoint(routes: APIRouter, endpoint: DialectEndpoint, handler: Handler) -> None:
    """Add an endpoint to a router."""

    async def answer(request: Request) -> Response:
        return await handler(request, None)

    name = endpoint.path[1:].replace("/", "_")
    routes.add_api_route(
        endpoint.path,
        answer,
        methods=["POST"],
        name=name,
        operation_id=name,
        description=endpoint.summary,
        responses={} if endpoint.answer is None else answers_with(endpoint.answer),
    )

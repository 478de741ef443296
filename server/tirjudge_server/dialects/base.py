"""A dialect: the endpoints of one reward protocol, as data, and how the server answers them.

A dialect is a file that defines `DIALECT`, and a line of `pyproject.toml`:

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

Reply = Callable[[Any, DialectContext], Coroutine[Any, Any, Any]]
"""Turns a body into the answer, a JSON value."""

Read = Callable[[Any, DialectContext], Sequence[ResponseGroup | ResponseScore | None]]
"""The responses in a body, grouped by prompt. None in the place of a group: it has no single reading. A score: no judgment
is needed. Runs in a thread, and may change `context.scoring`."""

Write = Callable[[Any, list[ResponseScore], DialectContext], Any]
"""The answer to a body, from one score for each response, in order."""

Handler = Callable[[Request, bytes | None], Awaitable[Response]]
"""Answers a request; its body, or None if it was not read yet."""


def scored(read: Read, write: Write) -> Reply:
    """The reply that reads responses, has them scored, and writes the scores."""

    async def reply(body: Any, context: DialectContext) -> Any:
        groups = await asyncio.to_thread(read, body, context)
        return write(body, await context.score(groups), context)

    return reply


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectEndpoint:
    """A path that clients post to."""

    path: str
    """`/v1/rerank` gets only the bodies there that have `documents` or `texts`; the others are native."""
    body: type[BaseModel]
    reply: Reply
    summary: str
    """For the OpenAPI page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A reward protocol."""

    name: str
    endpoints: Sequence[DialectEndpoint]
    deadline_s: float | None
    """Seconds for an answer, below the client's own time-out; None: it has none."""
    failures: FailureRow
    """What clients are told where there is no score."""
    failures_at: Mapping[str, FailureRow] = field(default_factory=dict)
    """Other rows: of a path (`/compare`), or of requests with an option (`?reward_key`)."""
    options: type[DialectOptions] = DialectOptions
    """What the query of a URL may say."""
    open_state: Callable[[DialectSettings], Any] | None = None
    """Makes what a server keeps between requests, `context.state`; None: nothing is kept."""
    routes: Callable[[DialectSettings], APIRouter] | None = None
    """Endpoints that take no body; None: there are none."""

    @property
    def rows(self) -> dict[str, FailureRow]:
        """Label -> row of the failure table."""
        return {self.name: self.failures, **{self.name + key: row for key, row in self.failures_at.items()}}

    def label(self, request: Request) -> str:
        """The label of a request's row."""
        keys = (request.url.path, *(f"?{name}" for name in request.query_params))
        return self.name + next((key for key in keys if key in self.failures_at), "")


def handlers(dialect: Dialect, service: JudgeService, *, settings: DialectSettings) -> dict[str, Handler]:
    """Path -> what answers it."""
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
            # In ASCII: what is echoed may hold half a surrogate pair.
            return Response(json.dumps(value, allow_nan=False), headers=headers, media_type="application/json")

        return answer

    return {endpoint.path: handler(endpoint) for endpoint in dialect.endpoints}


def add_endpoint(routes: APIRouter, endpoint: DialectEndpoint, handler: Handler) -> None:
    """Let a router answer an endpoint."""

    async def answer(request: Request) -> Response:
        return await handler(request, None)

    name = endpoint.path[1:].replace("/", "_")
    routes.add_api_route(
        endpoint.path, answer, methods=["POST"], name=name, operation_id=name, description=endpoint.summary
    )

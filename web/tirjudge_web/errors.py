"""Map each exception of a request to a response in OpenAI's error format. Responses never contain a traceback."""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match

from tirjudge.errors import (
    CheckpointError,
    DeadlineExceeded,
    EngineBusy,
    EngineUnavailable,
    EvidenceRefused,
    PromptTooLong,
    RecordsUnavailable,
    RequestNotShown,
    SandboxBusy,
    SandboxUnavailable,
    TurnRefused,
)
from tirjudge.http.exchange import EngineRefused
from tirjudge.http.protocol import ErrorBody, Problem, invalid
from tirjudge_web.connection import HUNG_UP
from tirjudge_web.identity import identity_headers

UNAVAILABLE_RETRY_S = 2.0
"""Seconds until a retry after a failure of the server."""


REFERENCE_PATH = "/docs"
"""Path of the page that describes an application (`tirjudge_web.reference`)."""

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
"""HTTP methods that routes may have."""


class Refused(Exception):
    """The request is invalid or not allowed.

    Attributes:
        problem: body of the error.
        status: HTTP status.
        headers: additional response headers, such as retry-after.
    """

    def __init__(self, problem: Problem, *, status: int = 400, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(problem.message)
        self.problem = problem
        self.status = status
        self.headers = dict(headers or {})


class QueueFull(Exception):
    """The queue is full. Retry after `retry_after_s` seconds."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ShuttingDown(Exception):
    """The server is shutting down. It refused or aborted the request.

    Attributes:
        started: whether work on the request may have started.
    """

    def __init__(self, *, started: bool) -> None:
        super().__init__("the server is shutting down")
        self.started = started


UNAVAILABLE = (EngineUnavailable, CheckpointError, SandboxUnavailable)
"""Failures of the server's components. A `CheckpointError` means that a remote engine now serves a different model."""

FAILURES = (
    Refused, QueueFull, ShuttingDown, PromptTooLong, EvidenceRefused, RequestNotShown, DeadlineExceeded, RecordsUnavailable,
    *UNAVAILABLE,
)  # fmt: skip
"""Expected exceptions of a request. Any other exception is a bug of the server."""


def problem_from(error: Exception) -> tuple[int, Problem, dict[str, str]]:
    """Return status, body and additional headers of the response for an exception."""
    match error:
        case Refused():
            return error.status, error.problem, error.headers
        case QueueFull() | SandboxBusy():
            problem = Problem(message=str(error), type="rate_limit_error", code="queue_full")
            return 429, problem, retry_headers(error.retry_after_s)
        case ShuttingDown():
            problem = Problem(message=str(error), type="server_error", code="shutting_down")
            return 503, problem, retry_headers(UNAVAILABLE_RETRY_S)
        case PromptTooLong():
            return 400, invalid(f"prompt: {error}", param="prompt", code="context_length_exceeded"), {}
        case EvidenceRefused():
            return 400, invalid(str(error), param="evidence", code="evidence_refused"), {}
        case RequestNotShown():
            return 400, invalid(str(error), param=str(error).partition(":")[0], code="not_shown_by_format"), {}
        case DeadlineExceeded():
            problem = Problem(message=str(error), type="server_error", code="deadline_exceeded")
            return 504, problem, {}
        case EngineRefused() | TurnRefused():
            problem = Problem(message=f"the model refused: {error}", type="server_error", code="engine_refused")
            return 502, problem, {}
        case EngineBusy():
            problem = Problem(message=str(error), type="server_error", code="engine_busy")
            return 503, problem, retry_headers(error.retry_after_s)
        case EngineUnavailable() | CheckpointError() | SandboxUnavailable() | RecordsUnavailable():
            part = "records" if isinstance(error, RecordsUnavailable) else "engine"
            part = "sandbox" if isinstance(error, SandboxUnavailable) else part
            problem = Problem(message=str(error), type="server_error", code=f"{part}_unavailable")
            return 503, problem, retry_headers(UNAVAILABLE_RETRY_S)
        case ClientDisconnect():
            return HUNG_UP, invalid("the caller disconnected", param=None, code="hung_up"), {}
        case HTTPException():
            phrase = HTTPStatus(error.status_code).phrase
            problem = invalid(str(error.detail), param=None, code=phrase.lower().replace(" ", "_"))
            return error.status_code, problem, dict(error.headers or {})
        case _:
            problem = Problem(message="the server failed; its log has the cause", type="server_error", code="internal")
            return 500, problem, {}


def error_response(request: Request, error: Exception) -> Response:
    """Return the response for a failed request."""
    status, problem, headers = problem_from(error)
    hint = ""
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = ", ".join(_methods_at(request))
        headers = headers | {"Allow": allowed}  # replaces Starlette's header
        hint = f"; allowed: {allowed}"
    if isinstance(error, HTTPException):
        if error.detail == HTTPStatus.NOT_FOUND.phrase and _has_reference(request):
            hint = f"; {REFERENCE_PATH} lists all paths"
        message = f"{request.method} {request.url.path}: {problem.message}{hint}"
        problem = problem.model_copy(update={"message": message})
    # The response to an unexpected exception is sent outside our middleware, which adds these headers otherwise.
    if status == HTTPStatus.INTERNAL_SERVER_ERROR:
        headers = headers | identity_headers(request.scope)
    return problem_response(problem, status=status, headers=headers)


def problem_response(problem: Problem, *, status: int, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with an error body."""
    body = ErrorBody(error=problem).model_dump_json()
    return Response(body, status_code=status, headers=headers, media_type="application/json")


def _methods_at(request: Request) -> list[str]:
    """Return the methods of all routes at the request's path. Starlette names only those of the first route."""
    routes = request.app.router.routes
    scopes = {method: {**request.scope, "method": method} for method in METHODS}
    return [m for m, scope in scopes.items() if any(route.matches(scope)[0] is Match.FULL for route in routes)]


def _has_reference(request: Request) -> bool:
    """Whether the application has a page of all its paths."""
    return any(getattr(route, "path", None) == REFERENCE_PATH for route in request.app.router.routes)


def answer_errors(app: Starlette) -> None:
    """Register `error_response` for all exceptions of an application."""
    for kind in (*FAILURES, ClientDisconnect, HTTPException, Exception):
        app.add_exception_handler(kind, error_response)


def retry_headers(retry_after_s: float) -> dict[str, str]:
    """Return the headers retry-after (whole seconds) and retry-after-ms (milliseconds, for clients that support it)."""
    return {
        "retry-after": str(max(1, math.ceil(retry_after_s))),
        "retry-after-ms": str(math.ceil(retry_after_s * 1000)),
    }

"""Maps every failure of a request to an answer in OpenAI's error format. No traceback leaves the process."""

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
    EngineUnavailable,
    PromptTooLong,
    RecordsUnavailable,
    SandboxBusy,
    SandboxUnavailable,
)
from tirjudge.http.protocol import ErrorBody, Problem, invalid
from tirjudge_web.connection import HUNG_UP
from tirjudge_web.identity import identity_headers

UNAVAILABLE_RETRY_S = 2.0
"""When to ask again after something on our side failed."""


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


class Refused(Exception):
    """The request is at fault.

    Attributes:
        problem: what is wrong with it.
        status: the HTTP status that says so.
        headers: what else the answer says, such as when to ask again.
    """

    def __init__(self, problem: Problem, *, status: int = 400, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(problem.message)
        self.problem = problem
        self.status = status
        self.headers = dict(headers or {})


class QueueFull(Exception):
    """As many wait as may; come back after `retry_after_s`."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ShuttingDown(Exception):
    """The server is about to end, and takes or finishes no more requests.

    Attributes:
        started: whether work on this one may have begun.
    """

    def __init__(self, *, started: bool) -> None:
        super().__init__("the server is shutting down")
        self.started = started


UNAVAILABLE = (EngineUnavailable, CheckpointError, SandboxUnavailable)
"""What does not work on our side; a `CheckpointError` is a remote engine that serves another model now."""

FAILURES = (Refused, QueueFull, ShuttingDown, PromptTooLong, DeadlineExceeded, RecordsUnavailable, *UNAVAILABLE)
"""What can end a request; anything else is a bug of ours."""


def problem_from(error: Exception) -> tuple[int, Problem, dict[str, str]]:
    """The status, the body and the headers that answer for an exception."""
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
        case DeadlineExceeded():
            problem = Problem(message=str(error), type="server_error", code="deadline_exceeded")
            return 504, problem, {}
        case EngineUnavailable() | CheckpointError() | SandboxUnavailable() | RecordsUnavailable():
            part = "records" if isinstance(error, RecordsUnavailable) else "engine"
            part = "sandbox" if isinstance(error, SandboxUnavailable) else part
            problem = Problem(message=str(error), type="server_error", code=f"{part}_unavailable")
            return 503, problem, retry_headers(UNAVAILABLE_RETRY_S)
        case ClientDisconnect():
            return HUNG_UP, invalid("the caller hung up", param=None, code="hung_up"), {}
        case HTTPException():
            phrase = HTTPStatus(error.status_code).phrase
            problem = invalid(str(error.detail), param=None, code=phrase.lower().replace(" ", "_"))
            return error.status_code, problem, dict(error.headers or {})
        case _:
            problem = Problem(message="the server failed; its log has the cause", type="server_error", code="internal")
            return 500, problem, {}


def error_response(request: Request, error: Exception) -> Response:
    """The answer to a request that failed."""
    status, problem, headers = problem_from(error)
    if isinstance(error, HTTPException):
        problem = problem.model_copy(update={"message": f"{request.method} {request.url.path}: {problem.message}"})
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers = headers | {"Allow": ", ".join(_methods_at(request))}  # in place of the one that is there
    # The answer to a bug is sent from outside of our middleware, which would have put these headers on it.
    if status == HTTPStatus.INTERNAL_SERVER_ERROR:
        headers = headers | identity_headers(request.scope)
    return problem_response(problem, status=status, headers=headers)


def problem_response(problem: Problem, *, status: int, headers: Mapping[str, str] | None = None) -> Response:
    """The answer that says what is wrong."""
    body = ErrorBody(error=problem).model_dump_json()
    return Response(body, status_code=status, headers=headers, media_type="application/json")


def _methods_at(request: Request) -> list[str]:
    """What the path of a request takes. Starlette names the methods of its first route alone."""
    routes = request.app.router.routes
    scopes = {method: {**request.scope, "method": method} for method in METHODS}
    return [m for m, scope in scopes.items() if any(route.matches(scope)[0] is Match.FULL for route in routes)]


def answer_errors(app: Starlette) -> None:
    """Let `error_response` answer for everything that `app` raises."""
    for kind in (*FAILURES, ClientDisconnect, HTTPException, Exception):
        app.add_exception_handler(kind, error_response)


def retry_headers(retry_after_s: float) -> dict[str, str]:
    """Both spellings: whole seconds for everybody, milliseconds for clients that look."""
    return {
        "retry-after": str(max(1, math.ceil(retry_after_s))),
        "retry-after-ms": str(math.ceil(retry_after_s * 1000)),
    }

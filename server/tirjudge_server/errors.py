"""Every way in which a request can fail becomes one answer in OpenAI's shape. No traceback ever leaves the process."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from tirjudge.errors import CheckpointError, EngineUnavailable, PromptTooLong, SandboxUnavailable
from tirjudge.protocol import ErrorBody, Problem, invalid
from tirjudge_server.admission import QueueFull, retry_headers
from tirjudge_server.connection import HUNG_UP
from tirjudge_server.identity import identity_headers

UNAVAILABLE_RETRY_S = 2.0
"""When to ask again after the engine or the sandbox failed."""


class Refused(Exception):
    """The request is at fault.

    Attributes:
        problem: what is wrong with it.
        status: the HTTP status that says so.
    """

    def __init__(self, problem: Problem, *, status: int = 400) -> None:
        super().__init__(problem.message)
        self.problem = problem
        self.status = status


class ShuttingDown(Exception):
    """The server is about to end, and takes or finishes no more requests."""


UNAVAILABLE = (EngineUnavailable, CheckpointError, SandboxUnavailable)
"""What does not work on our side of a judgment; a `CheckpointError` is a remote engine that serves another model now."""

JUDGING_FAILURES = (Refused, QueueFull, ShuttingDown, PromptTooLong, *UNAVAILABLE)
"""What can end a judgment; anything else is a bug of ours."""


def problem_from(error: Exception) -> tuple[int, Problem, dict[str, str]]:
    """The status, the body and the headers that answer for an exception."""
    match error:
        case Refused():
            return error.status, error.problem, {}
        case QueueFull():
            problem = Problem(message=str(error), type="rate_limit_error", code="queue_full")
            return 429, problem, retry_headers(error.retry_after_s)
        case ShuttingDown():
            problem = Problem(message="the server is shutting down", type="server_error", code="shutting_down")
            return 503, problem, retry_headers(UNAVAILABLE_RETRY_S)
        case PromptTooLong():
            return 400, invalid(f"prompt: {error}", param="prompt", code="context_length_exceeded"), {}
        case EngineUnavailable() | CheckpointError() | SandboxUnavailable():
            code = "sandbox_unavailable" if isinstance(error, SandboxUnavailable) else "engine_unavailable"
            problem = Problem(message=str(error), type="server_error", code=code)
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
    # The answer to a bug is sent from outside of our middleware, which would have put these headers on it.
    if status == HTTPStatus.INTERNAL_SERVER_ERROR:
        headers = headers | identity_headers(request.scope)
    body = ErrorBody(error=problem).model_dump_json()
    return Response(body, status_code=status, headers=headers, media_type="application/json")


def answer_errors(app: FastAPI) -> None:
    """Let `error_response` answer for everything that `app` raises."""
    for kind in (*JUDGING_FAILURES, ClientDisconnect, HTTPException, Exception):
        app.add_exception_handler(kind, error_response)

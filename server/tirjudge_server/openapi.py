"""Requests, streams and errors in the OpenAPI schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from tirjudge.http.protocol import JUDGE_PATH, ErrorBody
from tirjudge.types import JudgeRequest
from tirjudge_web.openapi import describe_requests, json_content

ERROR_STATUSES = {
    "400": "The request is wrong; `param` names the field.",
    "401": "It came with no key, or with a wrong one.",
    "403": "Its key has no scope for this.",
    "404": "There is no such model.",
    "409": "The judgment that answered its idempotency key was erased.",
    "413": "The body is too large.",
    "422": "Its idempotency key came with another request before.",
    "429": "The queue is full, or a limit of the key is reached; `retry-after` says when to ask again.",
    "503": "The engine, the sandbox or the records failed, or the server is shutting down.",
    "504": "The time for it was up before there was anything to judge by.",
}
"""Of a request that is judged."""

_LOOKING = {status: ERROR_STATUSES[status] for status in ("400", "401", "403", "429", "503")} | {
    "404": "There is no such thing, or it belongs to another caller."
}
"""Of a request that is not."""

_NO_KEY = frozenset({"/health", "/ready", "/metrics"})
"""Paths that need no key; their routes declare how they answer."""

_EVENT = {
    "type": "object",
    "description": "One event of the stream.",
    "properties": {
        "event": {"type": "string"},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
    "required": ["data"],
}


def describe(app: FastAPI, requests: Mapping[str, type[BaseModel]], *, streams: Iterable[str] = ()) -> None:
    """Complete what FastAPI generates.

    Args:
        app: has the paths.
        requests: path -> what is posted there, besides `JUDGE_PATH`.
        streams: paths that can answer with a stream, besides `JUDGE_PATH`.
    """
    describe_requests(app, {JUDGE_PATH: JudgeRequest, **requests}, errors=ERROR_STATUSES)
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        schema = generate()
        for path in (JUDGE_PATH, *streams):
            answer = schema["paths"][path]["post"]["responses"]["200"]
            answer["content"]["text/event-stream"] = {"schema": _EVENT}
        for path, operations in schema["paths"].items():
            for operation in operations.values():
                _describe_errors(operation["responses"], guarded=path not in _NO_KEY)
        for name in ("HTTPValidationError", "ValidationError"):
            schema["components"]["schemas"].pop(name, None)
        return schema

    app.openapi = openapi


def _describe_errors(responses: dict[str, Any], *, guarded: bool) -> None:
    """FastAPI's own 422 goes, since all that it could refuse is a string; what answers instead comes."""
    if "HTTPValidationError" in str(responses.get("422")):
        del responses["422"]
    for status, description in _LOOKING.items() if guarded else ():
        responses.setdefault(status, {"description": description, "content": json_content(ErrorBody)})


def error_responses(statuses: Mapping[int | str, str]) -> dict[int | str, dict[str, Any]]:
    """What a route declares as `responses`: status -> what it means, there alone."""
    return {status: {"description": meaning, "model": ErrorBody} for status, meaning in statuses.items()}

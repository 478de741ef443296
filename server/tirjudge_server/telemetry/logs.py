"""Log lines as JSON, with fields that identify the request and the judgment.

tirjudge never logs keys, prompts, responses or texts of the model.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime

from starlette.types import Scope

from tirjudge.types import JudgeRequest, Judgment
from tirjudge_server.call import Call
from tirjudge_server.telemetry.outcomes import code_of, status_of
from tirjudge_server.telemetry.requests import AnsweredRequest
from tirjudge_web.tracebacks import frames_of

logger = logging.getLogger(__name__)

FIELDS = {
    "request_id": "request id, as in the response header `x-request-id`",
    "judgment_id": "judgment id, as in the response header `x-judgment-id`",
    "caller": "name of the API key; absent without a key",
    "dialect": "protocol of the request",
    "mode": "mode of the judgment",
    "status": "outcome of the judgment, as in `tirjudge_judgments_total`",
    "code": "error code of a failed judgment, as in `tirjudge_failures_total`",
    "method": "HTTP method",
    "route": "path template of the route",
    "http_status": "HTTP status of the response",
    "seconds": "duration of a judgment after its wait in the queue, or of a request until the last byte of its response",
}
"""Optional fields of a line. Every line has `time`, `level`, `logger` and `message`. A line with an exception also has
`traceback`."""

_bound: ContextVar[Mapping[str, str]] = ContextVar("tirjudge.log_fields", default={})  # noqa: B039


@contextmanager
def _binding(**fields: str | None) -> Iterator[None]:
    """Add fields to all lines that are logged in the block, and in tasks that are started there."""
    known = {name: value for name, value in fields.items() if value is not None}
    token = _bound.set({**_bound.get(), **known})
    try:
        yield
    finally:
        _bound.reset(token)


def around_request(scope: Scope):
    """Add the request id to all lines that are logged during a request."""
    return _binding(request_id=scope.get("tirjudge.request_id"))


def around_judgment(request: JudgeRequest, call: Call):
    """Add the ids of the request and the judgment to all lines that are logged during a judgment."""
    return _binding(
        request_id=call.request_id,
        judgment_id=call.judgment_id,
        caller=call.caller,
        dialect=call.dialect,
        mode=request.mode.value,
    )


def on_request(answered: AnsweredRequest) -> None:
    """Log one line per request: at `debug` for health checks and scrapes, at `info` for others."""
    level = logging.DEBUG if answered.is_quiet else logging.INFO
    if logger.isEnabledFor(level):
        fields = {
            "method": answered.method,
            "route": answered.route,
            "http_status": answered.status,
            "seconds": round(answered.seconds, 6),
            "caller": answered.caller,
            "judgment_id": answered.judgment_id,
        }
        line = f"{answered.method} {answered.route} {answered.status} in {answered.seconds:.2f} s"
        logger.log(level, line, extra={"tirjudge": fields})


def on_end(request: JudgeRequest, call: Call, outcome: Judgment | BaseException) -> None:
    """Log one line per judgment, at `info`."""
    if not logger.isEnabledFor(logging.INFO):
        return
    status = status_of(outcome)
    if isinstance(outcome, Judgment):
        seconds = outcome.timing.total_s
        line = f"{outcome.id} {request.mode} {status} in {seconds:.2f} s"
        fields = {"judgment_id": outcome.id, "status": status, "seconds": round(seconds, 6)}
    else:
        line = f"{call.judgment_id} {request.mode} {status}"
        fields = {"judgment_id": call.judgment_id, "status": status, "code": code_of(outcome)}
    logger.info(line, extra={"tirjudge": fields})


class JsonLines(logging.Formatter):
    """Formats each log record as a JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line. JSON escapes line breaks in the message."""
        own: Mapping[str, object] = getattr(record, "tirjudge", {})
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_bound.get(),
            **{name: value for name, value in own.items() if value is not None},
        }
        if record.exc_info and record.exc_info[1] is not None:
            fields["traceback"] = frames_of(record.exc_info[1])
        return json.dumps(fields, ensure_ascii=False, default=str)

"""Log lines as JSON, with the fields that every line of a request or a judgment carries.

A key, a prompt, a response or what a model wrote is in none of these fields, and nothing of ours logs one.
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
    "request_id": "as in the answer's `x-request-id`",
    "judgment_id": "as in `x-judgment-id`",
    "caller": "name of the key; absent without one",
    "dialect": "the protocol of the request",
    "mode": "of the judgment",
    "status": "how a judgment ended, as in `tirjudge_judgments_total`",
    "code": "why it was not made, as in `tirjudge_failures_total`",
    "method": "of a request",
    "route": "the template of its path",
    "http_status": "of its answer",
    "seconds": "how long a judgment took after its wait in the queue, or a request until the last byte of its answer",
}
"""What a line may carry beside its own: `time`, `level`, `logger`, `message`, and `traceback` where there is one."""

_bound: ContextVar[Mapping[str, str]] = ContextVar("tirjudge.log_fields", default={})  # noqa: B039


@contextmanager
def _binding(**fields: str | None) -> Iterator[None]:
    """What is logged inside of the block, and in tasks begun there, carries these fields."""
    known = {name: value for name, value in fields.items() if value is not None}
    token = _bound.set({**_bound.get(), **known})
    try:
        yield
    finally:
        _bound.reset(token)


def around_request(scope: Scope):
    return _binding(request_id=scope.get("tirjudge.request_id"))


def around_judgment(request: JudgeRequest, call: Call):
    return _binding(
        request_id=call.request_id,
        judgment_id=call.judgment_id,
        caller=call.caller,
        dialect=call.dialect,
        mode=request.mode.value,
    )


def on_request(answered: AnsweredRequest) -> None:
    """One line for each request, at `info`; those of load balancers at `debug`."""
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
    """One line for each judgment, at `info`."""
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
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Never more than one line, whatever the message holds."""
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

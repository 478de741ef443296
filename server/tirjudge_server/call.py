"""One call: the caller, the priority and the deadline of a request, and how to trace it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from enum import IntEnum

from starlette.requests import Request

from tirjudge.http.protocol import invalid, shown
from tirjudge_web.errors import Refused

DEADLINE_HEADER = "x-judge-deadline-ms"
IDEMPOTENCY_HEADER = "idempotency-key"
MAX_KEY_CHARS = 255
MAX_DEADLINE_DIGITS = 9
"""Of a header that names a deadline: eleven days."""


class Priority(IntEnum):
    """Who goes first when judgments wait: the lowest number."""

    INTERACTIVE = 0
    REWARD = 1
    BATCH = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Everything about a request that does not change its judgment."""

    judgment_id: str = field(default_factory=lambda: f"jdg_{uuid.uuid4().hex}")
    dialect: str = "judge"
    """Which endpoint it came through."""
    caller: str | None = None
    """Name of the key it came with; None: there was none."""
    priority: Priority = Priority.INTERACTIVE
    deadline_s: float | None = None
    """Seconds from its arrival in which it must be answered; None: it can wait."""
    idempotency_key: str | None = None
    """The caller's own name for it; None: it is known by its content."""
    request_id: str | None = None
    traceparent: str | None = None
    """W3C trace context, passed on to the engine."""


def call_of(
    request: Request, *, dialect: str, priority: Priority = Priority.INTERACTIVE, deadline_s: float | None = None
) -> Call:
    """The call that a request is, by its headers.

    Args:
        request: as it came.
        dialect: of the endpoint.
        priority: of the endpoint.
        deadline_s: of the endpoint, used when the caller names none.

    Raises:
        Refused: a header cannot be understood.
    """
    asked_s = _deadline_s(request.headers.get(DEADLINE_HEADER))
    key = request.headers.get(IDEMPOTENCY_HEADER)
    if key is not None and not 0 < len(key) <= MAX_KEY_CHARS:
        message = f"{IDEMPOTENCY_HEADER}: {len(key)} characters given; use 1 to {MAX_KEY_CHARS}"
        raise Refused(invalid(message, param=IDEMPOTENCY_HEADER, code="invalid_value"))
    return Call(
        dialect=dialect,
        caller=getattr(request.state, "caller", None),
        priority=priority,
        deadline_s=deadline_s if asked_s is None else asked_s,
        idempotency_key=key,
        request_id=request.scope.get("tirjudge.request_id"),
        traceparent=request.headers.get("traceparent"),
    )


def _deadline_s(header: str | None) -> float | None:
    if header is None:
        return None
    if not (header.isascii() and header.isdecimal() and len(header) <= MAX_DEADLINE_DIGITS and int(header)):
        message = f"{DEADLINE_HEADER}: {shown(header)} given; use a whole number of milliseconds"
        raise Refused(invalid(message, param=DEADLINE_HEADER, code="invalid_value"))
    return int(header) / 1000

"""One call: the caller, priority, deadline and trace context of a request."""

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
"""Maximum number of digits in the deadline header: about eleven days in milliseconds."""


class Priority(IntEnum):
    """Priority of a request in the queue. Lower numbers run first."""

    INTERACTIVE = 0
    REWARD = 1
    BATCH = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The properties of a request that do not change its judgment."""

    judgment_id: str = field(default_factory=lambda: f"jdg_{uuid.uuid4().hex}")
    """Id of the judgment that is made for this call."""
    dialect: str = "judge"
    """Name of the endpoint that received the request."""
    caller: str | None = None
    """Name of the API key; None: the request had no key."""
    priority: Priority = Priority.INTERACTIVE
    """Priority in the queue."""
    deadline_s: float | None = None
    """Seconds from arrival within which the response is due; None: no deadline from the caller."""
    idempotency_key: str | None = None
    """Idempotency key from the caller; None: the request is identified by its content."""
    request_id: str | None = None
    """Id of the HTTP request, for logs; None: unknown."""
    traceparent: str | None = None
    """W3C trace context, passed on to the engine; None: the request had none."""


def call_of(
    request: Request, *, dialect: str, priority: Priority = Priority.INTERACTIVE, deadline_s: float | None = None
) -> Call:
    """Return the call of an HTTP request, from its headers.

    Args:
        request: the HTTP request.
        dialect: name of the endpoint.
        priority: priority of the endpoint's requests.
        deadline_s: deadline in seconds if the request has no deadline header; None: no deadline.

    Raises:
        Refused: 400, a header is malformed.
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

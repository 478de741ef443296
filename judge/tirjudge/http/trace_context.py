"""Propagate the trace context of a judgment to engine requests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")

_carried: ContextVar[str | None] = ContextVar("tirjudge.traceparent", default=None)


@contextmanager
def carrying(traceparent: str | None) -> Iterator[None]:
    """Set the parent span of engine requests in the block and in tasks started inside it.

    Args:
        traceparent: W3C `traceparent` header. None or an invalid value: keep the current one.
    """
    if traceparent is None or not _TRACEPARENT.fullmatch(traceparent):
        yield
        return
    token = _carried.set(traceparent)
    try:
        yield
    finally:
        _carried.reset(token)


def trace_headers() -> dict[str, str]:
    """Return the trace headers for an engine request; empty without a trace."""
    traceparent = _carried.get()
    return {} if traceparent is None else {"traceparent": traceparent}

"""Which trace a judgment belongs to, for the engine that is asked on its behalf."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")

_carried: ContextVar[str | None] = ContextVar("tirjudge.traceparent", default=None)


@contextmanager
def carrying(traceparent: str | None) -> Iterator[None]:
    """What is asked of an engine inside of the block, and in tasks begun there, belongs to that span.

    Args:
        traceparent: as in W3C's header; None, or what cannot be one: what was carried outside.
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
    """The headers that say so; none if there is no trace."""
    traceparent = _carried.get()
    return {} if traceparent is None else {"traceparent": traceparent}

"""Callback for retry pauses of HTTP requests.

Clients retry on their own after a 429, a 503 or a connection error. Code that controls the concurrency of requests
needs to learn about these pauses, even if they happen several layers below it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

CONNECT_RETRY_S = 2.0
"""Default number of seconds during which a refused connection is retried. This time is long enough for a quick
restart of the server, and short enough to report a stopped server or a wrong URL soon."""

_listener: ContextVar[Callable[[float], None] | None] = ContextVar("tirjudge.http.retry_events", default=None)


@contextmanager
def on_retry(listener: Callable[[float], None]) -> Iterator[None]:
    """Call `listener` with the length of each retry pause, in seconds, in the block and in tasks started inside it."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell_of_pause(pause_s: float) -> None:
    """Report a retry pause, in seconds, to the current listener."""
    listener = _listener.get()
    if listener is not None:
        listener(pause_s)

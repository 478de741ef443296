"""Who is told when a request to a server or an engine has to wait before it is sent again.

A client that is sent away (429, 503) or finds nobody waits by itself. Whoever decides how much is asked at a time
must know of it all the same, however deep below it the waiting is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

CONNECT_RETRY_S = 2.0
"""Default number of seconds during which a refused connection is retried. That covers a quick restart of the server, and
reports a stopped server or a wrong URL soon."""

_listener: ContextVar[Callable[[float], None] | None] = ContextVar("tirjudge.http.retry_events", default=None)


@contextmanager
def on_retry(listener: Callable[[float], None]) -> Iterator[None]:
    """`listener` is told of each pause, in seconds, that is made inside of the block and in tasks begun there."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell_of_pause(pause_s: float) -> None:
    """A request waits so long before it is sent again."""
    listener = _listener.get()
    if listener is not None:
        listener(pause_s)

"""Context of a request for the engine: its priority class, and the salt that separates the prefix caches of callers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

MAX_TURNS = 64
"""Number of turns with distinct engine priorities. All later turns have the priority of the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """Caller information for the engine."""

    urgency: int = 0
    """Priority class. Lower values are served first."""
    cache_salt: str | None = None
    """Callers with the same salt share cached prefixes. None: shared by all callers without a salt."""

    def priority(self, *, turn: int) -> int:
        """Return the engine priority of one turn; lower values are served first.

        Within a class, rollouts in progress go before new ones, because they hold cache. A more urgent class always
        goes first.

        >>> [context.priority(turn=turn) for context in (RequestContext(urgency=1), RequestContext()) for turn in (0, 2)]
        [64, 62, 0, -2]
        """
        return self.urgency * MAX_TURNS - min(turn, MAX_TURNS - 1)


DEFAULT_CONTEXT = RequestContext()
"""Context of requests outside any `coming_from` block."""

_current: ContextVar[RequestContext] = ContextVar("tirjudge.request_context", default=DEFAULT_CONTEXT)


def origin() -> RequestContext:
    """Return the context of the current request."""
    return _current.get()


@contextmanager
def coming_from(caller: str | None, *, urgency: int = 0) -> Iterator[None]:
    """Set the request context of the block and of all tasks started inside it.

    Args:
        caller: name of the caller. None: unknown; the cache is shared with other unknown callers.
        urgency: priority class, 0 or more. Lower values are served first.
    """
    salt = None if caller is None else cache_salt(caller)
    token = _current.set(RequestContext(urgency=urgency, cache_salt=salt))
    try:
        yield
    finally:
        _current.reset(token)


def cache_salt(caller: str) -> str:
    """Return the cache salt of a caller: a hash of the name, equal on every server, that does not reveal the name.

    >>> len(cache_salt("reading-group"))
    64
    """
    return hashlib.sha256(b"tirjudge cache\0" + caller.encode()).hexdigest()

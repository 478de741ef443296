"""For whom something is judged, for the engine that is asked on its behalf: how urgent it is, and whose cache it may use."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

MAX_TURNS = 64
"""Turns of a rollout that an engine's priority tells apart; those after are all the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """What an engine may know of who asks."""

    urgency: int = 0
    """Class of the call; the lowest goes first."""
    cache_salt: str | None = None
    """Computed prefixes are shared by those who have the same one. None: by everybody who has none."""

    def priority(self, *, turn: int) -> int:
        """Of one turn: the lowest goes first. A rollout that has begun goes before those that are to begin, since it holds
        cache, and never before a more urgent class.

        >>> [context.priority(turn=turn) for context in (RequestContext(urgency=1), RequestContext()) for turn in (0, 2)]
        [64, 62, 0, -2]
        """
        return self.urgency * MAX_TURNS - min(turn, MAX_TURNS - 1)


NOBODY = RequestContext()
"""Whoever asks without saying so."""

_current: ContextVar[RequestContext] = ContextVar("tirjudge.request_context", default=NOBODY)


def origin() -> RequestContext:
    """Of what is asked now."""
    return _current.get()


@contextmanager
def coming_from(caller: str | None, *, urgency: int = 0) -> Iterator[None]:
    """What is asked of an engine inside of the block, and in tasks begun there, is asked for that caller.

    Args:
        caller: name of whoever asks; None: nobody knows, and the cache is shared with others like that.
        urgency: class of the call, 0 or more; the lowest goes first.
    """
    salt = None if caller is None else cache_salt(caller)
    token = _current.set(RequestContext(urgency=urgency, cache_salt=salt))
    try:
        yield
    finally:
        _current.reset(token)


def cache_salt(caller: str) -> str:
    """The same for the same name, on every server; the name itself cannot be read from it.

    >>> len(cache_salt("reading-group"))
    64
    """
    return hashlib.sha256(b"tirjudge cache\0" + caller.encode()).hexdigest()

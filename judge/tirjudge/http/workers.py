"""One of several services that do the same work, as its client sees it: who gets work, who gets none, and since when again.

A worker that failed gets nothing until a look at it finds no problem. It is looked at after half a second, then after twice
that, and so on up to half a minute; after half a second always while somebody hurries, because no worker is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import urlsplit

from tirjudge.errors import TirjudgeError

CHECK_S = (0.5, 30.0)
"""Between two looks at a worker that is left out: at first, and at most."""

Look = Callable[[], Awaitable[str | None]]
"""Finds out why a worker cannot work; None if it can."""


@dataclass(slots=True, eq=False)
class Worker:
    """One service."""

    url: str
    num_running: int = 0
    """Pieces of work of ours that it has."""
    problem: str | None = None
    """Why it gets no work; None: it gets some."""
    last_used: float = 0.0
    """When it last got some, on the monotonic clock."""
    check: asyncio.Task[None] | None = field(default=None, repr=False)
    hurried: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    """Set where no worker is left: the next look does not wait."""

    def leave_out(self, problem: str, *, look: Look) -> None:
        """No more work for it until `look` finds no problem."""
        self.problem = problem
        if self.check is None or self.check.done():
            # Not in the context of the request that failed, which has a priority and a caller.
            self.check = asyncio.get_running_loop().create_task(self._check(look), context=Context())

    async def stop_checking(self) -> None:
        if self.check is not None:
            self.check.cancel()
            await asyncio.gather(self.check, return_exceptions=True)

    async def _check(self, look: Look) -> None:
        shortest_s, longest_s = CHECK_S
        pause_s = shortest_s
        while self.problem is not None:
            await asyncio.sleep(shortest_s)
            with suppress(TimeoutError):
                await asyncio.wait_for(self.hurried.wait(), pause_s - shortest_s)
            self.hurried.clear()
            pause_s = min(2 * pause_s, longest_s)
            self.problem = await look()


class BadUrl(TirjudgeError, ValueError):
    """What was given is no URL of a service."""


def service_url(given: str) -> str:
    """The URL of a service, without a slash at its end.

    Raises:
        BadUrl: it is none, or a name and a password are in it, which would be shown wherever the URL is.
    """
    try:
        parts = urlsplit(given)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url, parts = False, None
    # urlsplit() drops tabs and line ends, and a client then stumbles over them.
    is_one_word = given.isprintable() and " " not in given
    if parts is None or not is_url or not is_one_word or parts.query or parts.fragment:
        raise BadUrl(f"{given!r} given; a URL such as http://127.0.0.1:8000 would do")
    if "@" in parts.netloc:
        raise BadUrl(f"a URL of {parts.hostname} with a password in it given; a key in the environment would do")
    return given.rstrip("/")


def is_this_machine(url: str) -> bool:
    """Whether a URL is one of this machine, which no proxy stands before."""
    return urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost")


W = TypeVar("W", bound=Worker)


def least_busy(workers: Iterable[W]) -> W:
    """The one that has the least work; of several, the one that got none for the longest."""
    return min(workers, key=lambda worker: (worker.num_running, worker.last_used))

"""Health checks for one of several equivalent services (workers) behind a client.

A failed worker gets no work until a health check succeeds. Checks start after 0.5 s, and the interval doubles up to 30
s. While no worker is left, `hurried` shortens the interval to 0.5 s.
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
"""First and maximum interval between two health checks of a failed worker, in seconds."""

Look = Callable[[], Awaitable[str | None]]
"""Health check: returns why a worker cannot be used, or None if it can."""


@dataclass(slots=True, eq=False)
class Worker:
    """One service."""

    url: str
    """URL of the service."""
    num_running: int = 0
    """Number of requests of this client in flight."""
    problem: str | None = None
    """Why the worker gets no work. None: it is in use."""
    last_used: float = 0.0
    """When the worker last got work, on the monotonic clock."""
    check: asyncio.Task[None] | None = field(default=None, repr=False)
    """Task of the health checks. None: not started."""
    hurried: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    """Event that makes the next health check start early. It is set when no worker is left."""

    def leave_out(self, problem: str, *, look: Look) -> None:
        """Exclude the worker until the health check `look` succeeds."""
        self.problem = problem
        if self.check is None or self.check.done():
            # Use an empty context, because the context of the failed request has a priority and a caller.
            self.check = asyncio.get_running_loop().create_task(self._check(look), context=Context())

    async def stop_checking(self) -> None:
        """Cancel the health checks and wait until they have ended."""
        if self.check is not None:
            self.check.cancel()
            await asyncio.gather(self.check, return_exceptions=True)

    async def _check(self, look: Look) -> None:
        shortest_s, longest_s = CHECK_S
        pause_s = shortest_s
        while self.problem is not None:
            await asyncio.sleep(shortest_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s - shortest_s):
                    await self.hurried.wait()
            self.hurried.clear()
            pause_s = min(2 * pause_s, longest_s)
            self.problem = await look()


class BadUrl(TirjudgeError, ValueError):
    """The given text is not a URL of a service."""


def service_url(given: str) -> str:
    """Validate the URL of a service and return it without a trailing slash.

    Raises:
        BadUrl: not a URL, or a URL with credentials, which would be visible wherever the URL is shown.
    """
    try:
        parts = urlsplit(given)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url, parts = False, None
    # urlsplit() drops tabs and line ends, but HTTP clients reject them.
    is_one_word = given.isprintable() and " " not in given
    if parts is None or not is_url or not is_one_word or parts.query or parts.fragment:
        raise BadUrl(f"{given!r} given; give a URL such as http://127.0.0.1:8000")
    if "@" in parts.netloc:
        raise BadUrl(f"a URL of {parts.hostname} with credentials given; give a key in the environment instead")
    return given.rstrip("/")


def is_this_machine(url: str) -> bool:
    """Whether a URL has a loopback host, which is never behind a proxy."""
    return urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost")


W = TypeVar("W", bound=Worker)


def least_busy(workers: Iterable[W]) -> W:
    """Return the worker with the fewest running requests; among equals, the least recently used one."""
    return min(workers, key=lambda worker: (worker.num_running, worker.last_used))

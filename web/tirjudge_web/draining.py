"""Draining at shutdown: refuse new requests, and give running ones a grace period."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tirjudge_web.errors import ShuttingDown


class Draining:
    """State of a server's shutdown. Initially, the server is not shutting down."""

    def __init__(self) -> None:
        self._deadlines: set[asyncio.Timeout] = set()
        self._ends_at: float | None = None  # event-loop time; None: not shutting down

    def begin(self, *, grace_s: float) -> None:
        """Start the shutdown: refuse new requests, and abort running ones after `grace_s` seconds."""
        self._ends_at = asyncio.get_running_loop().time() + grace_s
        for deadline in self._deadlines:
            deadline.reschedule(self._ends_at)

    @property
    def has_begun(self) -> bool:
        """Whether the server is shutting down."""
        return self._ends_at is not None

    def check(self) -> None:
        """Check that new requests are accepted.

        Raises:
            ShuttingDown: the server is shutting down.
        """
        if self.has_begun:
            raise ShuttingDown(started=False)

    @asynccontextmanager
    async def limit(self) -> AsyncIterator[None]:
        """Context manager that aborts its body when the grace period of a shutdown ends.

        Raises:
            ShuttingDown: the body was aborted.
        """
        deadline = asyncio.timeout_at(self._ends_at)
        self._deadlines.add(deadline)
        try:
            async with deadline:
                yield
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise ShuttingDown(started=True) from error
        finally:
            self._deadlines.discard(deadline)

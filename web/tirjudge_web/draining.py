"""Draining at shutdown: no new requests are taken, and running ones have a grace period."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tirjudge_web.errors import ShuttingDown


class Draining:
    """The end of one server, which has not begun yet."""

    def __init__(self) -> None:
        self._deadlines: set[asyncio.Timeout] = set()
        self._ends_at: float | None = None  # on the loop's clock, once it is shutting down

    def begin(self, *, grace_s: float) -> None:
        """Take no more requests, and end those under way after `grace_s`."""
        self._ends_at = asyncio.get_running_loop().time() + grace_s
        for deadline in self._deadlines:
            deadline.reschedule(self._ends_at)

    @property
    def has_begun(self) -> bool:
        return self._ends_at is not None

    def check(self) -> None:
        """Whether a request that comes now is taken.

        Raises:
            ShuttingDown: it is not.
        """
        if self.has_begun:
            raise ShuttingDown(started=False)

    @asynccontextmanager
    async def limit(self) -> AsyncIterator[None]:
        """Cuts off what is done inside when a server that is shutting down waits no longer.

        Raises:
            ShuttingDown: it was cut off.
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

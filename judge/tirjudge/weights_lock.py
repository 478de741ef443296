"""Shared/exclusive lock around the weights: judgments hold it shared, a weight swap holds it exclusively.

To swap weights, close the lock: running judgments are drained, new judgments wait, then the weights are replaced. An
engine alone could only swap between two turns of a running rollout. The lock covers whole judgments, so that every
judgment uses one version of the weights.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class WeightsLock:
    """Shared/exclusive lock for the tasks of one event loop.

    Args:
        version: version of the weights. None: not known.

    Attributes:
        version: current version of the weights. Only the task that holds the lock exclusively may change it.
        num_inside: number of shared holders.
    """

    def __init__(self, *, version: str | None = None) -> None:
        self.version = version
        self.num_inside = 0
        self._reopened: asyncio.Event | None = None
        """Set when the lock reopens. None: the lock is open."""
        self._is_empty = asyncio.Event()

    @asynccontextmanager
    async def enter(self) -> AsyncIterator[str | None]:
        """Hold the lock shared until the end of the block, and yield the version of the weights.

        The lock is not reentrant: entering it twice in one task deadlocks as soon as another task closes it.
        """
        await self._wait_until_open()
        self.num_inside += 1
        try:
            yield self.version
        finally:
            self.num_inside -= 1
            if not self.num_inside:
                self._is_empty.set()

    @asynccontextmanager
    async def closed(self) -> AsyncIterator[None]:
        """Hold the lock exclusively until the end of the block: wait for all shared holders and block new ones."""
        await self._wait_until_open()
        self._reopened = reopened = asyncio.Event()
        try:
            self._is_empty.clear()
            if self.num_inside:
                await self._is_empty.wait()
            yield
        finally:
            self._reopened = None
            reopened.set()

    async def _wait_until_open(self) -> None:
        while self._reopened is not None:
            await self._reopened.wait()

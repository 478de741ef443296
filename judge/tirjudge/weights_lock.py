"""Judgments go in and out; to exchange the weights, the gate is closed: those inside end, those that come wait, nobody fails.

An engine changes its weights between two turns of whoever is in the middle of a rollout. That is why the gate stands around
whole judgments, above the engine: what is inside was begun with the weights of `version`, and ends with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class WeightsLock:
    """Of one event loop at a time.

    Args:
        version: of the weights behind it.

    Attributes:
        version: as above; None: it is not known. Changed by whoever has closed the gate.
        num_inside: how many have entered and not left.
    """

    def __init__(self, *, version: str | None = None) -> None:
        self.version = version
        self.num_inside = 0
        self._opens: asyncio.Event | None = None
        """None: it is open."""
        self._is_empty = asyncio.Event()

    @asynccontextmanager
    async def enter(self) -> AsyncIterator[str | None]:
        """Inside until the end of the block, which is given the version that holds for all of it. Whoever is inside must not
        enter again: it would wait for itself once the gate closes."""
        await self._opened()
        self.num_inside += 1
        try:
            yield self.version
        finally:
            self.num_inside -= 1
            if not self.num_inside:
                self._is_empty.set()

    @asynccontextmanager
    async def closed(self) -> AsyncIterator[None]:
        """Nobody is inside until the end of the block; one after the other, where several want that."""
        await self._opened()
        self._opens = opens = asyncio.Event()
        try:
            self._is_empty.clear()
            if self.num_inside:
                await self._is_empty.wait()
            yield
        finally:
            self._opens = None
            opens.set()

    async def _opened(self) -> None:
        while self._opens is not None:
            await self._opens.wait()

"""Who gets the next free slot: whoever has waited longest."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from tirjudge.errors import SandboxUnavailable
from tirjudge_sandbox.fork_server import Slot


class SlotQueue:
    """Hands a slot that comes back straight to the first in line. (asyncio.Queue lets a busy caller overtake.)"""

    def __init__(self, slots: Iterable[Slot]) -> None:
        self._idle = list(slots)
        self._num_slots = len(self._idle)
        self._waiting: deque[asyncio.Future[Slot]] = deque()
        self._all_back: asyncio.Future[None] | None = None
        self.is_closed = False

    @property
    def num_idle(self) -> int:
        return len(self._idle)

    @property
    def num_waiting(self) -> int:
        return sum(not future.done() for future in self._waiting)

    async def take(self) -> Slot:
        """Raises SandboxUnavailable when the queue is closed, now or while waiting."""
        if self.is_closed:
            raise SandboxUnavailable("the sandbox pool is closed")
        if self._idle:
            return self._idle.pop()
        future: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self.give_back(future.result())
            raise

    def give_back(self, slot: Slot) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(slot)
                return
        self._idle.append(slot)
        if self._all_back is not None and len(self._idle) == self._num_slots and not self._all_back.done():
            self._all_back.set_result(None)

    def close(self) -> None:
        """From now on nobody gets a slot."""
        self.is_closed = True
        for future in self._waiting:
            if not future.done():
                future.set_exception(SandboxUnavailable("the sandbox pool was closed"))
        self._waiting.clear()

    async def all_back(self) -> None:
        if len(self._idle) < self._num_slots:
            self._all_back = asyncio.get_running_loop().create_future()
            await self._all_back

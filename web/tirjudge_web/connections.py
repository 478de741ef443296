"""The open connections of one server: makes room for new ones, and ends those that make no progress."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any, Protocol

from tirjudge_web.limits import ConnectionLimits, connections_allowed

SWEEP_S = 0.2
"""How often connections are checked."""


class Connection(Protocol):
    """What `HttpConnection` offers to the server."""

    def shed(self) -> None:
        """End it at once, for another one."""
        ...

    def check(self, now: float) -> None:
        """End it if its time is up."""
        ...


class Connections:
    """
    Args:
        limits: of each connection, and of their number.
        opened: takes in those that are open, from being accepted to being closed.

    Raises:
        TooManyConnections: see `connections_allowed`.
    """

    def __init__(self, limits: ConnectionLimits, *, opened: set[Any]) -> None:
        self.limits = limits
        self.max_open = connections_allowed(limits.max_connections)
        self.max_busy = max(1, self.max_open - max(1, self.max_open // 8))
        """Connections with a request under way; the rest is left to callers who ask how the server is."""
        self.open: set[Connection] = opened
        self.clock = 0.0
        """Seconds in which the event loop was free to read. A loop that was held up is no fault of the callers."""
        self._waiting: OrderedDict[Connection, None] = OrderedDict()

    @property
    def num_busy(self) -> int:
        """Connections that may not be shed, because a request of theirs is under way."""
        return len(self.open) - len(self._waiting)

    def add(self, connection: Connection) -> None:
        """It was accepted, and waits for its first request."""
        self.open.add(connection)
        self.await_caller(connection)

    def remove(self, connection: Connection) -> None:
        self.open.discard(connection)
        self._waiting.pop(connection, None)

    def await_caller(self, connection: Connection) -> None:
        """From now on it waits for its caller, and is shed after those that do so already."""
        self._waiting[connection] = None
        self._waiting.move_to_end(connection)

    def set_busy(self, connection: Connection) -> None:
        """It has a request under way."""
        self._waiting.pop(connection, None)

    def make_room(self) -> bool:
        """Whether one more may be opened; where all places are taken, the one that waits longest is shed."""
        if len(self.open) < self.max_open:
            return True
        return self.shed()

    def shed(self) -> bool:
        """End the connection that waits longest for its caller; False: none does."""
        longest = next(iter(self._waiting), None)
        if longest is None:
            return False
        longest.shed()
        self.remove(longest)
        return True

    async def sweep(self) -> None:
        """Check all connections, again and again, until it is cancelled."""
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            await asyncio.sleep(SWEEP_S)
            now = loop.time()
            self.clock += min(now - last, 2 * SWEEP_S)
            last = now
            for connection in tuple(self.open):
                connection.check(self.clock)

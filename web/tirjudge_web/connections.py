"""The open connections of one server: close idle ones to admit new ones, and close those that make no progress."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any, Protocol

from tirjudge_web.limits import ConnectionLimits, connections_allowed

SWEEP_S = 0.2
"""Seconds between checks of all connections."""


class Connection(Protocol):
    """Interface of a connection, implemented by `HttpConnection`."""

    def shed(self) -> None:
        """Close the connection immediately to admit another one."""
        ...

    def check(self, now: float) -> None:
        """Close the connection if a time limit has passed."""
        ...


class Connections:
    """All open connections of a server.

    Args:
        limits: limits of each connection, and of their number.
        opened: set that holds the open connections, from accept to close.

    Raises:
        TooManyConnections: see `connections_allowed`.
    """

    def __init__(self, limits: ConnectionLimits, *, opened: set[Any]) -> None:
        self.limits = limits
        self.max_open = connections_allowed(limits.max_connections)
        self.max_busy = max(1, self.max_open - max(1, self.max_open // 8))
        """Maximum number of connections with a request in progress. The rest is reserved for health checks."""
        self.open: set[Connection] = opened
        self.clock = 0.0
        """Seconds in which the event loop was able to read. Time in which the loop was blocked does not count against
        the callers."""
        self._waiting: OrderedDict[Connection, None] = OrderedDict()

    @property
    def num_busy(self) -> int:
        """Number of connections with a request in progress. They are not shed."""
        return len(self.open) - len(self._waiting)

    def add(self, connection: Connection) -> None:
        """Add an accepted connection. It waits for its first request."""
        self.open.add(connection)
        self.await_caller(connection)

    def remove(self, connection: Connection) -> None:
        """Remove a closed connection."""
        self.open.discard(connection)
        self._waiting.pop(connection, None)

    def await_caller(self, connection: Connection) -> None:
        """Mark a connection as waiting for its caller. It becomes the last one to be shed."""
        self._waiting[connection] = None
        self._waiting.move_to_end(connection)

    def set_busy(self, connection: Connection) -> None:
        """Mark a connection as having a request in progress."""
        self._waiting.pop(connection, None)

    def make_room(self) -> bool:
        """Return whether one more connection may be opened. If the maximum is reached, try to shed one first."""
        if len(self.open) < self.max_open:
            return True
        return self.shed()

    def shed(self) -> bool:
        """Close the connection that has waited longest for its caller. Return False if all connections are busy."""
        longest = next(iter(self._waiting), None)
        if longest is None:
            return False
        longest.shed()
        self.remove(longest)
        return True

    async def sweep(self) -> None:
        """Check all connections periodically. Runs until it is cancelled."""
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            await asyncio.sleep(SWEEP_S)
            now = loop.time()
            self.clock += min(now - last, 2 * SWEEP_S)
            last = now
            for connection in tuple(self.open):
                connection.check(self.clock)

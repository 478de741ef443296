"""A WebSocket connection: uvicorn's protocol class, plus time limits and a shutdown that lets the application finish.

`HttpConnection` replaces itself by such a connection at the handshake. The application must answer every handshake, read
all messages, and end the session when its grace period is over.
"""

from __future__ import annotations

from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from tirjudge_web.connections import Connections

PING_TIMEOUT_S = 60.0
"""Seconds without a reply to a ping until the client counts as gone."""


class WebSocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket connection of a server. It counts as one with a request in progress, so it is never shed.

    Args:
        config, server_state, app_state: see uvicorn.
        connections: all connections of the server.
    """

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any], *, connections: Connections
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._all = connections
        self._deadline: float | None = None  # when a handshake or a close must be done; None: neither is in progress

    def shed(self) -> None:
        self.transport.abort()

    def check(self, now: float) -> None:
        if self.handshake_complete and not self.close_sent and not self.transport.is_closing():
            self._deadline = None
        elif self._deadline is None:
            self._deadline = now + self._all.limits.header_s
        elif now >= self._deadline:
            self.transport.abort()

    def shutdown(self) -> None:
        """Do nothing: the application ends its sessions within the grace period."""

"""An HTTP connection with limits: uvicorn's protocol class, plus bounds on the size and duration of requests.

A request that exceeds a limit gets an error response if one can still be sent, and the connection is closed. A request
that arrives before the previous one is answered (pipelining) is not read: the pending response announces that the
connection closes, and the client retries on a new connection. A connection therefore never has more than one request at
a time, and a disconnect of the client is always detected.
"""

from __future__ import annotations

import asyncio
import math
from enum import IntEnum
from functools import cache
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from tirjudge.http.protocol import ErrorBody, Problem, invalid
from tirjudge_web.connections import Connections
from tirjudge_web.errors import UNAVAILABLE_RETRY_S, retry_headers
from tirjudge_web.limits import ConnectionLimits
from tirjudge_web.websocket_connection import WebSocketConnection

PROBE_PATHS = frozenset({"/health", "/ready", "/metrics"})
"""Paths for health checks and metrics. They are answered for all callers, even if the server is at its limits."""


LINGER_S = 2.0
"""Seconds for the client to read an error response before the connection is closed."""


class Phase(IntEnum):
    """State of a connection: the data or event that it is waiting for."""

    IDLE = 0
    """Waiting for a request."""
    HEAD = 1
    """Waiting for the rest of a request's header."""
    BODY = 2
    """Waiting for the rest of a request's body."""
    BUSY = 3
    """Waiting for the application's response."""
    REST = 4
    """Waiting for the rest of the body of a request that was already answered."""
    CLOSING = 5
    """Waiting for the caller to read the remaining output, before the connection is closed."""


class _Stop(Exception):
    """Stops the parser."""


class HttpConnection(HttpToolsProtocol):
    """A connection that enforces `ConnectionLimits`.

    Args:
        config, server_state, app_state: see uvicorn.
        connections: all connections of the server, including this one.
    """

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any], *, connections: Connections
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.opening: asyncio.Task[None] | None = None
        """Task of the TLS handshake. None: it has not started, or has ended."""
        self._all = connections
        self._limits = connections.limits
        self._seconds = _seconds(connections.limits)
        self._phase = Phase.HEAD
        self._deadline = math.inf
        self._is_probe = False  # whether the current request is for one of `PROBE_PATHS`
        self._is_deaf = False  # whether received data is dropped
        self._num_unparsed = 0  # bytes received since the parser's last event
        self._header_bytes = 0
        self._header_fields = 0
        self._body_bytes = 0  # in the current period of `stall_s`
        self._drain: tuple[float, int] | None = None  # (deadline, maximum number of unsent bytes at that time)
        self._refusal: tuple[HTTPStatus, Problem] | None = None  # why the parser was stopped

    # The connection.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._enter(Phase.HEAD)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._all.remove(self)

    def shed(self) -> None:
        if self.transport is None:
            if self.opening is not None:
                self.opening.cancel()
            return
        if self._phase in (Phase.HEAD, Phase.BODY) and self._num_received:
            self._refuse(*_too_many(self._all.max_open))
        self.transport.abort()

    def shutdown(self) -> None:
        if self.transport is None:
            self.shed()
        else:
            super().shutdown()

    # Time.

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        self._deadline = self._all.clock + self._seconds[phase]
        if phase is Phase.BUSY and not self._is_probe:
            self._all.set_busy(self)
        else:
            self._all.await_caller(self)

    def check(self, now: float) -> None:
        if self.transport is None:
            return
        if self.transport.is_closing() and self._phase is not Phase.CLOSING:
            self._enter(Phase.CLOSING)
        if self._is_read_too_slowly(now) or now < self._deadline:
            return
        if self._phase is Phase.HEAD and self._num_received:
            self._refuse(*_too_slow(f"header: incomplete after {self._limits.header_s:g} s"))
        elif self._phase is Phase.BODY:
            self._check_body()
        elif not self.transport.get_write_buffer_size():
            self.transport.abort() if self._phase is Phase.CLOSING else self._close()

    def _check_body(self) -> None:
        """Check the progress of a body at the end of a period of `stall_s`."""
        if self.flow.read_paused or self._body_bytes >= self._limits.min_progress_bytes:
            self._body_bytes = 0
            self._deadline = self._all.clock + self._limits.stall_s
        else:
            what = f"body: {self._body_bytes} bytes in {self._limits.stall_s:g} s"
            self._refuse(*_too_slow(f"{what}, expected at least {self._limits.min_progress_bytes}"))

    def _is_read_too_slowly(self, now: float) -> bool:
        """Whether the caller reads the response too slowly. If so, the connection is aborted."""
        is_waiting = self.flow.write_paused or self._phase in (Phase.IDLE, Phase.REST, Phase.CLOSING)
        unsent = self.transport.get_write_buffer_size() if is_waiting else 0
        if not unsent:
            self._drain = None
        elif self._drain is None or now >= self._drain[0]:
            if self._drain is not None and unsent > self._drain[1]:
                self.transport.abort()
                return True
            self._drain = (now + self._limits.stall_s, unsent - self._limits.min_progress_bytes)
        return False

    def resume_writing(self) -> None:
        self._drain = None
        super().resume_writing()

    # Received data.

    @property
    def _num_received(self) -> int:
        """Number of bytes of an incomplete header."""
        return self._num_unparsed + self._header_bytes

    def data_received(self, data: bytes) -> None:
        if self._is_deaf or self.parser is None:
            return
        if self._phase is Phase.IDLE:
            self._enter(Phase.HEAD)
        self._num_unparsed += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
            else:
                self._read_no_more()  # the following data would be in a different protocol
        except httptools.HttpParserError:
            if self._phase is Phase.BUSY:
                self._read_no_more()
            else:
                self._refuse(*(self._refusal or _MALFORMED))
        else:
            if self._num_unparsed > self._limits.header_bytes:
                self._read_no_more() if self._phase is Phase.BUSY else self._refuse(*_too_large(self._limits))

    def _read_no_more(self) -> None:
        """Drop further data. The response to the current request is the last one."""
        self._is_deaf = True
        self.cycle.keep_alive = False

    def on_message_begin(self) -> None:
        if self._phase is Phase.BUSY:
            raise _Stop
        if self._phase is Phase.IDLE:  # the request arrived together with the end of the previous one
            self._enter(Phase.HEAD)
        self._header_bytes = self._header_fields = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_fields += 1
        self._count(len(name) + len(value) + 4)
        if self._phase is Phase.HEAD:  # trailers are dropped: the application already has the header
            super().on_header(name, value)

    def _count(self, num_bytes: int) -> None:
        self._header_bytes += num_bytes
        limits = self._limits
        if self._header_bytes > limits.header_bytes or self._header_fields > limits.header_fields:
            self._refusal = _too_large(limits)
            raise _Stop

    def on_headers_complete(self) -> None:
        self._num_unparsed = self._body_bytes = 0
        path = self.url.partition(b"?")[0] if self.url.startswith(b"/") else self._take_host_of_target()
        self._is_probe = path.decode("latin-1") in PROBE_PATHS
        self._check_room()
        assert self.parser is not None
        if self.parser.should_upgrade() and any(name in _OF_A_BODY for name, _ in self.headers):
            self._refusal = (HTTPStatus.BAD_REQUEST, _UPGRADE)  # the parser would treat the body as the other protocol
            raise _Stop
        super().on_headers_complete()
        if not self._is_handshake:
            self._enter(Phase.BODY)

    @property
    def _is_handshake(self) -> bool:
        """Whether the current request becomes a WebSocket."""
        assert self.parser is not None
        return self.parser.should_upgrade() and self._should_upgrade()

    def _should_upgrade(self) -> bool:
        return super()._should_upgrade() and self.scope["method"] == "GET" and self.url.isascii()

    def handle_websocket_upgrade(self) -> None:
        """Let a `WebSocketConnection` serve the rest of the connection."""
        lines = [b"GET %b HTTP/1.1" % self.url, *(b"%b: %b" % field for field in self.headers), b"", b""]
        protocol = WebSocketConnection(self.config, self.server_state, self.app_state, connections=self._all)
        protocol.connection_made(self.transport)
        protocol.data_received(b"\r\n".join(lines))
        if protocol.handshake_initiated:
            self._all.remove(self)
            self.transport.set_protocol(protocol)
        else:
            self.connections.discard(protocol)
            self._refuse(*_MALFORMED)

    def _take_host_of_target(self) -> bytes:
        """Return the path of a request like `GET http://host/path`, and replace the Host header with the target's host
        (RFC 9112, 3.2.2)."""
        target = httptools.parse_url(self.url)
        if target.host:
            host = b"[%b]" % target.host if b":" in target.host else target.host
            authority = host if target.port is None else b"%b:%d" % (host, target.port)
            self.headers[:] = [(name, value) for name, value in self.headers if name != b"host"] + [
                (b"host", authority)
            ]
        return target.path or b""

    def _check_room(self) -> None:
        """Stop the parser if too many requests are in progress."""
        if self._all.num_busy >= self._all.max_busy and not self._is_probe:
            self._refusal = _too_many(self._all.max_busy)
            raise _Stop

    def on_body(self, body: bytes) -> None:
        self._num_unparsed = 0
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._num_unparsed = 0
        if self._is_handshake:
            return
        if self.cycle.response_complete:
            self._enter(Phase.IDLE)
        else:
            self._check_room()
            super().on_message_complete()
            self._enter(Phase.BUSY)

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing: callers could fill the log."""

    # Sent data.

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._unset_keepalive_if_required()  # `check` closes idle connections instead
        if self.transport.is_closing():
            self._enter(Phase.CLOSING)
        else:
            self._enter(Phase.REST if self._phase is Phase.BODY else Phase.IDLE)

    def _refuse(self, status: HTTPStatus, problem: Problem) -> None:
        """Send an error response instead of the application's, and close the connection."""
        cycle = self.cycle
        if self._phase is not Phase.HEAD:
            if cycle.response_started:
                self.transport.abort()
                return
            cycle.disconnected = True
            cycle.message_event.set()
        body = ErrorBody(error=problem).model_dump_json().encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
        if status is HTTPStatus.SERVICE_UNAVAILABLE:
            headers |= retry_headers(UNAVAILABLE_RETRY_S)
        lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in headers.items())]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)
        # Close later: unread received bytes would make the kernel reset the connection, and the response would be lost.
        self._is_deaf = True
        self._enter(Phase.CLOSING)
        self._deadline = self._all.clock + LINGER_S
        if self.scheme == "http":  # TLS connections cannot be half-closed
            self.transport.write_eof()

    def _close(self) -> None:
        self.transport.close()
        self._enter(Phase.CLOSING)


@cache
def _seconds(limits: ConnectionLimits) -> tuple[float, ...]:
    """Return the time limit of each `Phase` in seconds."""
    return (limits.idle_s, limits.header_s, limits.stall_s, math.inf, limits.stall_s, limits.stall_s)


_OF_A_BODY = frozenset({b"content-length", b"transfer-encoding"})

_UPGRADE = invalid(
    "upgrade: not supported for a request with a body; send it without the Upgrade header", param=None, code="upgrade"
)

_MALFORMED = (HTTPStatus.BAD_REQUEST, invalid("not a valid HTTP/1.1 request", param=None, code="invalid_http"))


def _too_large(limits: ConnectionLimits) -> tuple[HTTPStatus, Problem]:
    message = (
        f"header: more than {limits.header_bytes} bytes or {limits.header_fields} fields given; "
        "send fewer and shorter headers"
    )
    return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, invalid(message, param=None, code="header_too_large")


def _too_slow(what: str) -> tuple[HTTPStatus, Problem]:
    return HTTPStatus.REQUEST_TIMEOUT, invalid(f"{what}; send it faster", param=None, code="request_timeout")


def _too_many(num_connections: int) -> tuple[HTTPStatus, Problem]:
    message = (
        f"connections: all {num_connections} are in use; try again later, or raise --max-connections of the server"
    )
    return HTTPStatus.SERVICE_UNAVAILABLE, Problem(message=message, type="server_error", code="too_many_connections")

"""Run one HTTP server in this process: its socket, signals and shutdown.

After its shutdown, uvicorn raises the signal again, which would kill the process before the sandbox and the engine are
closed. Here, a signal only stops the server, and the rest of the program then runs to its end.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE

from tirjudge.errors import TirjudgeError
from tirjudge_web.connections import Connections
from tirjudge_web.http_connection import HttpConnection
from tirjudge_web.limits import ConnectionLimits
from tirjudge_web.sealing import seal_process
from tirjudge_web.tracebacks import Lines
from tirjudge_web.websocket_connection import PING_TIMEOUT_S, WebSocketConnection

logger = logging.getLogger(__name__)

BACKLOG = 2048
"""Maximum number of connections that the kernel queues until they are accepted."""

RETRY_S = 0.05
"""Seconds until the next accept after the limit of open files was reached."""

ANSWERING_S = 5
"""Seconds after the grace period in which responses can still be sent, before connections are closed."""


class AddressUnavailable(TirjudgeError, ValueError):
    """The server cannot listen on the address."""


def bind(host: str, *, port: int) -> socket.socket:
    """Return a socket that is bound to an address, but not listening yet. Port 0 takes any free port.

    Raises:
        AddressUnavailable: the address is in use, or does not exist.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise AddressUnavailable(f"{host}:{port}: {error.strerror}; use another --host or --port") from error
    return bound


def url_of(bound: socket.socket, *, scheme: str = "http") -> str:
    """Return the URL of a bound socket."""
    host, port = bound.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class Server(uvicorn.Server):
    """A uvicorn server that stops at SIGTERM or SIGINT. A second SIGINT stops it without waiting.

    It accepts connections itself, so that each is counted from the start, including during a TLS handshake.

    Args:
        config: configuration of uvicorn.
        limits: limits of connections.
        on_start: called when the server listens.
        on_stop: called at the first signal.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        limits: ConnectionLimits,
        on_start: Callable[[], None],
        on_stop: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._connections = Connections(limits, opened=self.server_state.connections)
        self._on_start = on_start
        self._on_stop = on_stop
        self._tasks: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(STARTUP_FAILURE)
        self.servers = []  # uvicorn's own listeners
        for bound in sockets or []:
            bound.setblocking(False)
            bound.listen(BACKLOG)
            self._tasks.append(asyncio.create_task(self._accept(bound)))
        self._tasks.append(asyncio.create_task(self._connections.sweep()))
        self.started = True
        self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        *accepting, sweeping = self._tasks
        for task in accepting:
            task.cancel()
        await asyncio.gather(*accepting, return_exceptions=True)
        await super().shutdown(sockets)
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)

    async def _accept(self, bound: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(bound)
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    logger.error("cannot accept connections: %s", error.strerror)
                    self._connections.shed()
                    await asyncio.sleep(RETRY_S)
                continue  # other errors: the caller has already disconnected
            if self._connections.make_room():
                connection = HttpConnection(
                    self.config, self.server_state, self.lifespan.state, connections=self._connections
                )
                self._connections.add(connection)
                connection.opening = asyncio.create_task(self._open(connection, accepted))
            else:
                accepted.close()
            await asyncio.sleep(0)  # let the new connection start and a shed one end

    async def _open(self, connection: HttpConnection, accepted: socket.socket) -> None:
        """Start serving an accepted connection, with TLS after the handshake."""
        secure = self.config.ssl
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=secure,
                ssl_handshake_timeout=None if secure is None else self._connections.limits.header_s,
            )
        except OSError as error:  # the TLS handshake failed or timed out
            logger.debug("a connection was not opened: %s", type(error).__name__)
        finally:
            if connection.transport is None:
                self._connections.remove(connection)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install the signal handlers and leave them installed, so that the shutdown after the server is not
        interrupted either."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not self.should_exit:
            self._on_stop()
        super().handle_exit(sig, frame)


async def serve_app(
    app: ASGIApp,
    *,
    bound: socket.socket,
    grace_s: float,
    on_start: Callable[[], None],
    on_stop: Callable[[], None],
    certificate: Path | None = None,
    private_key: Path | None = None,
    limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008 (frozen)
    websocket_bytes: int | None = None,
) -> None:
    """Answer requests until a signal arrives, then finish the running ones.

    Args:
        app: the application.
        bound: socket to listen on.
        grace_s: seconds that `app` gives running requests after `on_stop`.
        on_start: called when the server listens.
        on_stop: called at the first signal; starts the application's shutdown.
        certificate: PEM file with the TLS certificate. None: plain HTTP.
        private_key: private key of the certificate. None: it is in the same file.
        limits: limits of connections.
        websocket_bytes: maximum size of a message of a WebSocket. None: the application has no WebSockets; handshakes are
            answered like other requests.

    Raises:
        TooManyConnections: the limit of open files is too low for `limits.max_connections`.
    """
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        http="httptools",
        ws="none" if websocket_bytes is None else WebSocketConnection,
        ws_max_size=websocket_bytes or 0,
        ws_per_message_deflate=False,
        ws_ping_timeout=PING_TIMEOUT_S,
        timeout_graceful_shutdown=round(grace_s) + ANSWERING_S,
        ssl_certfile=certificate,
        ssl_keyfile=private_key,
    )
    await Server(config, limits=limits, on_start=on_start, on_stop=on_stop).serve(sockets=[bound])


def is_ours_or_a_warning(record: logging.LogRecord) -> bool:
    """Whether a log line is of this project, or says that something is wrong. Libraries log how they start."""
    return record.name.startswith("tirjudge") or record.levelno >= logging.WARNING


def run(
    main: Coroutine[Any, Any, None],
    *,
    log_level: str,
    formatter: logging.Formatter | None = None,
    secrets: Iterable[str] = (),
) -> None:
    """Run the main coroutine of a serving command.

    A signal before the server starts also ends the command cleanly, without a traceback. Other processes of the same
    user cannot read this process's memory and environment.

    Args:
        main: the coroutine.
        log_level: level of the log on stderr. Lines of libraries below a warning are logged at the level `debug` only.
        formatter: format of the log. None: plain text.
        secrets: texts to blank on the command line.
    """
    seal_process(secrets)
    handler = logging.StreamHandler()
    handler.setFormatter(formatter or Lines())
    if log_level != "debug":
        handler.addFilter(is_ours_or_a_warning)
    logging.basicConfig(level=log_level.upper(), handlers=[handler])

    async def interruptible() -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        await main

    with suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(interruptible())

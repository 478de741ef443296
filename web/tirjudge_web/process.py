"""One HTTP server in this process: its socket, its signals, and the order in which things end.

uvicorn raises the signal that ended it once more when it is done, which would kill the process before the sandbox and
the engine are closed. Here a signal asks the server to end, and then the rest of the program goes on.
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

logger = logging.getLogger(__name__)

BACKLOG = 2048
"""Connections that the kernel keeps until they are accepted."""

RETRY_S = 0.05
"""How soon to accept again after no more files could be opened."""

ANSWERING_S = 5
"""After the grace, how long answers may take to reach their callers before connections are cut."""


class AddressUnavailable(TirjudgeError, ValueError):
    """The address to listen at cannot be had."""


def bind(host: str, *, port: int) -> socket.socket:
    """A socket at that address, not listening yet; port 0 takes any that is free.

    Raises:
        AddressUnavailable: it is in use, or there is no such address.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        raise AddressUnavailable(f"{host}:{port}: {error.strerror}; use another --host or --port") from error
    return bound


def url_of(bound: socket.socket, *, scheme: str = "http") -> str:
    """How to reach a socket."""
    host, port = bound.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class Server(uvicorn.Server):
    """Ends at SIGTERM or SIGINT; a second SIGINT ends it without waiting.

    It accepts connections itself, one by one, so that each is counted from its first moment on, during a TLS handshake too.

    Args:
        config: of uvicorn.
        connections: those that are open.
        on_start: called as soon as it listens.
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
                    logger.error("no connection can be accepted: %s", error.strerror)
                    self._connections.shed()
                    await asyncio.sleep(RETRY_S)
                continue  # else the caller is gone already
            if self._connections.make_room():
                connection = HttpConnection(
                    self.config, self.server_state, self.lifespan.state, connections=self._connections
                )
                self._connections.add(connection)
                connection.opening = asyncio.create_task(self._open(connection, accepted))
            else:
                accepted.close()
            await asyncio.sleep(0)  # what was accepted begins, what was shed ends

    async def _open(self, connection: HttpConnection, accepted: socket.socket) -> None:
        """With TLS, after its handshake."""
        secure = self.config.ssl
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=secure,
                ssl_handshake_timeout=None if secure is None else self._connections.limits.header_s,
            )
        except OSError as error:  # no TLS, or not in time
            logger.debug("a connection was not opened: %s", type(error).__name__)
        finally:
            if connection.transport is None:
                self._connections.remove(connection)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The handlers stay: what is closed after the server is not to be interrupted either."""
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
) -> None:
    """Answer requests until a signal comes, then finish those under way.

    Args:
        app: what answers.
        bound: the socket to listen at.
        grace_s: how long `app` itself goes on after `on_stop`.
        on_start: called as soon as it listens.
        on_stop: tells it to come to an end.
        certificate: for TLS, a PEM file; None: plain HTTP.
        private_key: of the certificate; None: it is in the same file.
        limits: of connections.

    Raises:
        TooManyConnections: the process may not open that many files.
    """
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        http="httptools",
        ws="none",
        timeout_graceful_shutdown=round(grace_s) + ANSWERING_S,
        ssl_certfile=certificate,
        ssl_keyfile=private_key,
    )
    await Server(config, limits=limits, on_start=on_start, on_stop=on_stop).serve(sockets=[bound])


def run(
    main: Coroutine[Any, Any, None],
    *,
    log_level: str,
    formatter: logging.Formatter | None = None,
    secrets: Iterable[str] = (),
) -> None:
    """Run a command that serves; a signal before it serves ends it as well, quietly and with everything closed. Other
    processes of the same user cannot read this one's memory and environment.

    Args:
        main: serves.
        log_level: of the lines on stderr.
        formatter: of these; None: plain text.
        secrets: texts that are blanked on the command line.
    """
    seal_process(secrets)
    handler = logging.StreamHandler()
    handler.setFormatter(formatter or Lines())
    logging.basicConfig(level=log_level.upper(), handlers=[handler])

    async def interruptible() -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        await main

    with suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(interruptible())

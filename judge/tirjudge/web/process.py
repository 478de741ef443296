"""One HTTP server in this process: its socket, its signals, and the order in which things end.

uvicorn raises the signal that ended it once more when it is done, which would kill the process before the sandbox and
the engine are closed. Here a signal asks the server to end, and then the rest of the program goes on.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from tirjudge.errors import TirjudgeError
from tirjudge.web.sealing import seal_process
from tirjudge.web.tracebacks import Lines

ANSWERING_S = 5
"""After the grace, how long answers may take to reach their callers before connections are cut."""


class AddressUnavailable(TirjudgeError, ValueError):
    """The address to listen at cannot be had."""


def bind(host: str, *, port: int) -> socket.socket:
    """A socket at that address, not listening yet; port 0 takes any that is free.

    Raises:
        AddressUnavailable: somebody has it, or there is no such address.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        raise AddressUnavailable(f"{host}:{port}: {error.strerror}; another --host or --port would do") from error
    return bound


def url_of(bound: socket.socket, *, scheme: str = "http") -> str:
    """How to reach a socket."""
    host, port = bound.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class Server(uvicorn.Server):
    """Ends at SIGTERM or SIGINT; a second SIGINT ends it without waiting.

    Args:
        config: of uvicorn.
        on_start: called as soon as it listens.
        on_stop: called at the first signal.
    """

    def __init__(self, config: uvicorn.Config, *, on_start: Callable[[], None], on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_start = on_start
        self._on_stop = on_stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_start()

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
    """
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=round(grace_s) + ANSWERING_S,
        ssl_certfile=certificate,
        ssl_keyfile=private_key,
    )
    await Server(config, on_start=on_start, on_stop=on_stop).serve(sockets=[bound])


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

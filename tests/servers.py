"""Servers for tests: an ASGI application on a loopback socket, and `tirjudge` commands that run as processes.

- `serve_async`: an application in the event loop of the test.
- `serve_in_thread`: an application in a thread, for synchronous clients and other event loops.
- `run_command` and `serve_command`: a command as a process, with or without the wait until it listens.
- `shared_sandbox`: a real sandbox that tests in different event loops share.
- `scripted_service`: a judge service around a `ScriptedEngine`.
- `mint_key`: an API key in a database.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import uvicorn
from starlette.types import ASGIApp

from tests.waiting import until
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.judge import Judge
from tirjudge.profile import Profile
from tirjudge.tools.base import Bindings
from tirjudge.tools.functions import ToolFunction
from tirjudge.tools.python import Sandbox, python_tools
from tirjudge.types import ExecResult
from tirjudge.weights_lock import WeightsLock
from tirjudge_sandbox import PoolStats, SandboxPool
from tirjudge_server.access.keys import create_key
from tirjudge_server.records.database import Database, open_database
from tirjudge_server.service import JudgeService
from tirjudge_web.process import bind, url_of

TIRJUDGE = [sys.executable, "-c", "from tirjudge.cli import main; main()"]
"""The `tirjudge` command of this environment."""

START_S = 180.0
"""Maximum seconds that a process or a thread may take until it listens. A loaded machine may need a minute."""

END_S = 120.0
"""Maximum seconds that a process or a thread may take to end."""

PIPE_BYTES = 1 << 20
"""Size of the pipes of a process. No test reads them before the process ends, and a process whose pipe is full stops."""

LABEL_PROBS = {"A": 0.8, "B": 0.2, "7": 0.9, "3": 0.1}
"""Label -> probability, as scripted engines return it by default."""

Script = Iterable[str] | Callable[[str], str]
"""What a scripted model writes: completions in order, or a function of the prompt."""

LabelProbs = Mapping[str, float] | Callable[[str], Mapping[str, float]]

Lifespan = Literal["on", "off"]


# Applications on loopback sockets.


@asynccontextmanager
async def serve_async(
    app: ASGIApp, *, bound: socket.socket | None = None, lifespan: Lifespan = "off", has_websockets: bool = False
) -> AsyncIterator[str]:
    """Serve an application in this event loop; yield its URL.

    Args:
        app: the application.
        bound: a bound socket to listen on. None: any free port.
        lifespan: whether the start-up and shutdown code of the application runs. "off" skips the trial judgment of a
            judge server.
        has_websockets: whether handshakes of WebSockets reach the application.
    """
    with bound or bind("127.0.0.1", port=0) as listener:
        config = uvicorn.Config(
            app, log_config=None, ws="websockets-sansio" if has_websockets else "none", lifespan=lifespan
        )
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        await server.on_tick(0)  # sets the default headers
        await server.startup(sockets=[listener])
        try:
            yield url_of(listener)
        finally:
            await _shut_down(server)


async def _shut_down(server: uvicorn.Server) -> None:
    """Finish running requests, then stop. Unlike `uvicorn.Server.shutdown`, which always sleeps for 0.1 s."""
    for listener in server.servers:
        listener.close()
    for connection in list(server.server_state.connections):
        connection.shutdown()
    await until(lambda: not server.server_state.connections and not server.server_state.tasks, at_most_s=END_S)
    await server.lifespan.shutdown()


@contextmanager
def serve_in_thread(
    app: ASGIApp | AbstractAsyncContextManager[ASGIApp], *, lifespan: Lifespan = "off"
) -> Iterator[str]:
    """Serve an application in the event loop of a new thread; yield its URL.

    Args:
        app: the application, or a context manager that opens it inside the thread's event loop. Use the second for an
            application with a sandbox pool, which belongs to one event loop.
        lifespan: as for `serve_async`.
    """
    started = threading.Event()
    failures: list[BaseException] = []
    urls: list[str] = []
    stops: list[Callable[[], object]] = []

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        opened = app if isinstance(app, AbstractAsyncContextManager) else _already_open(app)
        async with opened as ready, serve_async(ready, lifespan=lifespan) as url:
            urls.append(url)
            stops.append(lambda: loop.call_soon_threadsafe(stop.set))
            started.set()
            await stop.wait()

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            failures.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=run, name="test server")
    thread.start()
    assert started.wait(START_S), "the application did not start in time"
    try:
        if not failures:
            yield urls[0]
    finally:
        for stop in stops:
            stop()
        thread.join(END_S)
    if failures:
        raise failures[0]
    assert not thread.is_alive(), "the application did not stop in time"


@asynccontextmanager
async def _already_open(app: ASGIApp) -> AsyncIterator[ASGIApp]:
    yield app


# Commands as processes.


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A `tirjudge` command that listens."""

    process: subprocess.Popen[str]
    url: str
    ready_line: str
    """The line that the command printed when it was ready, without its newline."""

    def stop(self, number: int = signal.SIGTERM) -> tuple[str, str]:
        """Send a signal and wait for the end; return the rest of stdout, and stderr."""
        self.process.send_signal(number)
        return self.process.communicate(timeout=END_S)

    def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        self.stop(signal.SIGKILL)


@contextmanager
def run_command(
    *arguments: str,
    state: Path,
    environment: Mapping[str, str] | None = None,
    command: Collection[str] = TIRJUDGE,
    **options: Any,
) -> Iterator[subprocess.Popen[str]]:
    """Start a `tirjudge` command, with pipes for stdout and stderr; kill it at the end.

    Args:
        arguments: the arguments of the command, such as "serve".
        state: folder for the state of the command (`XDG_STATE_HOME`), such as records.
        environment: variables to add to this process's environment.
        command: the program that gets the arguments.
        options: for `subprocess.Popen`.
    """
    process = subprocess.Popen(
        [*command, *arguments],
        text=True,
        pipesize=PIPE_BYTES,
        env={**os.environ, "XDG_STATE_HOME": str(state), **(environment or {})},
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
    )
    try:
        yield process
    finally:
        process.kill()
        if process.stdout is not None and not process.stdout.closed:
            process.communicate()


@contextmanager
def serve_command(
    *arguments: str,
    state: Path,
    environment: Mapping[str, str] | None = None,
    command: Collection[str] = TIRJUDGE,
    **options: Any,
) -> Iterator[ServerProcess]:
    """Start a `tirjudge` command that listens and wait until it is ready; kill it at the end.

    Args:
        arguments: the arguments of the command, such as "serve". "--port 0" is added if they have no port.
        state, environment, command, options: as for `run_command`.
    """
    port = () if "--port" in arguments else ("--port", "0")
    with run_command(*arguments, *port, state=state, environment=environment, command=command, **options) as process:
        yield wait_until_ready(process)


def wait_until_ready(process: subprocess.Popen[str]) -> ServerProcess:
    """Read what a command prints until a line has its URL. An AssertionError quotes stderr if the command ends."""
    assert process.stdout is not None
    killing = threading.Timer(START_S, process.kill)
    killing.start()
    try:
        for line in process.stdout:
            if found := re.search(r'https?://[^\s",]+', line):
                return ServerProcess(process, found[0], line.rstrip("\n"))
    finally:
        killing.cancel()
    raise AssertionError(f"the command ended before it was ready: {process.communicate()[1]}")


# Sandboxes, judge services and API keys.


class SharedSandbox:
    """A real sandbox pool in a thread. Tests in different event loops share it, because a pool takes half a second to start.

    Tests that change or break their sandbox open a separate `SandboxPool`.
    """

    def __init__(self, pool: SandboxPool, *, loop: asyncio.AbstractEventLoop) -> None:
        self._pool = pool
        self._loop = loop

    @property
    def level(self) -> str:
        return self._pool.level

    def stats(self) -> PoolStats:
        return self._pool.stats()

    async def run(self, code: str, *, bindings: Bindings, **options: Any) -> ExecResult:
        running = asyncio.run_coroutine_threadsafe(self._pool.run(code, bindings=bindings, **options), self._loop)
        return await asyncio.wrap_future(running)


@contextmanager
def shared_sandbox(*, slots: int = 2) -> Iterator[SharedSandbox]:
    """Open a `SharedSandbox`."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="test sandbox")
    thread.start()
    pool = SandboxPool(slots=slots)
    try:
        asyncio.run_coroutine_threadsafe(pool.start(), loop).result(START_S)
        yield SharedSandbox(pool, loop=loop)
    finally:
        asyncio.run_coroutine_threadsafe(pool.close(), loop).result(END_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(END_S)
        loop.close()


def scripted_service(
    texts: Script,
    *,
    sandbox: Sandbox | None = None,
    functions: Sequence[ToolFunction] = (),
    label_probs: LabelProbs = LABEL_PROBS,
    delay_s: float = 0.0,
    read_delay_s: float = 0.0,
    profile: Profile = Profile(),  # noqa: B008 (it is frozen)
    fingerprint: str | None = None,
    **options: Any,
) -> JudgeService:
    """A judge service around a `ScriptedEngine`.

    Args:
        texts: what the model writes.
        sandbox: where programs run; None: the judge has no tools.
        functions: functions that programs may call.
        label_probs: label -> probability, or a function of the prompt that returns such a mapping.
        delay_s: seconds that each turn of the model takes.
        read_delay_s: seconds that each read of label probabilities takes.
        profile: the profile of the model.
        fingerprint: the version of the weights; None: unknown.
        options: for `JudgeService`.
    """
    engine = ScriptedEngine(texts, label_probs=label_probs, delay_s=delay_s, read_delay_s=read_delay_s)
    weights = WeightsLock(version=fingerprint)
    judge = Judge(engine=engine, tools=python_tools(sandbox, functions=functions), profile=profile, weights=weights)
    if isinstance(sandbox, SandboxPool | SharedSandbox):
        options.setdefault("isolation", sandbox.level)
    return JudgeService(judge, **options)


def mint_key(
    database: Database | Path | str, *, name: str = "tests", scopes: Iterable[str] = ("judge",), **limits: Any
) -> str:
    """Create an API key.

    Args:
        database: the records database: open, or its path or URL.
        name: the name of the key's user.
        scopes: what the key permits.
        limits: `rpm`, `tpm`, `concurrency` and `expires_ms` of the key.
    """
    if isinstance(database, Database):
        return create_key(database, name=name, scopes=tuple(scopes), **limits)
    opened = open_database(str(database))
    try:
        return create_key(opened, name=name, scopes=tuple(scopes), **limits)
    finally:
        opened.close()

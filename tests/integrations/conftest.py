"""Servers on real sockets in a separate thread, so that tests can call them from threads, event loops and processes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from typing import Any, Literal, TypeVar

import pytest

from tests.clients.wheels import environment, wheel
from tests.servers import serve_async
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.judge import Judge
from tirjudge.tools.python import python_tools
from tirjudge_sandbox import SandboxPool
from tirjudge_server.app import create_app
from tirjudge_server.service import JudgeService
from tirjudge_web.process import bind, url_of

__all__ = ["environment", "wheel"]

TIMEOUT_S = 60
"""Maximum seconds for the start or the end of a server, or of the sandbox."""

Result = TypeVar("Result")


class Served:
    """A running server.

    Attributes:
        url: base URL.
        engine: the scripted engine; its `calls` are the recorded calls.
    """

    def __init__(self, url: str, *, engine: ScriptedEngine) -> None:
        self.url = url
        self.engine = engine

    @property
    def prompts(self) -> list[str]:
        """The prompt of each rollout's first turn, as text."""
        first: dict[str, str] = {}
        for token_ids, _, session in self.engine.calls:
            first.setdefault(session, self.engine.tokenizer.decode(token_ids))
        return list(first.values())


Serve = Callable[..., Any]
"""`with serve(texts, sandbox="none", ...) as served`: a single text is the output of every call."""


class ServerThread:
    """An event loop in a separate thread, and the sandbox that all servers on it share."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._opened: SandboxPool | None = None

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the event loop, and wait for its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(TIMEOUT_S)

    async def pool(self, sandbox: Literal["none", "real", "broken"]) -> SandboxPool | None:
        """The shared sandbox, a closed one, or none."""
        if sandbox == "none":
            return None
        if sandbox == "broken":
            async with SandboxPool(slots=1) as closed:
                return closed
        if self._opened is None:
            self._opened = await SandboxPool(slots=2).__aenter__()
        return self._opened

    async def _close_pool(self) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(None, None, None)

    def close(self) -> None:
        self.run(self._close_pool())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()


@pytest.fixture(scope="session")
def server_thread() -> Iterator[ServerThread]:
    thread = ServerThread()
    yield thread
    thread.close()


@pytest.fixture
def serve(server_thread: ServerThread) -> Serve:
    return partial(_serving, server_thread)


@contextmanager
def _serving(
    thread: ServerThread,
    texts: str | Iterable[str] | Callable[[str], str],
    *,
    label_probs: Mapping[str, float] | None = None,
    sandbox: Literal["none", "real", "broken"] = "none",
    delay_s: float = 0.0,
    **options: Any,
) -> Iterator[Served]:
    script = (lambda sequence: texts) if isinstance(texts, str) else texts
    engine = ScriptedEngine(script, label_probs=label_probs or {"9": 1.0}, delay_s=delay_s, read_delay_s=delay_s)
    opened = AsyncExitStack()

    async def start() -> str:
        pool = await thread.pool(sandbox)
        app = create_app(JudgeService(Judge(engine=engine, tools=python_tools(pool)), **options))
        return await opened.enter_async_context(serve_async(app))

    url = thread.run(start())
    try:
        yield Served(url, engine=engine)
    finally:
        thread.run(opened.aclose())


@pytest.fixture
def nowhere() -> Iterator[str]:
    """A URL without a server."""
    with bind("127.0.0.1", port=0) as bound:
        yield url_of(bound)

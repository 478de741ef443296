"""A server on a real socket in a separate thread, so that tests can call it from threads, event loops and processes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import pytest
import uvicorn

from tests.clients.wheels import environment, wheel
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.judge import Judge
from tirjudge.tools.python import python_tools
from tirjudge_sandbox import SandboxPool
from tirjudge_server.app import create_app
from tirjudge_server.service import JudgeService
from tirjudge_web.process import bind, url_of

__all__ = ["environment", "wheel"]

START_S = 60
"""Maximum seconds for the start of a server and its sandbox."""


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


@pytest.fixture
def serve() -> Serve:
    return _serving


@contextmanager
def _serving(
    texts: str | Iterable[str] | Callable[[str], str],
    *,
    label_probs: Mapping[str, float] | None = None,
    sandbox: Literal["none", "real", "broken"] = "none",
    delay_s: float = 0.0,
    **options: Any,
) -> Iterator[Served]:
    script = (lambda sequence: texts) if isinstance(texts, str) else texts
    engine = ScriptedEngine(script, label_probs=label_probs or {"9": 1.0}, delay_s=delay_s, read_delay_s=delay_s)
    bound = bind("127.0.0.1", port=0)
    started, stop = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    async def serving() -> None:
        if sandbox == "none":
            await _run(None)
            return
        async with SandboxPool(slots=2) as pool:
            if sandbox == "real":
                await _run(pool)
        if sandbox == "broken":
            await _run(pool)

    async def _run(pool: SandboxPool | None) -> None:
        service = JudgeService(Judge(engine=engine, tools=python_tools(pool)), **options)
        app = create_app(service)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none", lifespan="off"))
        task = asyncio.create_task(server._serve(sockets=[bound]))
        while not server.started and not task.done():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        started.set()
        await asyncio.to_thread(stop.wait)
        server.should_exit = True
        await task

    def main() -> None:
        try:
            asyncio.run(serving())
        except BaseException as error:
            failures.append(error)
            started.set()

    thread = threading.Thread(target=main)
    thread.start()
    try:
        assert started.wait(START_S)
        if not failures:
            yield Served(url_of(bound), engine=engine)
    finally:
        stop.set()
        thread.join(START_S)
    if failures:
        raise failures[0]


@pytest.fixture
def nowhere() -> Iterator[str]:
    """A URL without a server."""
    with bind("127.0.0.1", port=0) as bound:
        yield url_of(bound)

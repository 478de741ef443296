"""A service around the scripted engine and a real sandbox, reached without a socket or over one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI

from tests.waiting import until
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.judge import Judge
from tirjudge.tools.python import PythonTool
from tirjudge.weights_lock import WeightsLock
from tirjudge_sandbox import SandboxPool
from tirjudge_server.app import create_app
from tirjudge_server.service import JudgeService
from tirjudge_web.process import bind, url_of

MakeService = Callable[..., JudgeService]


@pytest.fixture
def make_service(pool: SandboxPool) -> MakeService:
    def make(
        texts: Iterable[str] | Callable[[str], str], *, fingerprint: str | None = None, **options: Any
    ) -> JudgeService:
        engine = ScriptedEngine(texts, label_probs={"A": 0.8, "B": 0.2, "7": 0.9, "3": 0.1})
        judge = Judge(engine=engine, tools=[PythonTool(pool)], weights=WeightsLock(version=fingerprint))
        return JudgeService(judge, isolation=pool.level, **options)

    return make


@pytest.fixture
def pairwise() -> dict[str, Any]:
    return {"mode": "pairwise", "prompt": "Which is longer?", "responses": ["one", "three"], "tools": "off"}


@pytest.fixture
def connect() -> Callable[[FastAPI], httpx2.AsyncClient]:
    """A client of an application, without a socket. What the application fails to catch is answered, not raised."""

    def make(app: FastAPI) -> httpx2.AsyncClient:
        transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
        return httpx2.AsyncClient(transport=transport, base_url="http://test")

    return make


@pytest.fixture
async def client(
    make_service: MakeService, connect: Callable[[FastAPI], httpx2.AsyncClient]
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a server that answers one request."""
    async with connect(create_app(make_service(["<preference>A</preference>"]), max_body_bytes=100_000)) as connected:
        yield connected


@pytest.fixture
def listen() -> Callable[[FastAPI], Any]:
    """Serves an application on a real socket, without the trial judgment at its start; gives the URL."""

    @asynccontextmanager
    async def listening(app: FastAPI) -> AsyncIterator[str]:
        bound = bind("127.0.0.1", port=0)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none", lifespan="off"))
        serving = asyncio.create_task(server.serve(sockets=[bound]))
        await until(lambda: server.started)
        try:
            yield url_of(bound)
        finally:
            server.should_exit = True
            await serving

    return listening

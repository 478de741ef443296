"""Services around real pools, on real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI

from tests.waiting import until
from tirjudge_sandbox import Limits, SandboxPool
from tirjudge_sandbox.app import create_app
from tirjudge_sandbox.service import SandboxService
from tirjudge_web.process import bind, url_of

LIMITS = Limits(cpu_s=2.0, wall_s=20.0)


@asynccontextmanager
async def listening(app: FastAPI, *, port: int = 0) -> AsyncIterator[str]:
    """An application on a socket, without the doctor's examination at its start; gives the URL."""
    with bind("127.0.0.1", port=port) as bound:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none", lifespan="off"))
        serving = asyncio.create_task(server.serve(sockets=[bound]))
        await until(lambda: server.started)
        try:
            yield url_of(bound)
        finally:
            server.should_exit = True
            await serving


@pytest.fixture
async def listen() -> AsyncIterator[Callable[..., Any]]:
    """Serves applications for the length of a test."""
    async with AsyncExitStack() as stack:

        async def make(app: FastAPI) -> str:
            return await stack.enter_async_context(listening(app))

        yield make


@pytest.fixture
async def start_service() -> AsyncIterator[Callable[..., Any]]:
    """Opens pools, at the best level that works here, for the length of a test."""
    async with AsyncExitStack() as stack:

        async def make(**options: Any) -> SandboxService:
            pool = SandboxPool(**{"slots": 2, "limits": LIMITS, **options})
            return SandboxService(await stack.enter_async_context(pool))

        yield make


@pytest.fixture
async def service(start_service: Callable[..., Any]) -> SandboxService:
    return await start_service()


@pytest.fixture
def connect() -> Callable[..., httpx2.AsyncClient]:
    """A client of an application, without a socket. What the application fails to catch is answered, not raised."""

    def make(app: FastAPI, **options: Any) -> httpx2.AsyncClient:
        transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
        return httpx2.AsyncClient(transport=transport, base_url="http://test", **options)

    return make


@pytest.fixture
async def client(
    service: SandboxService, connect: Callable[..., httpx2.AsyncClient]
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of one service."""
    async with connect(create_app(service, max_body_bytes=1_000_000)) as connected:
        yield connected

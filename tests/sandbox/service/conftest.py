"""Sandbox services with real pools, on real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from fastapi import FastAPI

from tests.servers import serve_async
from tests.waiting import until
from tirjudge_sandbox import Limits, SandboxPool
from tirjudge_sandbox.app import create_app
from tirjudge_sandbox.service import SandboxService

LIMITS = Limits(cpu_s=2.0, wall_s=30.0)


@pytest_asyncio.fixture(loop_scope="session")
async def listen() -> AsyncIterator[Callable[..., Any]]:
    """Function that serves an application until the end of the test."""
    async with AsyncExitStack() as stack:

        async def make(app: FastAPI) -> str:
            return await stack.enter_async_context(serve_async(app))

        yield make


@pytest_asyncio.fixture(loop_scope="session")
async def start_service() -> AsyncIterator[Callable[..., Any]]:
    """Function that opens a pool at the strongest level and returns its service. For tests that need other options or
    break the pool."""
    async with AsyncExitStack() as stack:

        async def make(**options: Any) -> SandboxService:
            pool = SandboxPool(**{"slots": 2, "limits": LIMITS, **options})
            return SandboxService(await stack.enter_async_context(pool))

        yield make


@pytest_asyncio.fixture(loop_scope="session")
async def service(open_shared: Callable[..., Any]) -> SandboxService:
    """A new service with the shared pool of two slots, all of which are idle."""
    pool = await open_shared(slots=2, limits=LIMITS)
    await until(lambda: pool.stats().num_idle == 2)
    return SandboxService(pool)


@pytest.fixture
def connect() -> Callable[..., httpx2.AsyncClient]:
    """Function that returns a client of an application, without a socket. Unexpected exceptions become responses."""

    def make(app: FastAPI, **options: Any) -> httpx2.AsyncClient:
        transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
        return httpx2.AsyncClient(transport=transport, base_url="http://test", **options)

    return make


@pytest_asyncio.fixture(loop_scope="session")
async def client(
    service: SandboxService, connect: Callable[..., httpx2.AsyncClient]
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of `service`."""
    async with connect(create_app(service, max_body_bytes=1_000_000)) as connected:
        yield connected

"""One request to the server with a scripted engine: through ASGI, and over a socket with and without records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI
from pytest_benchmark.fixture import BenchmarkFixture

from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.judge import Judge
from tirjudge.types import JudgeRequest
from tirjudge_server.app import create_app
from tirjudge_server.service import JudgeService
from tirjudge_web.process import bind, url_of

KeepOpen = Callable[[AbstractAsyncContextManager[httpx2.AsyncClient]], httpx2.AsyncClient]


@pytest.fixture(scope="module")
def app() -> FastAPI:
    engine = ScriptedEngine(lambda _: "<preference>A</preference>", label_probs={"A": 0.8, "B": 0.2})
    return create_app(JudgeService(Judge(engine=engine)))


@asynccontextmanager
async def client_over_asgi(app: FastAPI) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://test") as client:
        yield client


@asynccontextmanager
async def client_over_socket(app: FastAPI) -> AsyncIterator[httpx2.AsyncClient]:
    """A client on a connection that is kept open. Client and server share the event loop."""
    bound = bind("127.0.0.1", port=0)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none", lifespan="off"))
    serving = asyncio.create_task(server.serve(sockets=[bound]))
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    async with httpx2.AsyncClient(base_url=url_of(bound), timeout=60) as client:
        yield client
    server.should_exit = True
    await serving


@pytest.mark.parametrize("connect", [client_over_asgi, client_over_socket])
def bench_judge(
    benchmark: BenchmarkFixture,
    loop: asyncio.AbstractEventLoop,
    keep_open: KeepOpen,
    app: FastAPI,
    pair: JudgeRequest,
    connect: Callable[[FastAPI], AbstractAsyncContextManager[Any]],
) -> None:
    client, body = keep_open(connect(app)), pair.model_dump_json(exclude_defaults=True)

    def run() -> int:
        headers = {"content-type": "application/json"}
        return loop.run_until_complete(client.post("/v1/judge", content=body, headers=headers)).status_code

    assert benchmark(run) == 200

"""Fixtures: a judge service around the scripted engine, clients with and without a socket, and running commands."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from tests.servers import ServerProcess, SharedSandbox, scripted_service, serve_async, serve_command, shared_sandbox
from tirjudge_server.app import create_app
from tirjudge_server.service import JudgeService

MakeService = Callable[..., JudgeService]


@pytest.fixture(scope="session")
def sandbox() -> Iterator[SharedSandbox]:
    """A real sandbox that all tests share. A test that breaks or changes its sandbox uses `pool` instead."""
    with shared_sandbox() as shared:
        yield shared


@pytest.fixture
def make_service(sandbox: SharedSandbox) -> MakeService:
    """Makes a `scripted_service` with the shared sandbox, or with another one: `make_service(texts, sandbox=pool)`."""

    def make(texts: Any, **options: Any) -> JudgeService:
        return scripted_service(texts, **{"sandbox": sandbox, **options})

    return make


@pytest.fixture
def pairwise() -> dict[str, Any]:
    return {"mode": "pairwise", "prompt": "Which is longer?", "responses": ["one", "three"], "tools": "off"}


@pytest.fixture
def connect() -> Callable[[FastAPI], httpx2.AsyncClient]:
    """Connects a client to an application without a socket. An uncaught exception is a response, as over a socket."""

    def make(app: FastAPI) -> httpx2.AsyncClient:
        transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
        return httpx2.AsyncClient(transport=transport, base_url="http://test")

    return make


@pytest.fixture
async def client(
    make_service: MakeService, connect: Callable[[FastAPI], httpx2.AsyncClient]
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a server whose model has one completion."""
    async with connect(create_app(make_service(["<preference>A</preference>"]), max_body_bytes=100_000)) as connected:
        yield connected


@pytest.fixture
def listen() -> Callable[[FastAPI], Any]:
    """Serves an application on a real socket, without the trial judgment at its start; yields the URL."""
    return serve_async


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    """Starts `tirjudge` commands that listen and waits until they are ready; kills them at the end of the test."""
    with ExitStack() as stack:

        def run(*arguments: str, **environment: str) -> ServerProcess:
            return stack.enter_context(serve_command(*arguments, state=tmp_path, environment=environment))

        yield run

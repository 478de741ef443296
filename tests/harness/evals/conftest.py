"""Fixtures: applications of judge servers with evals, with and without a sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from fastapi import FastAPI

from tests.servers import scripted_service
from tirjudge_sandbox import SandboxPool
from tirjudge_server.app import create_app


@pytest.fixture
def judge_with_evals(tmp_path: Path) -> FastAPI:
    return create_app(scripted_service(lambda prompt: "<score>7</score>"), files=tmp_path / "files")


@pytest.fixture
def tool_judge_with_evals(tmp_path: Path) -> AbstractAsyncContextManager[FastAPI]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[FastAPI]:
        async with SandboxPool() as pool:
            service = scripted_service(lambda prompt: "<score>7</score>", sandbox=pool)
            yield create_app(service, files=tmp_path / "files")

    return opened()

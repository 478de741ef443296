"""Fixtures: OpenAI's client, connected to a real server around the scripted engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from tests.held_engine import HeldEngine
from tests.servers import LABEL_PROBS, scripted_service, serve_async
from tirjudge.profile import Profile
from tirjudge_server.openai import routes
from tirjudge_server.service import JudgeService
from tirjudge_web.errors import answer_errors
from tirjudge_web.identity import CallerIdentity

MAX_BODY_BYTES = 200_000

PROFILE = Profile(name="judge", format_sha256="trained on ours")

Texts = Iterable[str] | Callable[[str], str]


@asynccontextmanager
async def serving(service: JudgeService, *, folder: Path, **options: Any) -> AsyncIterator[str]:
    """Serve the endpoints on a real socket; yield the URL. The options are those of `batch_router`."""
    app = FastAPI()
    app.add_middleware(CallerIdentity)
    answer_errors(app)
    app.include_router(routes.router(service, max_body_bytes=MAX_BODY_BYTES))
    app.include_router(routes.batch_router(service, folder=folder, max_body_bytes=MAX_BODY_BYTES, **options))
    async with serve_async(app, lifespan="on") as url:
        yield url


@pytest.fixture
def served() -> Callable[..., Any]:
    return serving


@pytest.fixture
def client_of(tmp_path: Path) -> Callable[..., Any]:
    """Connects an `AsyncOpenAI` to a server around a service."""

    @asynccontextmanager
    async def connected(
        service: JudgeService, *, folder: Path = tmp_path / "state", **options: Any
    ) -> AsyncIterator[AsyncOpenAI]:
        # Without `verify=False`, each client reads the certificates of authorities, which takes 50 ms.
        http_client = DefaultAsyncHttpxClient(verify=False)
        settings: Any = {"api_key": "none", "max_retries": 0, "timeout": 60, "http_client": http_client}
        async with (
            serving(service, folder=folder, **options) as url,
            AsyncOpenAI(base_url=f"{url}/v1", **settings) as client,
        ):
            yield client

    return connected


@pytest.fixture
def make_tool_judge(make_service: Callable[..., JudgeService]) -> Callable[..., JudgeService]:
    """Makes a service with a sandbox, whose model was trained on the judge format."""

    def make(texts: Texts, **options: Any) -> JudgeService:
        return make_service(texts, **{"profile": PROFILE, **options})

    return make


@pytest.fixture
def make_judge() -> Callable[..., JudgeService]:
    """Makes a service without a sandbox, whose model was trained on the judge format."""

    def make(texts: Texts, **options: Any) -> JudgeService:
        return scripted_service(texts, **{"profile": PROFILE, **options})

    return make


@pytest.fixture
def make_held_judge(make_judge: Callable[..., JudgeService]) -> Callable[..., tuple[JudgeService, HeldEngine]]:
    """Makes a service like `make_judge`, and the `HeldEngine` behind it."""

    def make(texts: Texts, **options: Any) -> tuple[JudgeService, HeldEngine]:
        service = make_judge([], **options)
        engine = HeldEngine(texts, label_probs=LABEL_PROBS)
        service.judge = replace(service.judge, engine=engine)
        return service, engine

    return make

"""OpenAI's own client against a real server, around the scripted engine and a real sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from openai import AsyncOpenAI

from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.judge import Judge
from tirjudge.profile import Profile
from tirjudge.weights_lock import WeightsLock
from tirjudge_server.openai import routes
from tirjudge_server.service import JudgeService
from tirjudge_web.errors import answer_errors
from tirjudge_web.identity import CallerIdentity
from tirjudge_web.process import bind, url_of

MAX_BODY_BYTES = 200_000

LABEL_PROBS = {"A": 0.8, "B": 0.2, "7": 0.9, "3": 0.1}

PROFILE = Profile(name="judge", format_sha256="trained on ours")


@asynccontextmanager
async def serving(service: JudgeService, *, folder: Path) -> AsyncIterator[str]:
    """The endpoints on a real socket; gives the URL."""
    app = FastAPI()
    app.add_middleware(CallerIdentity)
    answer_errors(app)
    app.include_router(routes.router(service, max_body_bytes=MAX_BODY_BYTES))
    app.include_router(routes.batch_router(service, folder=folder, max_body_bytes=MAX_BODY_BYTES))
    bound = bind("127.0.0.1", port=0)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none", lifespan="on"))
    task = asyncio.create_task(server.serve(sockets=[bound]))
    async with asyncio.timeout(20):
        while not server.started:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    try:
        yield url_of(bound)
    finally:
        server.should_exit = True
        await task


@pytest.fixture
def served() -> Callable[..., Any]:
    return serving


@pytest.fixture
def client_of(tmp_path: Path) -> Callable[..., Any]:
    """An `AsyncOpenAI` of a server around a service."""

    @asynccontextmanager
    async def connected(service: JudgeService, *, folder: Path = tmp_path / "state") -> AsyncIterator[AsyncOpenAI]:
        async with (
            serving(service, folder=folder) as url,
            AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60) as client,
        ):
            yield client

    return connected


def judging(service: JudgeService, *, profile: Profile) -> JudgeService:
    service.judge = replace(service.judge, profile=profile)
    return service


@pytest.fixture
def make_tool_judge(make_service: Callable[..., JudgeService]) -> Callable[..., JudgeService]:
    """A service with a sandbox, whose model was trained on our prompts, as the bundled one was."""

    def make(
        texts: Iterable[str] | Callable[[str], str], *, profile: Profile = PROFILE, **options: Any
    ) -> JudgeService:
        return judging(make_service(texts, **options), profile=profile)

    return make


@pytest.fixture
def make_judge() -> Callable[..., JudgeService]:
    """The same without a sandbox, which is up at once."""

    def make(
        texts: Iterable[str] | Callable[[str], str],
        *,
        label_probs: Any = LABEL_PROBS,
        profile: Profile = PROFILE,
        fingerprint: str | None = None,
        **options: Any,
    ) -> JudgeService:
        engine = ScriptedEngine(texts, label_probs=label_probs)
        return JudgeService(
            Judge(engine=engine, tools=(), profile=profile, weights=WeightsLock(version=fingerprint)), **options
        )

    return make

"""Fixtures: OpenAI's client, connected to a real server around the scripted engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from openai import AsyncOpenAI

from tests.servers import LABEL_PROBS, scripted_service, serve_async
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.profile import Profile
from tirjudge.types import Completion, Sampling
from tirjudge_server.openai import routes
from tirjudge_server.service import JudgeService
from tirjudge_web.errors import answer_errors
from tirjudge_web.identity import CallerIdentity

MAX_BODY_BYTES = 200_000

PROFILE = Profile(name="judge", format_sha256="trained on ours")

Texts = Iterable[str] | Callable[[str], str]


class HeldEngine(ScriptedEngine):
    """A scripted engine that writes a turn only when the test allows one.

    Attributes:
        num_held: number of turns that wait for permission.
    """

    def __init__(self, script: Texts, **options: Any) -> None:
        super().__init__(script, **options)
        self.num_held = 0
        self._permits = asyncio.Semaphore(0)

    def allow(self, num_turns: int) -> None:
        """Let this many more turns be written."""
        for _ in range(num_turns):
            self._permits.release()

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        if sampling.allowed_token_ids is None:
            self.num_held += 1
            try:
                await self._permits.acquire()
            finally:
                self.num_held -= 1
        return await super().generate(token_ids, sampling=sampling, session=session)


@asynccontextmanager
async def serving(service: JudgeService, *, folder: Path) -> AsyncIterator[str]:
    """Serve the endpoints on a real socket; yield the URL."""
    app = FastAPI()
    app.add_middleware(CallerIdentity)
    answer_errors(app)
    app.include_router(routes.router(service, max_body_bytes=MAX_BODY_BYTES))
    app.include_router(routes.batch_router(service, folder=folder, max_body_bytes=MAX_BODY_BYTES))
    async with serve_async(app, lifespan="on") as url:
        yield url


@pytest.fixture
def served() -> Callable[..., Any]:
    return serving


@pytest.fixture
def client_of(tmp_path: Path) -> Callable[..., Any]:
    """Connects an `AsyncOpenAI` to a server around a service."""

    @asynccontextmanager
    async def connected(service: JudgeService, *, folder: Path = tmp_path / "state") -> AsyncIterator[AsyncOpenAI]:
        async with (
            serving(service, folder=folder) as url,
            AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60) as client,
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

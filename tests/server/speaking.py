"""Servers with dialects, around the scripted engine and a broken sandbox."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from tests.servers import scripted_service
from tirjudge_server import batch, rewards
from tirjudge_server.cost import CostLimits
from tirjudge_server.dialects import DIALECTS, DialectSettings, routers
from tirjudge_server.service import JudgeService
from tirjudge_web.errors import answer_errors
from tirjudge_web.identity import CallerIdentity

IMPATIENT = DialectSettings(patience_s=0.0)

PROGRAM = "```python\nprint(1)\n```\n```output"
"""A completion that calls the Python tool."""

GOOD = (0.9 * 7 + 0.1 * 3 - 1) / 9
"""Expected reward of a response if the score is 7 with probability 0.9 and 3 with probability 0.1."""


class BrokenSandbox:
    """A sandbox whose `run` raises an error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def run(self, code: str, *, bindings: object, offer: object = None) -> Any:
        raise self.error


def service_of(texts: Any, *, error: Exception | None = None, **options: Any) -> JudgeService:
    """A service whose programs fail with `error`. Tests that run no programs use it, because it opens no real sandbox."""
    return scripted_service(texts, sandbox=BrokenSandbox(error or AssertionError("no program runs here")), **options)


def dialect_app(
    service: JudgeService, *, names: Collection[str] = tuple(DIALECTS), settings: DialectSettings = IMPATIENT
) -> FastAPI:
    app = FastAPI()
    app.add_middleware(CallerIdentity)
    answer_errors(app)
    app.include_router(rewards.router(service, fallbacks=settings.fallbacks))
    app.include_router(batch.router(service))
    for router in routers(service, names=names, settings=settings):
        app.include_router(router)
    return app


Speak = Callable[..., httpx2.AsyncClient]


@pytest.fixture
def speak(connect: Callable[[FastAPI], httpx2.AsyncClient]) -> Speak:
    """Makes a client of a server with dialects: `speak(texts, error=..., settings=..., names=...)`."""

    def make(
        texts: Any, *, error: Exception | None = None, cost_limits: CostLimits | None = None, **options: Any
    ) -> httpx2.AsyncClient:
        service = service_of(texts, error=error, cost_limits=cost_limits or CostLimits())
        return connect(dialect_app(service, **options))

    return make

"""A server that speaks dialects, around the scripted engine."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.judge import Judge
from tirjudge.tools.python import python_tools
from tirjudge_server import batch, rewards
from tirjudge_server.cost import CostLimits
from tirjudge_server.dialects import DIALECTS, DialectSettings, routers
from tirjudge_server.service import JudgeService
from tirjudge_web.errors import answer_errors
from tirjudge_web.identity import CallerIdentity

IMPATIENT = DialectSettings(patience_s=0.0)

PROGRAM = "```python\nprint(1)\n```\n```output"
"""What a model writes to have something run."""

GOOD = (0.9 * 7 + 0.1 * 3 - 1) / 9
"""The reward of a response, where the engine gives 7 with 0.9 and 3 with 0.1."""


class BrokenSandbox:
    """Raises instead of running anything."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def run(self, code: str, *, bindings: object) -> Any:
        raise self.error


def service_of(texts: Any, *, error: Exception | None = None, **options: Any) -> JudgeService:
    """A service whose programs fail with an error; what runs none needs no sandbox, which takes a while to open."""
    engine = ScriptedEngine(texts, label_probs={"A": 0.8, "B": 0.2, "7": 0.9, "3": 0.1})
    sandbox = BrokenSandbox(error or AssertionError("no program runs here"))
    return JudgeService(Judge(engine=engine, tools=python_tools(sandbox)), **options)


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
    """A client of such a server: `speak(texts, error=..., settings=..., names=...)`."""

    def make(
        texts: Any, *, error: Exception | None = None, cost_limits: CostLimits | None = None, **options: Any
    ) -> httpx2.AsyncClient:
        service = service_of(texts, error=error, cost_limits=cost_limits or CostLimits())
        return connect(dialect_app(service, **options))

    return make

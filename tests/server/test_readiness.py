"""`/ready` and `/health`."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import cycle
from typing import Any

import httpx2

from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.errors import SandboxUnavailable
from tirjudge.judge import Judge
from tirjudge.opening import open_model
from tirjudge.tools.python import PythonTool
from tirjudge_server import readiness
from tirjudge_server.app import create_app
from tirjudge_server.service import JudgeService

PRINTS = "```python\nprint(1)\n```\n```output"


async def test_server_is_ready_only_after_a_complete_judgment(make_service, connect) -> None:
    service = make_service([PRINTS, "<preference>A</preference>"])
    app = create_app(service)
    async with connect(app) as client:
        assert (await client.get("/ready")).status_code == 503
        async with app.router.lifespan_context(app):
            await service.readiness.wait()
            assert (await client.get("/ready")).json() == {"ready": True, "problem": None}


async def test_server_with_ended_engine_is_unhealthy(connect, random_checkpoint) -> None:
    async with open_model(f"embedded:{random_checkpoint}") as model:
        judge = Judge(engine=model.engine, profile=model.profile)
        app = create_app(JudgeService(judge, engine_ended=lambda: model.ended))
        async with connect(app) as client:
            assert (await client.get("/health")).json()["status"] == "ok"
            assert isinstance(model.engine, EmbeddedEngine)
            model.engine.close()
            unhealthy = await client.get("/health")
    assert unhealthy.status_code == 503
    assert unhealthy.json()["status"] == "the embedded engine was closed"


async def test_head_returns_the_headers_of_get_without_a_body(make_service, listen) -> None:
    async with listen(create_app(make_service([]))) as url, httpx2.AsyncClient(base_url=url) as client:
        for path, status in (("/health", 200), ("/ready", 503)):
            response = await client.head(path)
            assert (response.status_code, response.content) == (status, b"")


class Flaky:
    """A sandbox that fails while `is_broken` is set."""

    def __init__(self, sandbox: Any) -> None:
        self.sandbox = sandbox
        self.is_broken = False

    async def run(self, code: str, *, bindings: Any, offer: object = None) -> Any:
        if self.is_broken:
            raise SandboxUnavailable("out of order")
        return await self.sandbox.run(code, bindings=bindings)


async def test_server_failure_clears_readiness_until_trial_succeeds(
    make_service, connect, monkeypatch, pairwise
) -> None:
    monkeypatch.setattr(readiness, "RETRY_S", 0.01)
    service = make_service(cycle([PRINTS, "<preference>A</preference>"]))
    flaky = Flaky(service.judge.sandbox)
    service.judge = replace(service.judge, tools=[PythonTool(flaky)])
    app = create_app(service)
    async with connect(app) as client, app.router.lifespan_context(app), asyncio.timeout(5):
        await service.readiness.wait()
        flaky.is_broken = True
        assert (await client.post("/v1/judge", json=pairwise | {"tools": "auto"})).status_code == 503
        unready = await client.get("/ready")
        assert unready.status_code == 503
        assert unready.json()["problem"] == "out of order"
        assert (await client.get("/health")).status_code == 200
        flaky.is_broken = False
        await service.readiness.wait()
        assert (await client.get("/ready")).status_code == 200

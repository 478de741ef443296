"""Many concurrent requests, and a full queue."""

from __future__ import annotations

import asyncio
import re
from itertools import cycle
from typing import Any

import pytest

from tirjudge.client import AsyncClient
from tirjudge.judge import Judge
from tirjudge.opening import open_model
from tirjudge.tools.python import PythonTool
from tirjudge.types import JudgeRequest, Mode
from tirjudge_server.app import create_app
from tirjudge_server.service import JudgeService


async def test_64_concurrent_requests_are_judged_in_order_of_arrival(make_service, connect) -> None:
    service = make_service(cycle(["<preference>A</preference>"]), max_concurrency=4, max_queue=64)

    def body(number: int) -> dict[str, Any]:
        return {"mode": "pairwise", "prompt": f"item {number}.", "responses": ["a", "b"], "tools": "off"}

    async with connect(create_app(service)) as client:
        answers = await asyncio.gather(*(client.post("/v1/judge", json=body(number)) for number in range(64)))
    assert [answer.status_code for answer in answers] == [200] * 64
    engine = service.judge.engine
    prompts = [engine.tokenizer.decode(ids) for ids, sampling, _ in engine.calls if not sampling.allowed_token_ids]
    order = [int(found[1]) for prompt in prompts if (found := re.search(r"item (\d+)\.", prompt))]
    assert order == list(range(64))


@pytest.mark.slow
async def test_64_requests_over_sockets_are_all_answered(sandbox, random_checkpoint, listen) -> None:
    async with open_model(f"embedded:{random_checkpoint}") as model:
        judge = Judge(engine=model.engine, tools=[PythonTool(sandbox)], profile=model.profile)
        async with (
            listen(create_app(JudgeService(judge, max_concurrency=8, max_queue=64))) as url,
            AsyncClient(url) as client,
        ):
            requests = [
                JudgeRequest(mode=Mode.PAIRWISE, prompt=f"item {number}", responses=["a", "b"]) for number in range(64)
            ]
            judgments = await asyncio.gather(*map(client.judge, requests))
    assert len({judgment.id for judgment in judgments}) == 64
    assert max(judgment.timing.queue_s for judgment in judgments) > 0


async def test_full_queue_returns_429_with_retry_after(make_service, connect, pairwise) -> None:
    service = make_service(cycle(["<preference>A</preference>"]), max_concurrency=1, max_queue=0)
    async with connect(create_app(service)) as client:
        with service.admission.enter():
            for body in (pairwise, pairwise | {"stream": True}):
                refused = await client.post("/v1/judge", json=body)
                assert refused.status_code == 429
                assert int(refused.headers["retry-after"]) >= 1
                assert int(refused.headers["retry-after-ms"]) >= 1
                assert refused.json()["error"]["type"] == "rate_limit_error"
        assert (await client.post("/v1/judge", json=pairwise)).status_code == 200
    assert service.admission.num_running == 0

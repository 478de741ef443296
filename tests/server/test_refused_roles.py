"""An engine over HTTP whose chat template refuses the roles of a conversation: the caller's request fails, nothing else."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from tests.reward_servers import vllm_app
from tests.servers import serve_async
from tirjudge.chat_template import CHATML
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.opening import open_judge
from tirjudge_server.app import create_app
from tirjudge_server.service import JudgeService
from tirjudge_server.worker import create_worker

NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + CHATML
)
QUESTION = {"role": "user", "content": "Which?"}
PAIR = {"mode": "pairwise", "prompt": [QUESTION], "responses": ["a", "b"]}
WITH_SYSTEM = PAIR | {"prompt": [{"role": "system", "content": "Be brief."}, QUESTION]}

Connect = Callable[[Any], httpx2.AsyncClient]


@pytest_asyncio.fixture
async def worker_url(random_checkpoint: Path, tmp_path: Path) -> AsyncIterator[str]:
    """URL of a worker whose template refuses system messages."""
    folder = tmp_path / "strict"
    shutil.copytree(random_checkpoint, folder)
    (folder / "chat_template.jinja").write_text(NO_SYSTEM)
    engine = EmbeddedEngine.load(folder)
    async with serve_async(create_worker(engine, name="strict")) as url:
        yield url
    engine.close()


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [1, 2])
async def test_refused_roles_are_a_400_and_others_are_still_judged(
    worker_url: str, connect: Connect, num_workers: int
) -> None:
    address = "vllm:" + ",".join([worker_url, worker_url.replace("127.0.0.1", "localhost")][:num_workers])
    async with open_judge(address, tools=[], format="nemotron-genrm") as judge:
        service = JudgeService(judge)
        async with connect(create_app(service)) as client:
            refused = [await client.post("/v1/judge", json=WITH_SYSTEM) for _ in range(5)]
            judged = await client.post("/v1/judge", json=PAIR)
    assert {response.status_code for response in refused} == {400}
    error = refused[-1].json()["error"]
    assert (error["param"], error["code"]) == ("prompt", "not_shown_by_format")
    for part in ("nemotron-genrm", "system, user, response_1, response_2", "System role not supported"):
        assert part in error["message"]
    assert judged.status_code == 200, judged.text
    assert not service.readiness.engine.is_open


async def test_a_scalar_model_that_refuses_roles_is_not_broken(connect: Connect) -> None:
    app = vllm_app(lambda messages: float(len(messages[-1]["content"])), refused_role="system")
    async with serve_async(app) as url, open_judge(f"classify:{url}", tools=[]) as judge:
        service = JudgeService(judge)
        async with connect(create_app(service)) as client:
            refused = [await client.post("/v1/judge", json=WITH_SYSTEM) for _ in range(4)]
            judged = await client.post("/v1/judge", json=PAIR)
    assert {response.status_code for response in refused} == {400}
    assert "System role not supported" in refused[0].json()["error"]["message"]
    assert judged.status_code == 200, judged.text
    assert not service.readiness.engine.is_open

"""A server whose judge is a scalar reward model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from tirjudge.engines.scripted import ScriptedScalarEngine
from tirjudge.judge import Judge
from tirjudge.profile import Profile
from tirjudge_server.app import create_app
from tirjudge_server.dialects import DIALECTS
from tirjudge_server.service import JudgeService

SCORES = {"great": 17.25, "good": 2.5, "bad": -3.125}


@pytest.fixture
async def client(connect: Any) -> AsyncIterator[httpx2.AsyncClient]:
    engine = ScriptedScalarEngine(lambda prompt, response: SCORES[response])
    service = JudgeService(Judge(engine=engine, profile=Profile(name="reward")))
    async with connect(create_app(service, max_body_bytes=100_000, names=tuple(DIALECTS))) as connected:
        yield connected


async def post(client: httpx2.AsyncClient, path: str, body: Any) -> Any:
    response = await client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def test_judgments_have_raw_scores(client: httpx2.AsyncClient) -> None:
    body = {"prompt": "Hi", "responses": ["bad", "great"]}
    each = await post(client, "/v1/judge", {"mode": "pointwise", **body})
    pair = await post(client, "/v1/judge", {"mode": "pairwise", **body})
    assert each["verdict"]["scores"] == each["raw_scores"] == pair["raw_scores"] == [-3.125, 17.25]
    assert (pair["verdict"]["best"], pair["verdict"]["scores"], pair["model"]) == (1, None, "reward")


@pytest.mark.parametrize("mode", ["pointwise", "expected_score"])
async def test_rewards_are_raw_on_every_scale(client: httpx2.AsyncClient, mode: str) -> None:
    answer = await post(client, "/v1/reward", {"mode": mode, "prompt": "Hi", "responses": ["bad", "great"]})
    rewards = answer["data"][0]["rewards"]
    assert [one["reward"] for one in rewards] == [one["score"] for one in rewards] == [-3.125, 17.25]
    assert answer["scale"] is None


async def test_modes_that_compare_use_probabilities(client: httpx2.AsyncClient) -> None:
    body = {"mode": "cohort", "strategy": "all_pairs", "prompt": "Hi", "responses": ["bad", "great", "good"]}
    answer = await post(client, "/v1/reward", body)
    worst, best, middle = [one["reward"] for one in answer["data"][0]["rewards"]]
    assert (answer["scale"], 0 <= worst < middle < best <= 1) == ([0.0, 1.0], True)


@pytest.mark.parametrize("method", ["pointwise", "expected_score", "knockout", "listwise"])
async def test_rerank(client: httpx2.AsyncClient, method: str) -> None:
    body = {"prompt": "Hi", "responses": ["bad", "great", "good"], "method": method}
    answer = await post(client, "/v1/rerank", body)
    assert answer["best"] == 1
    assert [result["index"] for result in answer["results"]] == [1, 2, 0]


async def test_trainers_get_raw_scores(client: httpx2.AsyncClient) -> None:
    assert await post(client, "/rm", {"prompt": "Hi", "response": "great"}) == 17.25
    answer = await post(client, "/v1/score", {"text_1": "Hi", "text_2": ["bad", "good"]})
    assert [row["score"] for row in answer["data"]] == [-3.125, 2.5]


async def test_chats_and_programs_are_refused(client: httpx2.AsyncClient) -> None:
    chat = {"model": "reward", "messages": [{"role": "user", "content": "Hello!"}]}
    assert (await client.post("/v1/chat/completions", json=chat)).json()["error"]["code"] == "no_model"
    body = {"mode": "pairwise", "prompt": "Hi", "responses": ["bad", "great"], "tools": "on"}
    refused = await client.post("/v1/judge", json=body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "no_programs")

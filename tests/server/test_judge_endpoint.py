"""`POST /v1/judge`, `/v1/models`, `/health` and the OpenAPI schema."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tirjudge.types import Judgment
from tirjudge_server.app import create_app
from tirjudge_server.openapi import ERROR_STATUSES

COUNTS = "Count.\n```python\nprint(len(response_a), len(response_b))\n```\n```output"


async def test_pairwise_request_runs_the_program_and_returns_a_judgment(make_service, connect) -> None:
    service = make_service([COUNTS, "<preference>A</preference>"])
    request = {"mode": "pairwise", "prompt": "Which is longer?", "responses": ["one", "three"]}
    async with connect(create_app(service)) as client:
        response = await client.post("/v1/judge", json=request)
    assert response.status_code == 200
    judgment = Judgment.model_validate_json(response.content)
    first, second = judgment.rollouts[0].order
    lengths = [3, 5]
    assert judgment.rollouts[0].turns[0].output == f"{lengths[first]} {lengths[second]}"
    assert judgment.verdict.best == first
    assert judgment.verdict.probabilities is not None
    assert judgment.verdict.probabilities[first] == pytest.approx(0.8)


async def test_pointwise_request_returns_the_expected_score(make_service, connect) -> None:
    request = {"mode": "pointwise", "prompt": "Say hello.", "responses": ["Hello."], "tools": "off"}
    async with connect(create_app(make_service(["<score>7</score>"]))) as client:
        verdict = (await client.post("/v1/judge", json=request)).json()["verdict"]
    assert verdict["label"] == "7"
    assert verdict["scores"] == [pytest.approx(0.9 * 7 + 0.1 * 3, abs=1e-3)]


async def test_listwise_request_returns_the_best_response(make_service, connect) -> None:
    request = {"mode": "listwise", "prompt": "Say hello.", "responses": list("wxyz"), "tools": "off"}
    async with connect(create_app(make_service(["<preference>B</preference>"]))) as client:
        answer = (await client.post("/v1/judge", json=request)).json()
    assert answer["verdict"]["best"] == answer["rollouts"][0]["order"][1]
    assert sum(answer["verdict"]["probabilities"]) == pytest.approx(1.0)


async def test_a_conversation_can_be_the_prompt(client: httpx2.AsyncClient, pairwise: dict[str, Any]) -> None:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert (await client.post("/v1/judge", json=pairwise | {"prompt": chat})).status_code == 200


async def test_responses_have_the_ids_of_the_request_and_the_judgment(
    client: httpx2.AsyncClient, pairwise: dict[str, Any]
) -> None:
    response = await client.post("/v1/judge", json=pairwise, headers={"x-request-id": "mine-1"})
    assert response.headers["x-request-id"] == "mine-1"
    assert response.headers["x-judgment-id"] == response.json()["id"]
    assert response.headers["openai-processing-ms"].isdecimal()


async def test_an_invalid_request_id_is_replaced(client: httpx2.AsyncClient) -> None:
    response = await client.get("/health", headers={"x-request-id": "a b\t<script>"})
    assert response.headers["x-request-id"].startswith("req_")


async def test_models_are_listed_in_openais_format(make_service, connect) -> None:
    async with connect(create_app(make_service([], fingerprint="0123"))) as client:
        answer = (await client.get("/v1/models")).json()
    assert answer["object"] == "list"
    (card,) = answer["data"]
    assert card | {"id": "judge", "object": "model", "owned_by": "tirjudge", "fingerprint": "0123"} == card
    assert card["modes"] == ["pointwise", "pairwise", "listwise"]


async def test_health_reports_the_sandbox(client: httpx2.AsyncClient) -> None:
    health = (await client.get("/health")).json()
    assert health["status"] == "ok"
    assert health["sandbox"] in ("namespaces+cgroup", "namespaces", "landlock")


@pytest.mark.slow
async def test_openapi_describes_the_request(client: httpx2.AsyncClient) -> None:
    schema = (await client.get("/openapi.json")).json()
    post = schema["paths"]["/v1/judge"]["post"]
    assert post["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/JudgeRequest"}
    assert "responses" in schema["components"]["schemas"]["JudgeRequest"]["properties"]
    assert set(post["responses"]) == {"200", *ERROR_STATUSES}

"""`POST /v1/judge/batch`."""

from __future__ import annotations

from typing import Any

from tests.server.speaking import PROGRAM, Speak, speak
from tirjudge.errors import SandboxUnavailable
from tirjudge.types import Judgment

__all__ = ["speak"]

PAIR = {"mode": "pairwise", "prompt": "p", "responses": ["a", "b"], "tools": "off"}
POINT = {"mode": "pointwise", "prompt": "p", "responses": ["a"], "tools": "off"}


def script(sequence: str) -> str:
    return "<score>7</score>" if "<response>" in sequence else "<preference>A</preference>"


async def post(client: Any, requests: list[Any], *, status: int = 200) -> dict[str, Any]:
    response = await client.post("/v1/judge/batch", json={"requests": requests})
    assert response.status_code == status, response.text
    return response.json()


async def test_results_come_in_the_order_of_the_requests(speak: Speak) -> None:
    async with speak(script) as client:
        answer = await post(client, [PAIR, POINT, PAIR | {"seed": 1}])
    judgments = [Judgment.model_validate(row["judgment"]) for row in answer["data"]]
    assert [judgment.mode for judgment in judgments] == ["pairwise", "pointwise", "pairwise"]
    assert [row["index"] for row in answer["data"]] == [0, 1, 2]


async def test_a_malformed_request_gets_an_error_and_the_others_are_judged(speak: Speak) -> None:
    wrong = [PAIR | {"responses": ["a"]}, PAIR | {"model": "gpt-7"}, PAIR | {"stream": True}, {}]
    async with speak(script) as client:
        answer = await post(client, [PAIR, *wrong])
    assert answer["data"][0]["error"] is None
    assert [row["judgment"] for row in answer["data"][1:]] == [None] * 4
    params = [row["error"]["param"] for row in answer["data"][1:]]
    assert params == ["responses", "model", "stream", "mode"]


async def test_server_failure_of_one_request_is_an_error_in_its_row(speak: Speak) -> None:
    def half(sequence: str) -> str:
        return PROGRAM if "special" in sequence else script(sequence)

    special = PAIR | {"prompt": "special", "tools": "auto"}
    async with speak(half, error=SandboxUnavailable("gone")) as client:
        answer = await post(client, [special, PAIR | {"tools": "auto"}])
        assert answer["data"][0]["error"]["code"] == "sandbox_unavailable"
        assert answer["data"][1]["judgment"]["verdict"]["status"] == "decided"
        await post(client, [special], status=503)


async def test_an_empty_batch_is_refused(speak: Speak) -> None:
    async with speak(script) as client:
        assert (await post(client, [], status=400))["error"]["param"] == "requests"

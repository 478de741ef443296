"""`POST /v1/rerank` in its native format."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.speaking import PROGRAM, Speak, speak
from tirjudge.errors import SandboxUnavailable

__all__ = ["speak"]

BODY = {"prompt": "Say hello.", "responses": ["Hello.", "Hi.", "Hey there."], "tools": "off"}


def prefers(text: str) -> Any:
    """A judge that prefers the response that contains a text, in any position."""

    def script(sequence: str) -> str:
        shown = [part for part in sequence.split("<response_")[1:] if "</response_" in part]
        letter = next((part[0].upper() for part in shown if text in part), "A")
        return f"<preference>{letter}</preference>"

    return script


async def test_listwise_sorts_by_probability(speak: Speak) -> None:
    async with speak(prefers("Hi.")) as client:
        answer = (await client.post("/v1/rerank", json=BODY | {"return_responses": True})).json()
    scores = [result["detail"]["reward"] for result in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    assert sum(scores) == pytest.approx(1.0)
    assert answer["best"] == answer["results"][0]["index"]
    assert all(result["response"] == BODY["responses"][result["index"]] for result in answer["results"])
    assert answer["results"][0]["rank"] == 1


@pytest.mark.parametrize("method", ["knockout", "circular", "all_pairs", "expected_score", "pointwise"])
async def test_every_method_ranks_all(speak: Speak, method: str) -> None:
    said = "<score>7</score>" if method in ("expected_score", "pointwise") else "<preference>A</preference>"
    async with speak(lambda sequence: said) as client:
        answer = (await client.post("/v1/rerank", json=BODY | {"method": method})).json()
    assert sorted(result["index"] for result in answer["results"]) == [0, 1, 2]
    assert answer["method"] == method


async def test_top_n_limits_results(speak: Speak) -> None:
    async with speak(prefers("Hi.")) as client:
        answer = (await client.post("/v1/rerank", json=BODY | {"top_n": 1})).json()
    assert len(answer["results"]) == 1


async def test_single_response_gets_pointwise_score(speak: Speak) -> None:
    async with speak(lambda sequence: "<score>7</score>") as client:
        answer = (await client.post("/v1/rerank", json=BODY | {"responses": ["Hello."]})).json()
    assert answer["best"] == 0
    assert answer["results"][0]["detail"]["score"] == pytest.approx(6.6, abs=1e-3)


async def test_missing_scores_come_last_without_rank(speak: Speak) -> None:
    def script(sequence: str) -> str:
        return PROGRAM if "Hello." in sequence else "<score>7</score>"

    body = BODY | {"method": "expected_score", "tools": "auto"}
    async with speak(script, error=SandboxUnavailable("gone")) as client:
        answer = (await client.post("/v1/rerank", json=body)).json()
    last = answer["results"][-1]
    assert (last["index"], last["rank"], last["detail"]["status"]) == (0, None, "failed")


async def test_documents_are_unknown_if_the_dialect_is_off(speak: Speak) -> None:
    body = {"query": "q", "documents": ["a"]}
    async with speak(lambda sequence: "<score>7</score>", names=["slime"]) as client:
        response = await client.post("/v1/rerank", json=body)
    assert response.status_code == 400
    assert (await _status(speak, "/rerank", body, names=["slime"])) == 404


async def _status(speak: Speak, path: str, body: dict[str, Any], **options: Any) -> int:
    async with speak(lambda sequence: "<score>7</score>", **options) as client:
        return (await client.post(path, json=body)).status_code

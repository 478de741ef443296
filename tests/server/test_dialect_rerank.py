"""Reranking with Cohere's real client, and in the formats of Jina, vLLM and text-embeddings-inference."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.speaking import PROGRAM, Speak, dialect_app, service_of, speak
from tirjudge.errors import SandboxUnavailable

__all__ = ["speak"]

DOCUMENTS = ["It rains in Paris.", "Paris is the capital of France.", "Horses."]
QUERY = "What is the capital of France?"


def prefers_capital(sequence: str) -> str:
    shown = [part for part in sequence.split("<response_")[1:] if "</response_" in part]
    letter = next(part[0].upper() for part in shown if "capital of France" in part)
    return f"<preference>{letter}</preference>"


IGNORE_COHERES_WARNING = pytest.mark.filterwarnings("ignore:.asyncio.iscoroutinefunction:DeprecationWarning")
"""Cohere's client calls a function that Python 3.14 deprecates."""


@pytest.fixture
def cohere_client(listen: Any) -> Any:
    cohere = pytest.importorskip("cohere")
    return lambda url, **options: cohere.AsyncClientV2(api_key="none", base_url=url, **options)


@IGNORE_COHERES_WARNING
async def test_coheres_client_reranks(cohere_client: Any, listen: Any) -> None:
    async with listen(dialect_app(service_of(prefers_capital))) as url, cohere_client(url) as client:
        answer = await client.rerank(model="rerank-v4.0", query=QUERY, documents=DOCUMENTS, top_n=2)
    assert len(answer.results) == 2
    scores = [result.relevance_score for result in answer.results]
    assert scores == sorted(scores, reverse=True)
    assert answer.id
    assert answer.meta.billed_units.search_units == 1


@IGNORE_COHERES_WARNING
async def test_coheres_client_raises_server_failures(cohere_client: Any, listen: Any) -> None:
    cohere = pytest.importorskip("cohere")
    service = service_of(lambda sequence: PROGRAM, error=SandboxUnavailable("gone"))
    once = {"max_retries": 0}
    async with listen(dialect_app(service)) as url, cohere_client(url) as client:
        with pytest.raises(cohere.ServiceUnavailableError):
            await client.rerank(model="m", query=QUERY, documents=DOCUMENTS, request_options=once)


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank"])
async def test_jina_and_vllm_get_an_object_with_documents(speak: Speak, path: str) -> None:
    body = {"model": "m", "query": QUERY, "documents": [DOCUMENTS[0], {"text": DOCUMENTS[1]}, DOCUMENTS[2]], "top_n": 0}
    async with speak(prefers_capital) as client:
        answer = (await client.post(path, json=body)).json()
    assert set(answer) == {"id", "model", "usage", "meta", "results"}
    assert len(answer["results"]) == 3
    for result in answer["results"]:
        assert result["document"] == {"text": DOCUMENTS[result["index"]]}
    assert sum(result["relevance_score"] for result in answer["results"]) == pytest.approx(1.0)


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank"])
@pytest.mark.parametrize("with_text", [True, False])
async def test_text_embeddings_inference_gets_a_bare_list(speak: Speak, path: str, with_text: bool) -> None:
    body = {"query": QUERY, "texts": DOCUMENTS, "raw_scores": False, "return_text": with_text}
    async with speak(prefers_capital) as client:
        answer = (await client.post(path, json=body)).json()
    assert isinstance(answer, list)
    assert all(set(row) == ({"index", "score", "text"} if with_text else {"index", "score"}) for row in answer)
    assert [row["score"] for row in answer] == sorted((row["score"] for row in answer), reverse=True)


async def test_a_negative_number_of_results_selects_all(speak: Speak) -> None:
    async with speak(prefers_capital) as client:
        answer = await client.post("/rerank", json={"query": QUERY, "documents": DOCUMENTS, "top_n": -1})
    assert len(answer.json()["results"]) == 3


async def test_native_requests_are_answered_on_the_shared_path(speak: Speak) -> None:
    async with speak(prefers_capital) as client:
        body = {"prompt": QUERY, "responses": DOCUMENTS, "tools": "off"}
        answer = (await client.post("/v1/rerank", json=body)).json()
    assert answer["object"] == "rerank"


async def test_document_without_score_is_omitted(speak: Speak) -> None:
    def script(sequence: str) -> str:
        return PROGRAM if "Horses" in sequence else "<score>7</score>"

    async with speak(script, error=SandboxUnavailable("gone")) as client:
        response = await client.post("/rerank?method=expected_score", json={"query": QUERY, "documents": DOCUMENTS})
    assert sorted(result["index"] for result in response.json()["results"]) == [0, 1]
    assert "document 2" in response.json()["meta"]["warnings"][0]
    assert response.headers["x-judge-failed"] == "1"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/rerank", {"query": "q"}, "documents"),
        ("/rerank", {"documents": ["a"]}, "query"),
        ("/rerank", {"query": "q", "documents": []}, "documents"),
        ("/rerank?method=best", {"query": "q", "documents": ["a"]}, "method"),
    ],
)
async def test_error_for_a_wrong_field_names_it(speak: Speak, path: str, body: dict[str, Any], param: str) -> None:
    async with speak(prefers_capital) as client:
        response = await client.post(path, json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param

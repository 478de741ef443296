"""Reranking as Cohere's and Jina's clients ask for it (`documents`), and those of text-embeddings-inference (`texts`).

One judgment over all documents, by default; `?method=expected_score` judges each by itself. A document without a score is
left out, as it would be by `top_n`. If nothing could be judged for a reason of ours, the answer is an HTTP error, which these
clients retry or raise.
"""

from __future__ import annotations

import uuid
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import ConfigDict, Field

from tirjudge.http.protocol import invalid
from tirjudge.http.rewards import Method
from tirjudge.types import MAX_RESPONSES, Integer, Text
from tirjudge_server.dialects.context import DialectContext, DialectSettings, ForeignRequest, attend, one_of
from tirjudge_server.reranking import Foreign, reward_order, score_candidates
from tirjudge_server.scoring import ResponseGroup, ResponseScore
from tirjudge_server.service import JudgeService
from tirjudge_web.errors import Refused

PATHS = ("/rerank", "/v2/rerank")
"""Besides the native path, where `reranking` hands on what is not native."""
DEADLINE_S = 60.0


class ForeignDocument(ForeignRequest):
    text: Text


class ForeignRerank(ForeignRequest):
    """Cohere, Jina, vLLM: `documents`. text-embeddings-inference: `texts`."""

    model_config = ConfigDict(json_schema_extra=one_of("documents", "texts"))

    query: Text
    documents: list[Text | ForeignDocument] | None = Field(default=None, min_length=1, max_length=MAX_RESPONSES)
    texts: list[Text] | None = Field(default=None, min_length=1, max_length=MAX_RESPONSES)
    top_n: Integer | None = None
    """How many results to give; None or 0: all."""
    return_documents: bool = True
    return_text: bool = False

    @property
    def candidates(self) -> list[str]:
        """Raises:
        Refused: there are none.
        """
        if self.texts is not None:
            return self.texts
        if self.documents is None:
            message = "documents: not given, and neither is `texts`"
            raise Refused(invalid(message, param="documents", code="missing"))
        return [document if isinstance(document, str) else document.text for document in self.documents]


REQUESTS = dict.fromkeys(PATHS, ForeignRerank)
"""What is posted where."""


def router(service: JudgeService, *, settings: DialectSettings) -> APIRouter:
    """The endpoints that are nobody else's."""
    routes = APIRouter()
    answer = foreign(service, settings=settings)

    async def rerank(request: Request) -> Response:
        """Rerank documents."""
        return await answer(request, None)

    for path in PATHS:
        routes.post(path, operation_id=path[1:].replace("/", "_"))(rerank)
    return routes


def foreign(service: JudgeService, *, settings: DialectSettings) -> Foreign:
    """What answers bodies of these shapes."""

    async def answer(request: Request, body: bytes | None) -> Response:
        method = _method(request.query_params.get("method", Method.LISTWISE.value))

        async def reply(asked: ForeignRerank, desk: DialectContext) -> Any:
            return await _reply(asked, desk, method=method, path=request.url.path)

        return await attend(
            request,
            ForeignRerank,
            reply,
            dialect="rerank_shapes",
            service=service,
            settings=settings,
            deadline_s=DEADLINE_S,
            body=body,
        )

    return answer


def _method(given: str) -> Method:
    if given not in list(Method):
        message = f"method: {given!r} given; expected: {', '.join(Method)}"
        raise Refused(invalid(message, param="method", code="invalid_value"))
    return Method(given)


async def _reply(asked: ForeignRerank, desk: DialectContext, *, method: Method, path: str) -> Any:
    texts = asked.candidates
    group = ResponseGroup(prompt=asked.query, responses=tuple(texts))
    judging = dict(desk.scoring.judging)
    rewards = await score_candidates(group, method=method, judging=judging, inquiry=desk.inquiry)
    desk.note(rewards)
    order = [index for index in reward_order(rewards) if rewards[index].is_scored]
    if asked.texts is not None:
        return [_tei(index, rewards=rewards, asked=asked) for index in order]
    results = [_result(index, rewards=rewards, texts=texts, asked=asked, path=path) for index in order]
    return {
        "id": f"rerank-{uuid.uuid4().hex}",
        "model": desk.model,
        "results": results[: asked.top_n or None],
        "usage": {**desk.usage(), "search_units": 1},
        "meta": {
            "api_version": {"version": "2"},
            "billed_units": {"search_units": 1},
            "warnings": [f"document {i}: {r.absence}: {r.reason}" for i, r in enumerate(rewards) if not r.is_scored],
        },
    }


def _result(
    index: int, *, rewards: list[ResponseScore], texts: list[str], asked: ForeignRerank, path: str
) -> dict[str, Any]:
    result: dict[str, Any] = {"index": index, "relevance_score": rewards[index].value}
    # Cohere's second version has no documents in its results.
    return result | ({"document": {"text": texts[index]}} if asked.return_documents and path != "/v2/rerank" else {})


def _tei(index: int, *, rewards: list[ResponseScore], asked: ForeignRerank) -> dict[str, Any]:
    result: dict[str, Any] = {"index": index, "score": rewards[index].value}
    return result | ({"text": asked.texts[index]} if asked.return_text and asked.texts is not None else {})

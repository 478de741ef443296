"""Reranking in the formats of Cohere and Jina (`documents`) and of text-embeddings-inference (`texts`).

By default one judgment compares all documents; `?method=expected_score` scores each document separately. A document without
a score is omitted from the results. If every score failed because of the server, the response is an HTTP error, which
these clients retry or raise.
"""

from __future__ import annotations

import uuid
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from tirjudge.http.protocol import invalid
from tirjudge.http.rewards import RERANK_PATH
from tirjudge.strategies import RankingStrategy
from tirjudge.types import MAX_RESPONSES, Integer, Text
from tirjudge_server.dialects.base import Dialect, DialectEndpoint
from tirjudge_server.dialects.bodies import ForeignRequest, one_of
from tirjudge_server.dialects.context import DialectContext
from tirjudge_server.dialects.options import DialectOptions
from tirjudge_server.failure import FailureRow, FailureStyle
from tirjudge_server.reranking import reward_order, score_candidates
from tirjudge_server.scoring import ResponseGroup
from tirjudge_web.errors import Refused


class ForeignDocument(ForeignRequest):
    """A document as an object."""

    text: Text
    """Text of the document. Other fields of the object are ignored."""


class ForeignRerank(ForeignRequest):
    """A query with the documents to rank. Cohere, Jina and vLLM send `documents`, text-embeddings-inference `texts`."""

    model_config = ConfigDict(json_schema_extra=one_of("documents", "texts"))

    query: Text
    """The query, which the judge sees as the prompt."""
    documents: list[Text | ForeignDocument] | None = Field(default=None, min_length=1, max_length=MAX_RESPONSES)
    """The documents, as texts or as objects with a text. Ignored if `texts` is given. None: `texts` has them."""
    texts: list[Text] | None = Field(default=None, min_length=1, max_length=MAX_RESPONSES)
    """The documents, as text-embeddings-inference names them. They select its format of the response. None: `documents`
    has them."""
    top_n: Integer | None = None
    """Maximum number of results for `documents`; None, 0 or less: all. Ignored for `texts`."""
    return_documents: bool = True
    """Whether the results of `documents` repeat the documents. `/v2/rerank` never repeats them."""
    return_text: bool = False
    """Whether the results of `texts` repeat the texts."""

    @property
    def candidates(self) -> list[str]:
        """The texts to rank.

        Raises:
            Refused: 400, the request has neither `documents` nor `texts`.
        """
        if self.texts is not None:
            return self.texts
        if self.documents is None:
            message = "documents: missing; give `documents` or `texts`"
            raise Refused(invalid(message, param="documents", code="missing"))
        return [document if isinstance(document, str) else document.text for document in self.documents]


class RankedText(BaseModel):
    """A text in the format of text-embeddings-inference."""

    index: int
    """Index of the text in the request."""
    score: float
    """Its score."""
    text: str = ""
    """The text. Absent without `return_text`."""


class RankedDocument(BaseModel):
    """A document in the format of Cohere and Jina."""

    index: int
    """Index of the document in the request."""
    relevance_score: float
    """Its score."""
    document: ForeignDocument | None = None
    """The document. Absent without `return_documents`, and at `/v2/rerank`."""


class RerankUsage(BaseModel):
    """Token counts, 0 if the endpoint of the model does not report them, and billed units."""

    prompt_tokens: int
    """Number of tokens that the model read."""
    completion_tokens: int
    """Number of tokens that the model wrote."""
    total_tokens: int
    """Sum of both."""
    search_units: int
    """Always 1."""


class RerankMeta(BaseModel):
    """Fields of Cohere's format."""

    api_version: dict[str, str]
    """Version of Cohere's API."""
    billed_units: dict[str, int]
    """Always one search unit."""
    warnings: list[str]
    """The documents without a score, with the reasons."""


class RankedDocuments(BaseModel):
    """Results in the format of Cohere and Jina, for `documents`."""

    id: str
    """Id of the response."""
    model: str
    """Name of the judge."""
    results: list[RankedDocument]
    """The documents with a score, the best first, at most `top_n`."""
    usage: RerankUsage
    """Token counts."""
    meta: RerankMeta
    """Fields of Cohere's format."""


class RerankOptions(DialectOptions):
    """Options with a ranking method."""

    method: RankingStrategy = "listwise"
    """How documents are ranked."""


async def reply(asked: ForeignRerank, context: DialectContext) -> Any:
    """Rank the documents; respond in the format of the request."""
    texts = asked.candidates
    group = ResponseGroup(prompt=asked.query, responses=tuple(texts))
    judging = dict(context.scoring.judging)
    rewards = await score_candidates(group, method=context.options.method, judging=judging, batch=context.batch)
    context.note(rewards)
    order = [index for index in reward_order(rewards) if rewards[index].is_scored]
    if asked.texts is not None:
        shown = [{"text": text} if asked.return_text else {} for text in texts]
        return [{"index": index, "score": rewards[index].value, **shown[index]} for index in order]
    # Version 2 of Cohere's API returns no documents.
    has_documents = asked.return_documents and context.path != "/v2/rerank"
    shown = [{"document": {"text": text}} if has_documents else {} for text in texts]
    results = [{"index": index, "relevance_score": rewards[index].value, **shown[index]} for index in order]
    return {
        "id": f"rerank-{uuid.uuid4().hex}",
        "model": context.model,
        "results": results[: max(0, asked.top_n or 0) or None],
        "usage": {**context.usage(), "search_units": 1},
        "meta": {
            "api_version": {"version": "2"},
            "billed_units": {"search_units": 1},
            "warnings": [f"document {i}: {r.missing}: {r.reason}" for i, r in enumerate(rewards) if not r.is_scored],
        },
    }


_TEXTS = ["The sky is blue.", "Berlin is the capital of Germany."]
_EXAMPLES = {
    "Cohere, Jina or vLLM": {"query": "What is the capital of Germany?", "documents": _TEXTS, "top_n": 1},
    "text-embeddings-inference": {"query": "What is the capital of Germany?", "texts": _TEXTS, "return_text": True},
}

DIALECT = Dialect(
    name="rerank_shapes",
    endpoints=[
        DialectEndpoint(
            path=path,
            body=ForeignRerank,
            reply=reply,
            summary="Rerank documents.",
            examples=_EXAMPLES,
            answer=RankedDocuments | list[RankedText],
        )
        for path in ("/rerank", RERANK_PATH, "/v2/rerank")
    ],
    deadline_s=60.0,
    failures=FailureRow(judge=FailureStyle.LEFT_OUT, server=FailureStyle.ERROR),
    options=RerankOptions,
)

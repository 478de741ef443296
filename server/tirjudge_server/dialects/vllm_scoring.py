"""vLLM's `/score`, `/v1/score`, `/classify` and `/pooling`, as its clients and verl's reward loop call them.

A score is the reward of the second text as an answer to the first; a class is one alone, and its probability the reward.
verl tries a failing server sixteen times and then ends the run: so every item is always answered, and `judge_failed` beside
it says where a number stands in.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import ConfigDict, model_validator

from tirjudge.integrations.detemplate import detemplate, view_of
from tirjudge.types import Text
from tirjudge_server.dialects.context import (
    DialectContext,
    DialectSettings,
    ForeignMessage,
    ForeignRequest,
    Reply,
    attend,
    chat_message,
    one_of,
)
from tirjudge_server.scoring import ResponseGroup, ResponseScore
from tirjudge_server.service import JudgeService

SCORE_PATHS = ("/score", "/v1/score")
CLASSIFY_PATH = "/classify"
POOLING_PATH = "/pooling"
DEADLINE_S = 600.0

Texts = Text | list[Text]

_PAIRS = (("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2"))
"""The names under which vLLM takes the two sides."""


class VllmScore(ForeignRequest):
    """Pairs of texts: as many on both sides, or one on the first side for all of the second."""

    text_1: Texts | None = None
    text_2: Texts | None = None
    queries: Texts | None = None
    documents: Texts | None = None
    items: Texts | None = None
    data_1: Texts | None = None
    data_2: Texts | None = None
    instruction: Text | None = None
    """How to judge; None leaves it to the judge."""

    @model_validator(mode="after")
    def _has_pairs(self) -> VllmScore:
        first, second = self.sides
        if len(first) not in (1, len(second)):
            raise ValueError(f"text_1: {len(first)} given for {len(second)} in `text_2`; as many or one would do")
        return self

    @property
    def sides(self) -> tuple[list[str], list[str]]:
        """Questions and answers.

        Raises:
            ValueError: none of the names is given on both sides.
        """
        for one, other in _PAIRS:
            first, second = getattr(self, one), getattr(self, other)
            if first is not None and second is not None:
                return _listed(first), _listed(second)
        raise ValueError("text_1: not given together with `text_2`, and neither is any other pair of names")

    @property
    def pairs(self) -> list[tuple[str, str]]:
        first, second = self.sides
        return list(zip(first * len(second) if len(first) == 1 else first, second, strict=True))


class VllmPooling(ForeignRequest):
    """Rendered chats in `input`, or one conversation in `messages`; the last turn is judged."""

    model_config = ConfigDict(json_schema_extra=one_of("input", "messages"))

    input: Texts | None = None
    messages: list[ForeignMessage] | None = None

    @model_validator(mode="after")
    def _has_input(self) -> VllmPooling:
        if self.input is None and self.messages is None:
            raise ValueError("input: not given, and neither is `messages`")
        return self


REQUESTS = {**dict.fromkeys(SCORE_PATHS, VllmScore), CLASSIFY_PATH: VllmPooling, POOLING_PATH: VllmPooling}
"""What is posted where."""


def router(service: JudgeService, *, settings: DialectSettings) -> APIRouter:
    """The endpoints."""
    routes = APIRouter()

    async def answer(request: Request, model: type[ForeignRequest], reply: Reply) -> Response:
        return await attend(
            request,
            model,
            reply,
            dialect="vllm_scoring",
            service=service,
            settings=settings,
            deadline_s=DEADLINE_S,
        )

    async def score(request: Request) -> Response:
        """vLLM's similarity score."""
        return await answer(request, VllmScore, _score)

    for path in SCORE_PATHS:
        routes.post(path, operation_id=path[1:].replace("/", "_"))(score)

    @routes.post(CLASSIFY_PATH)
    async def classify(request: Request) -> Response:
        """vLLM's classification, with the reward as the one class."""
        return await answer(request, VllmPooling, _classify)

    @routes.post(POOLING_PATH)
    async def pooling(request: Request) -> Response:
        """vLLM's pooling, with the reward as the one number."""
        return await answer(request, VllmPooling, _pooling)

    return routes


async def _score(asked: VllmScore, desk: DialectContext) -> dict[str, Any]:
    if asked.instruction is not None and "rubric" not in desk.scoring.judging:
        desk.scoring = desk.scoring.judged_with(rubric=asked.instruction)
    desk.check_samples(len(asked.sides[1]))
    groups = [
        ResponseGroup(prompt=first, responses=(view_of(second, view=desk.view),)) for first, second in asked.pairs
    ]
    rewards = await desk.score_each(groups)
    rows = [{"object": "score", "score": desk.number(reward)} for reward in rewards]
    return _listing("score", rows, rewards=rewards, desk=desk)


async def _classify(asked: VllmPooling, desk: DialectContext) -> dict[str, Any]:
    rewards = await desk.score_each(await asyncio.to_thread(_groups, asked, desk=desk))
    rows = [{"label": "LABEL_0", "probs": [desk.number(reward)], "num_classes": 1} for reward in rewards]
    return _listing("classify", rows, rewards=rewards, desk=desk)


async def _pooling(asked: VllmPooling, desk: DialectContext) -> dict[str, Any]:
    rewards = await desk.score_each(await asyncio.to_thread(_groups, asked, desk=desk))
    rows = [{"object": "pooling", "data": [desk.number(reward)]} for reward in rewards]
    return _listing("pool", rows, rewards=rewards, desk=desk)


def _groups(asked: VllmPooling, *, desk: DialectContext) -> list[ResponseGroup | None]:
    if asked.messages is not None:
        chat = [chat_message(message) for message in asked.messages]
        if len(chat) < 2 or chat[-1].role != "assistant":
            return [None]
        return [ResponseGroup(prompt=tuple(chat[:-1]), responses=(view_of(chat[-1].content, view=desk.view),))]
    texts = _listed(asked.input or [])
    desk.check_samples(len(texts))
    exchanges = [detemplate(text, view=desk.view) for text in texts]
    return [None if e is None else ResponseGroup(prompt=e.prompt, responses=(e.response,)) for e in exchanges]


def _listing(
    prefix: str, rows: list[dict[str, Any]], *, rewards: list[ResponseScore], desk: DialectContext
) -> dict[str, Any]:
    data = [
        {"index": index, **row, "judge_failed": not reward.is_scored}
        for index, (row, reward) in enumerate(zip(rows, rewards, strict=True))
    ]
    return {
        "id": f"{prefix}-{uuid.uuid4().hex}",
        "object": "list",
        "created": int(time.time()),
        "model": desk.model,
        "data": data,
        "usage": desk.usage(),
    }


def _listed(given: Texts) -> list[str]:
    return [given] if isinstance(given, str) else given

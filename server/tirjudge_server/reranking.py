"""`POST /v1/rerank`: ranks N responses to a prompt.

Cohere and Jina use the same path. A body with `documents` or `texts` has their format, and is handed to that dialect if it
is enabled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from tirjudge.best_of_n import best_first
from tirjudge.http.rewards import (
    RERANK_PATH,
    Ranked,
    RerankAnswer,
    RerankRequest,
    RewardMode,
)
from tirjudge.strategies import STRATEGIES
from tirjudge_server.call import Priority, call_of
from tirjudge_server.failure import NATIVE_FAILURES, Fallbacks
from tirjudge_server.request_batch import RequestBatch
from tirjudge_server.rewards import MAX_BODY_BYTES, answer_headers, check_groups, response_reward, usage_of
from tirjudge_server.scoring import (
    ResponseGroup,
    ResponseScore,
    Scoring,
    count_missing,
    only_failures,
    score_group,
)
from tirjudge_server.service import JudgeService
from tirjudge_web.body import parse_body, read_body
from tirjudge_web.connection import while_connected
from tirjudge_web.openapi import answers_with

Foreign = Callable[[Request, bytes | None], Awaitable[Response]]
"""Handles a request in another protocol's format, given its body; None: the body was not read yet."""


REQUESTS = {RERANK_PATH: RerankRequest}
"""Path -> model of its request body."""


class _Shape(BaseModel):
    """The fields of a body that show whether it has another protocol's format."""

    documents: Any = None
    texts: Any = None


def router(
    service: JudgeService,
    *,
    max_body_bytes: int = MAX_BODY_BYTES,
    fallbacks: Fallbacks | None = None,
    foreign: Foreign | None = None,
    foreign_answer: Any = None,
) -> APIRouter:
    """The rerank endpoint.

    Args:
        service: judges the responses.
        max_body_bytes: maximum size of a request body.
        fallbacks: counts missing scores; None: they are not exported.
        foreign: handles bodies with `documents` or `texts`; None: these fields are rejected as unknown.
        foreign_answer: type of the response to such bodies, for the OpenAPI schema; None: only the native one is described.
    """
    routes = APIRouter()
    counted = fallbacks or Fallbacks()

    described = RerankAnswer if foreign_answer is None else RerankAnswer | foreign_answer

    @routes.post(RERANK_PATH, responses=answers_with(described))
    async def rerank(request: Request) -> Response:
        """Rank responses to a prompt."""
        async with service.draining.limit():
            body = await read_body(request, max_bytes=max_body_bytes)
        if foreign is not None:
            shape = parse_body(body, _Shape)
            if shape.documents is not None or shape.texts is not None:
                return await foreign(request, body)
        asked = parse_body(body, RerankRequest)
        call = call_of(request, dialect="rerank", priority=Priority.REWARD, deadline_s=asked.deadline_s)
        batch = RequestBatch(service, call=call)
        return await while_connected(request.receive, _answer(asked, batch=batch, fallbacks=counted))

    return routes


async def score_candidates(
    group: ResponseGroup, *, method: str, judging: dict[str, Any], batch: RequestBatch
) -> list[ResponseScore]:
    """Score each response from 0 to 1. A single response gets a pointwise score.

    Args:
        group: the responses to one prompt.
        method: a reward mode or a strategy.
        judging: fields of the judge requests, such as `tools` and `votes`.
        batch: judges the requests.

    Raises:
        Refused: the request is invalid, or it costs too much.
        QueueFull, EngineUnavailable, ...: every score failed because of the server. The first failure is raised.
    """
    if len(group.responses) == 1 and STRATEGIES[method].compares:
        method = RewardMode.EXPECTED_SCORE
    if method in (RewardMode.POINTWISE, RewardMode.EXPECTED_SCORE):
        scoring = Scoring(mode=RewardMode(method), judging=judging)
    else:
        scoring = Scoring(mode=RewardMode.COHORT, strategy=method, judging=judging)
    check_groups([group], scoring=scoring, service=batch.service, param="responses")
    rewards = await score_group(group, scoring=scoring, ask=batch.ask)
    error = only_failures(rewards)
    if error is not None:
        raise error
    return rewards


def reward_order(rewards: Sequence[ResponseScore]) -> list[int]:
    """Indexes sorted by score, best first. Ties keep the order of the request; missing scores come last."""
    return best_first([reward.value for reward in rewards])


async def _answer(asked: RerankRequest, *, batch: RequestBatch, fallbacks: Fallbacks) -> Response:
    prompt = asked.prompt if isinstance(asked.prompt, str) else tuple(asked.prompt)
    group = ResponseGroup(prompt=prompt, responses=tuple(asked.responses), reference=asked.reference)
    rewards = await score_candidates(group, method=asked.method, judging=asked.judging, batch=batch)
    count_missing(rewards, label="rerank", row=NATIVE_FAILURES, fallbacks=fallbacks)
    order = reward_order(rewards)
    scores = sorted(reward.value for reward in rewards if reward.value is not None)
    ranks: dict[float | None, int] = dict(
        zip(scores, range(len(scores), 0, -1), strict=True)
    )  # equal scores share the best rank
    results = [
        Ranked(
            index=index,
            rank=ranks.get(rewards[index].value),
            response=asked.responses[index] if asked.return_responses else None,
            detail=response_reward(rewards[index]),
        )
        for index in order
    ]
    answer = RerankAnswer(
        model=batch.service.judge.profile.name,
        method=asked.method,
        best=order[0] if rewards[order[0]].is_scored else None,
        results=results[: asked.top_n],
        usage=usage_of(batch),
    )
    headers = answer_headers(rewards, judgment_ids=batch.judgment_ids)
    return Response(answer.model_dump_json(), headers=headers, media_type="application/json")

"""`POST /v1/rerank`: the best of N responses to a prompt, and the order of the others.

The same path is Cohere's and Jina's. A body with `documents` or `texts` is theirs, and is handed on if that dialect is on.
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

Foreign = Callable[[Request, bytes | None], Awaitable[Response]]
"""Answers a body of another shape; None: it was not read yet."""


REQUESTS = {RERANK_PATH: RerankRequest}
"""What is posted where."""


class _Shape(BaseModel):
    """Enough of a body to see whose it is."""

    documents: Any = None
    texts: Any = None


def router(
    service: JudgeService,
    *,
    max_body_bytes: int = MAX_BODY_BYTES,
    fallbacks: Fallbacks | None = None,
    foreign: Foreign | None = None,
) -> APIRouter:
    """The endpoint.

    Args:
        service: judges.
        max_body_bytes: of a request.
        fallbacks: counts the scores that are missing.
        foreign: answers bodies with `documents` or `texts`; None: these are unknown fields.
    """
    routes = APIRouter()
    counted = fallbacks or Fallbacks()

    @routes.post(RERANK_PATH, response_model=RerankAnswer)
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
    """A score for each response, from 0 to 1; a single response is judged by itself.

    Raises:
        Refused: the judge takes no such request, or it costs too much.
        QueueFull, EngineUnavailable, ...: nothing could be judged, and for this reason first.
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
    """Indexes in the order of their scores; equal ones in their own order, those without a score at the end."""
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

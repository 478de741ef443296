"""eval-protocol and Fireworks: `RewardFunction(mode="remote", endpoint="http://host:8400/reward")`, and `/evaluate`.

The last message is judged. Without a score, `is_score_valid` is false and `error` says why; the remote mode of the client
drops both and reads `success` of each metric instead, so that is false as well.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from tirjudge.integrations.detemplate import view_of
from tirjudge_server.dialects.context import (
    DialectContext,
    DialectSettings,
    ForeignMessage,
    ForeignRequest,
    attend,
    chat_message,
    text_of,
)
from tirjudge_server.scoring import ResponseGroup, ResponseScore
from tirjudge_server.service import JudgeService

PATHS = ("/evaluate", "/reward")
DEADLINE_S = 600.0


class EvalProtocolRequest(ForeignRequest):
    messages: list[ForeignMessage] = Field(min_length=1)
    """The conversation; its last message is the response."""
    ground_truth: Any = None
    """Reference answer, as text or as messages; None if there is none."""


REQUESTS = dict.fromkeys(PATHS, EvalProtocolRequest)
"""What is posted where."""


def router(service: JudgeService, *, settings: DialectSettings) -> APIRouter:
    """The endpoints."""
    routes = APIRouter()

    async def evaluate(request: Request) -> Response:
        """eval-protocol's remote evaluator."""
        return await attend(
            request,
            EvalProtocolRequest,
            _reply,
            dialect="eval_protocol",
            service=service,
            settings=settings,
            deadline_s=DEADLINE_S,
        )

    for path in PATHS:
        routes.post(path, operation_id=path[1:])(evaluate)
    return routes


async def _reply(asked: EvalProtocolRequest, desk: DialectContext) -> dict[str, Any]:
    (reward,) = await desk.score_each([await asyncio.to_thread(_group, asked, desk=desk)])
    return _result(reward, score=desk.number(reward))


def _group(asked: EvalProtocolRequest, *, desk: DialectContext) -> ResponseGroup | None:
    *before, last = [chat_message(message) for message in asked.messages]
    if last.role != "assistant" or not before:
        return None
    response = view_of(last.content, view=desk.view)
    return ResponseGroup(prompt=tuple(before), responses=(response,), reference=_reference(asked.ground_truth))


def _reference(given: Any) -> str | None:
    """Ground truth may be a list of messages, of which the last is the answer."""
    if isinstance(given, list) and given and isinstance(given[-1], dict):
        given = given[-1].get("content")
    return text_of(given)


def _result(reward: ResponseScore, *, score: float) -> dict[str, Any]:
    said = reward.reason or ("judged" if reward.is_scored else "no score")
    metric = {"score": score, "is_score_valid": reward.is_scored, "success": reward.is_scored, "reason": said}
    return {
        "score": score,
        "is_score_valid": reward.is_scored,
        "reason": said,
        "metrics": {"judge": metric},
        "step_outputs": None,
        "error": None if reward.absence is None else f"{reward.absence}: {said}",
    }

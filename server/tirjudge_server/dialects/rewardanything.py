"""RewardAnything: `rewardanything.Client("http://host:8400")`. Named responses are scored from 1 to 5 by a principle.

The client waits 30 s and tries four times. A response without a score is left out; if that is all of them for a reason of
ours, the answer is an HTTP error.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from tirjudge.http.rewards import RewardMode
from tirjudge.integrations.detemplate import view_of
from tirjudge.types import MAX_RESPONSES, Text
from tirjudge_server.dialects.context import DialectContext, DialectSettings, ForeignRequest, attend
from tirjudge_server.reranking import reward_order
from tirjudge_server.scoring import ResponseGroup
from tirjudge_server.service import JudgeService

PATH = "/api/rewardanything"
DEADLINE_S = 25.0
SCALE = (1.0, 5.0)


class RewardAnythingRequest(ForeignRequest):
    principle: Text
    prompt: Text
    responses: dict[Text, Text] = Field(min_length=1, max_length=MAX_RESPONSES)
    """Name -> text; names are never shown to the judge."""


REQUESTS = {PATH: RewardAnythingRequest}
"""What is posted where."""


def router(service: JudgeService, *, settings: DialectSettings) -> APIRouter:
    """The endpoint."""
    routes = APIRouter()

    @routes.post(PATH)
    async def rewardanything(request: Request) -> Response:
        """RewardAnything's evaluation."""
        return await attend(
            request,
            RewardAnythingRequest,
            _reply,
            dialect="rewardanything",
            service=service,
            settings=settings,
            deadline_s=DEADLINE_S,
        )

    return routes


async def _reply(asked: RewardAnythingRequest, desk: DialectContext) -> dict[str, Any]:
    names, texts = list(asked.responses), [view_of(text, view=desk.view) for text in asked.responses.values()]
    mode = RewardMode.POINTWISE if desk.scoring.mode is RewardMode.POINTWISE else RewardMode.EXPECTED_SCORE
    scoring = desk.scoring.judged_with(rubric=asked.principle).on(SCALE, mode=mode)
    (rewards,) = await desk.score([ResponseGroup(prompt=asked.prompt, responses=tuple(texts))], scoring=scoring)
    scored = [index for index in reward_order(rewards) if rewards[index].is_scored]
    absent = [
        f"{name}: no score, {reward.reason}" for name, reward in zip(names, rewards, strict=True) if reward.absence
    ]
    return {
        "thoughts": "\n".join([f"Judged by {desk.model}.", *absent]),
        "results": {
            "scores": {name: r.value for name, r in zip(names, rewards, strict=True) if r.is_scored},
            "best-to-worst": [names[index] for index in scored],
        },
    }

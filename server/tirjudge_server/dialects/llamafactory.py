"""LLaMA-Factory's PPO: `reward_model_type: api`, `reward_model: http://host:8400/v1/score/evaluation`. A batch a request.

Its client has no time-out and looks at no status: whatever lacks `scores` is a KeyError. So all scores are always there,
and `judge_failed` beside them, which it ignores, says which of them stand in.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from fastapi import APIRouter, Request, Response

from tirjudge.integrations.detemplate import detemplate
from tirjudge.types import Text
from tirjudge_server.dialects.context import DialectContext, DialectSettings, ForeignRequest, attend
from tirjudge_server.scoring import ResponseGroup
from tirjudge_server.service import JudgeService

PATH = "/v1/score/evaluation"
DEADLINE_S = 1800.0


class LlamaFactoryRequest(ForeignRequest):
    messages: list[Text]
    """Whole chats, rendered, one a string."""


REQUESTS = {PATH: LlamaFactoryRequest}
"""What is posted where."""


def router(service: JudgeService, *, settings: DialectSettings) -> APIRouter:
    """The endpoint."""
    routes = APIRouter()

    @routes.post(PATH)
    async def score_evaluation(request: Request) -> Response:
        """LLaMA-Factory's reward model."""
        return await attend(
            request,
            LlamaFactoryRequest,
            _reply,
            dialect="llamafactory",
            service=service,
            settings=settings,
            deadline_s=DEADLINE_S,
        )

    return routes


async def _reply(asked: LlamaFactoryRequest, desk: DialectContext) -> dict[str, Any]:
    desk.check_samples(len(asked.messages))
    exchanges = await asyncio.to_thread(lambda: [detemplate(text, view=desk.view) for text in asked.messages])
    groups = [None if e is None else ResponseGroup(prompt=e.prompt, responses=(e.response,)) for e in exchanges]
    rewards = await desk.score_each(groups)
    return {
        "id": f"scoreval-{uuid.uuid4().hex}",
        "object": "score.evaluation",
        "model": desk.model,
        "scores": [desk.number(reward) for reward in rewards],
        "judge_failed": [not reward.is_scored for reward in rewards],
    }

"""LLaMA-Factory's PPO: `reward_model_type: api`, `reward_model: http://host:8400/v1/score/evaluation`. A batch a request.

Its client has no time-out and looks at no status: whatever lacks `scores` is a KeyError. So all scores are always there,
and `judge_failed` beside them, which it ignores, says which of them stand in.
"""

from __future__ import annotations

import uuid
from typing import Any

from tirjudge.types import Text
from tirjudge_server.dialects.base import Dialect, DialectEndpoint, scored
from tirjudge_server.dialects.bodies import ForeignRequest
from tirjudge_server.dialects.context import DialectContext
from tirjudge_server.failure import FailureRow, FailureStyle
from tirjudge_server.scoring import ResponseGroup, ResponseScore


class LlamaFactoryRequest(ForeignRequest):
    messages: list[Text]
    """Whole chats, rendered, one a string."""


def read(asked: LlamaFactoryRequest, context: DialectContext) -> list[ResponseGroup | None]:
    return context.read_chats(asked.messages)


def write(asked: LlamaFactoryRequest, rewards: list[ResponseScore], context: DialectContext) -> dict[str, Any]:
    return {
        "id": f"scoreval-{uuid.uuid4().hex}",
        "object": "score.evaluation",
        "model": context.model,
        "scores": [context.number(reward) for reward in rewards],
        "judge_failed": [not reward.is_scored for reward in rewards],
    }


DIALECT = Dialect(
    name="llamafactory",
    endpoints=[
        DialectEndpoint(
            path="/v1/score/evaluation",
            body=LlamaFactoryRequest,
            reply=scored(read, write),
            summary="LLaMA-Factory's reward model.",
        )
    ],
    deadline_s=1800.0,
    failures=FailureRow(judge=FailureStyle.FALLBACK, server=FailureStyle.FALLBACK),
)

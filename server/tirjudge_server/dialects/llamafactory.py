"""LLaMA-Factory's PPO: `reward_model_type: api`, `reward_model: http://host:8400/v1/score/evaluation`. One batch per request.

The client has no timeout and ignores the HTTP status; a response without `scores` is a KeyError. So the response always has
all scores. The field `judge_failed`, which the client ignores, marks the fallbacks.
"""

from __future__ import annotations

import uuid
from typing import Any, Literal

from pydantic import BaseModel

from tirjudge.types import Text
from tirjudge_server.dialects.base import Dialect, DialectEndpoint, scored
from tirjudge_server.dialects.bodies import RENDERED_PROMPT, ForeignRequest
from tirjudge_server.dialects.context import DialectContext
from tirjudge_server.failure import FailureRow, FailureStyle
from tirjudge_server.scoring import ResponseGroup, ResponseScore


class LlamaFactoryRequest(ForeignRequest):
    """Rendered chats to score."""

    messages: list[Text]
    """The chats, each rendered as one string."""


class LlamaFactoryScores(BaseModel):
    """Scores of the chats, in order."""

    id: str
    """Id of the response."""
    object: Literal["score.evaluation"]
    """Always `score.evaluation`."""
    model: str
    """Name of the judge."""
    scores: list[float]
    """The scores, or the fallback."""
    judge_failed: list[bool]
    """Whether each score is a fallback."""


def read(asked: LlamaFactoryRequest, context: DialectContext) -> list[ResponseGroup | None]:
    """The last response of each chat."""
    return context.read_chats(asked.messages)


def write(asked: LlamaFactoryRequest, rewards: list[ResponseScore], context: DialectContext) -> dict[str, Any]:
    """One score per chat."""
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
            answer=LlamaFactoryScores,
            reply=scored(read, write),
            summary="LLaMA-Factory's reward model.",
            examples={"One rendered conversation": {"messages": [f"{RENDERED_PROMPT}red fox<|im_end|>"]}},
        )
    ],
    deadline_s=1800.0,
    failures=FailureRow(judge=FailureStyle.FALLBACK, server=FailureStyle.FALLBACK),
)

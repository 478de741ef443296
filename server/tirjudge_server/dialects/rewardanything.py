"""RewardAnything: `rewardanything.Client("http://host:8400")`. Named responses are scored from 1 to 5 by a principle.

The client has a timeout of 30 s and makes four attempts. A response without a score is omitted. If every score failed
because of the server, the response is an HTTP error.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from tirjudge.http.rewards import RewardMode
from tirjudge.integrations.detemplate import view_of
from tirjudge.types import MAX_RESPONSES, Text
from tirjudge_server.dialects.base import Dialect, DialectEndpoint, scored
from tirjudge_server.dialects.bodies import ForeignRequest
from tirjudge_server.dialects.context import DialectContext
from tirjudge_server.failure import FailureRow, FailureStyle
from tirjudge_server.reranking import reward_order
from tirjudge_server.scoring import ResponseGroup, ResponseScore


class RewardAnythingRequest(ForeignRequest):
    """Responses to score by a principle."""

    principle: Text
    """The rubric."""
    prompt: Text
    """The prompt."""
    responses: dict[Text, Text] = Field(min_length=1, max_length=MAX_RESPONSES)
    """Name -> text; names are never shown to the judge."""


class RewardAnythingResults(BaseModel):
    """Scores and ranking of the responses that have a score."""

    model_config = ConfigDict(serialize_by_alias=True)

    scores: dict[str, float]
    """Name of a response -> its score, from 1 to 5. A response without a score is omitted."""
    best_to_worst: list[str] = Field(alias="best-to-worst")
    """Names of the responses that have a score, the best first."""


class RewardAnythingAnswer(BaseModel):
    """An evaluation."""

    thoughts: str
    """Name of the judge, and the responses without a score, with the reasons."""
    results: RewardAnythingResults
    """Scores and ranking."""


def read(asked: RewardAnythingRequest, context: DialectContext) -> list[ResponseGroup]:
    """The responses, with the principle as rubric and a scale of 1 to 5."""
    mode = RewardMode.POINTWISE if context.scoring.mode is RewardMode.POINTWISE else RewardMode.EXPECTED_SCORE
    context.scoring = context.scoring.judged_with(rubric=asked.principle).on((1.0, 5.0), mode=mode)
    texts = [view_of(text, view=context.view) for text in asked.responses.values()]
    return [ResponseGroup(prompt=asked.prompt, responses=tuple(texts))]


def write(asked: RewardAnythingRequest, rewards: list[ResponseScore], context: DialectContext) -> dict[str, Any]:
    """Scores and ranking of the responses that have a score."""
    names = list(asked.responses)
    named = list(zip(names, rewards, strict=True))
    missing = [f"{name}: no score, {reward.reason}" for name, reward in named if not reward.is_scored]
    return {
        "thoughts": "\n".join([f"Judged by {context.model}.", *missing]),
        "results": {
            "scores": {name: reward.value for name, reward in named if reward.is_scored},
            "best-to-worst": [names[index] for index in reward_order(rewards) if rewards[index].is_scored],
        },
    }


DIALECT = Dialect(
    name="rewardanything",
    endpoints=[
        DialectEndpoint(
            path="/api/rewardanything",
            body=RewardAnythingRequest,
            answer=RewardAnythingAnswer,
            reply=scored(read, write),
            summary="RewardAnything's evaluation.",
            examples={
                "Two responses": {
                    "principle": "Prefer the answer that follows the instruction.",
                    "prompt": "Write two words.",
                    "responses": {"first": "red fox", "second": "one red fox"},
                }
            },
        )
    ],
    deadline_s=25.0,
    failures=FailureRow(judge=FailureStyle.LEFT_OUT, server=FailureStyle.ERROR),
)

"""eval-protocol and Fireworks: `RewardFunction(mode="remote", endpoint="http://host:8400/reward")`, and `/evaluate`.

The last message is judged. If the score is missing, `is_score_valid` is false and `error` gives the reason. The client's
remote mode ignores both and reads `success` of each metric, so `success` is false as well.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from tirjudge.integrations.detemplate import view_of
from tirjudge_server.dialects.base import Dialect, DialectEndpoint, scored
from tirjudge_server.dialects.bodies import CONVERSATION, ForeignMessage, ForeignRequest, chat_message, text_of
from tirjudge_server.dialects.context import DialectContext
from tirjudge_server.failure import FailureRow, FailureStyle
from tirjudge_server.scoring import ResponseGroup, ResponseScore


class EvalProtocolRequest(ForeignRequest):
    """A conversation to evaluate."""

    messages: list[ForeignMessage] = Field(min_length=1)
    """The conversation; its last message is the response."""
    ground_truth: Any = None
    """Reference answer, as text or as messages; None: no reference."""


class EvalProtocolMetric(BaseModel):
    """A metric of eval-protocol."""

    score: float
    """The score, or the fallback."""
    is_score_valid: bool
    """Whether there is a score. False: it is a fallback."""
    success: bool
    """The same as `is_score_valid`, for the client's remote mode."""
    reason: str
    """Reason for the score, or for the fallback."""


class EvalProtocolResult(BaseModel):
    """An `EvaluateResult` of eval-protocol."""

    score: float
    """The score, or the fallback."""
    is_score_valid: bool
    """Whether there is a score. False: it is a fallback."""
    reason: str
    """Reason for the score, or for the fallback."""
    metrics: dict[str, EvalProtocolMetric]
    """The one metric, `judge`."""
    step_outputs: None
    """Always null."""
    error: str | None
    """Why there is no score. None: there is one."""


def read(asked: EvalProtocolRequest, context: DialectContext) -> list[ResponseGroup | None]:
    """The last message as a response to the messages before."""
    *before, last = [chat_message(message) for message in asked.messages]
    if last.role != "assistant" or not before:
        return [None]
    truth = asked.ground_truth
    if isinstance(truth, list) and truth and isinstance(truth[-1], dict):
        truth = truth[-1].get("content")
    response = view_of(last.content, view=context.view)
    return [ResponseGroup(prompt=tuple(before), responses=(response,), reference=text_of(truth))]


def write(asked: EvalProtocolRequest, rewards: list[ResponseScore], context: DialectContext) -> dict[str, Any]:
    """An `EvaluateResult` of eval-protocol."""
    (reward,) = rewards
    reason = reward.reason or ("judged" if reward.is_scored else "no score")
    score, valid = context.number(reward), reward.is_scored
    return {
        "score": score,
        "is_score_valid": valid,
        "reason": reason,
        "metrics": {"judge": {"score": score, "is_score_valid": valid, "success": valid, "reason": reason}},
        "step_outputs": None,
        "error": None if reward.missing is None else f"{reward.missing}: {reason}",
    }


DIALECT = Dialect(
    name="eval_protocol",
    endpoints=[
        DialectEndpoint(
            path=path,
            body=EvalProtocolRequest,
            answer=EvalProtocolResult,
            reply=scored(read, write),
            summary="eval-protocol's remote evaluator.",
            examples={"One rollout": {"messages": CONVERSATION, "ground_truth": "two words"}},
        )
        for path in ("/evaluate", "/reward")
    ],
    deadline_s=600.0,
    failures=FailureRow(judge=FailureStyle.MARKED, server=FailureStyle.MARKED),
)

"""OpenRLHF: `--reward.remote_url http://host:8400/get_reward`. One rollout per request, decoded with special tokens.

The client has a timeout of 180 s and makes five attempts. If all fail, the reward is None and the run ends with a
ValueError. So every request gets a number, and `extra_logs.judge_failed` marks the fallbacks.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, model_validator

from tirjudge.types import Text
from tirjudge_server.cost import Cost
from tirjudge_server.dialects.base import Dialect, DialectEndpoint, scored
from tirjudge_server.dialects.bodies import RENDERED_PROMPT, ForeignRequest, text_of
from tirjudge_server.dialects.context import TOO_COSTLY, DialectContext
from tirjudge_server.failure import FailureRow, FailureStyle
from tirjudge_server.scoring import ResponseGroup, ResponseScore


class OpenRlhfRequest(ForeignRequest):
    """Rendered rollouts to reward."""

    query: Text | list[Text]
    """Rendered prompts with their responses."""
    prompts: Text | list[Text] | None = None
    """The rendered prompts alone; None: not sent."""
    labels: list[Any] | Any = None
    """Reference answers; None or the empty text: no reference."""

    @model_validator(mode="after")
    def _lists_have_one_length(self) -> OpenRlhfRequest:
        for name, given in (("prompts", self.prompts), ("labels", self.labels)):
            if isinstance(given, list) and len(given) != len(self.queries):
                raise ValueError(f"{name}: {len(given)} given for {len(self.queries)} in `query`")
        return self

    @property
    def queries(self) -> list[str]:
        """The queries as a list."""
        return [self.query] if isinstance(self.query, str) else self.query


class OpenRlhfLogs(BaseModel):
    """Values that the client logs, one for each query."""

    judge_failed: list[float]
    """1 if the reward is a fallback, otherwise 0."""
    judge_forced: list[float]
    """1 if the verdict was forced, otherwise 0."""
    judge_tool_calls: list[float]
    """Number of programs that were run."""


class OpenRlhfRewards(BaseModel):
    """Rewards of the queries, in order."""

    rewards: list[float]
    """The rewards, or the fallback."""
    scores: list[float]
    """The rewards on a scale from 0 to 1, for the client's filters."""
    extra_logs: OpenRlhfLogs
    """Values that the client logs."""


def read(asked: OpenRlhfRequest, context: DialectContext) -> list[ResponseGroup | ResponseScore | None]:
    """The last response of each query. Queries that cost too much are not parsed."""
    queries, num = asked.queries, len(asked.queries)
    prompts = asked.prompts if isinstance(asked.prompts, list) else [asked.prompts] * num
    # Convert a label that all samples share only once.
    labels = map(text_of, asked.labels) if isinstance(asked.labels, list) else [text_of(asked.labels)] * num
    # Each query is searched for its prompt. So a long prompt that all queries share costs time in each query.
    costs = [Cost(rollouts=1, chars=len(q) + len(p or "")) for q, p in zip(queries, prompts, strict=True)]
    return [
        context.read_chat(query, prompt=prompt, reference=label) if is_affordable else TOO_COSTLY
        for query, prompt, label, is_affordable in zip(queries, prompts, labels, context.affordable(costs), strict=True)
    ]


def write(asked: OpenRlhfRequest, rewards: list[ResponseScore], context: DialectContext) -> dict[str, Any]:
    """Rewards and logs. All values are numbers and all responses have the same keys, because the client stacks them."""
    numbers = [context.number(reward) for reward in rewards]
    worst, best = context.scoring.ends
    return {
        "rewards": numbers,
        # The client's dynamic filtering expects scores between 0 and 1, so scores of every scale are mapped to this range.
        "scores": [(number - worst) / (best - worst) if best != worst else 0.5 for number in numbers],
        "extra_logs": {
            "judge_failed": [float(not reward.is_scored) for reward in rewards],
            "judge_forced": [float(reward.forced) for reward in rewards],
            "judge_tool_calls": [float(reward.tool_calls) for reward in rewards],
        },
    }


DIALECT = Dialect(
    name="openrlhf",
    endpoints=[
        DialectEndpoint(
            path="/get_reward",
            body=OpenRlhfRequest,
            answer=OpenRlhfRewards,
            reply=scored(read, write),
            summary="OpenRLHF's remote reward.",
            examples={
                "One rollout": {
                    "query": [f"{RENDERED_PROMPT}red fox<|im_end|>"],
                    "prompts": [RENDERED_PROMPT],
                    "labels": [""],
                }
            },
        )
    ],
    deadline_s=150.0,
    failures=FailureRow(judge=FailureStyle.FALLBACK, server=FailureStyle.FALLBACK),
)

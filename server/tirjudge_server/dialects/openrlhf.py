"""OpenRLHF: `--reward.remote_url http://host:8400/get_reward`. One rollout a request, decoded with its special tokens.

Its client waits 180 s and tries five times. Without an answer the reward is None, and the run ends with a ValueError: so
it is always answered, and `extra_logs.judge_failed` says where a number stands in.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import model_validator

from tirjudge.integrations.detemplate import detemplate
from tirjudge.types import Text
from tirjudge_server.cost import Cost
from tirjudge_server.dialects.context import (
    TOO_COSTLY,
    DialectContext,
    DialectSettings,
    ForeignRequest,
    attend,
    text_of,
)
from tirjudge_server.scoring import ResponseGroup, ResponseScore
from tirjudge_server.service import JudgeService

PATH = "/get_reward"
DEADLINE_S = 150.0


class OpenRlhfRequest(ForeignRequest):
    query: Text | list[Text]
    """Prompt and response, rendered."""
    prompts: Text | list[Text] | None = None
    """The rendered prompts alone."""
    labels: list[Any] | Any = None
    """Reference answers; nothing or the empty text if there are none."""

    @model_validator(mode="after")
    def _lists_are_of_one_length(self) -> OpenRlhfRequest:
        for name, given in (("prompts", self.prompts), ("labels", self.labels)):
            if isinstance(given, list) and len(given) != len(self.queries):
                raise ValueError(f"{name}: {len(given)} given for {len(self.queries)} in `query`")
        return self

    @property
    def queries(self) -> list[str]:
        return [self.query] if isinstance(self.query, str) else self.query


REQUESTS = {PATH: OpenRlhfRequest}
"""What is posted where."""


def router(service: JudgeService, *, settings: DialectSettings) -> APIRouter:
    """The endpoint."""
    routes = APIRouter()

    @routes.post(PATH)
    async def get_reward(request: Request) -> Response:
        """OpenRLHF's remote reward."""
        return await attend(
            request,
            OpenRlhfRequest,
            _reply,
            dialect="openrlhf",
            service=service,
            settings=settings,
            deadline_s=DEADLINE_S,
        )

    return routes


async def _reply(asked: OpenRlhfRequest, desk: DialectContext) -> dict[str, Any]:
    """Every value is a number, and every answer has the same keys: the client stacks them into tensors."""
    prompts = _each(asked.prompts, num=len(asked.queries))
    # A label that all samples share is spelled once.
    labels = _each(asked.labels if isinstance(asked.labels, list) else text_of(asked.labels), num=len(asked.queries))
    read = desk.affordable([_cost_of_reading(*sample) for sample in zip(asked.queries, prompts, strict=True)])

    def found() -> list[ResponseGroup | ResponseScore | None]:
        return [
            _group(query, prompt=prompt, label=label, desk=desk) if may_be else TOO_COSTLY
            for query, prompt, label, may_be in zip(asked.queries, prompts, labels, read, strict=True)
        ]

    groups = await asyncio.to_thread(found)
    rewards = await desk.score_each(groups)
    numbers = [desk.number(reward) for reward in rewards]
    worst, best = desk.scoring.ends
    return {
        "rewards": numbers,
        # Between 0 and 1 whatever the scale: the client's dynamic filtering expects that.
        "scores": [(number - worst) / (best - worst) if best != worst else 0.5 for number in numbers],
        "extra_logs": {
            "judge_failed": [float(not reward.is_scored) for reward in rewards],
            "judge_forced": [float(reward.forced) for reward in rewards],
            "judge_tool_calls": [float(reward.tool_calls) for reward in rewards],
        },
    }


def _cost_of_reading(query: str, prompt: str | None) -> Cost:
    """A prompt that all queries share is looked for in each of them."""
    return Cost(rollouts=1, chars=len(query) + len(prompt or ""))


def _each(given: Any, *, num: int) -> list[Any]:
    """One a query."""
    return given if isinstance(given, list) else [given] * num


def _group(query: str, *, prompt: Any, label: Any, desk: DialectContext) -> ResponseGroup | None:
    exchange = detemplate(query, prompt=prompt, view=desk.view)
    if exchange is None:
        return None
    return ResponseGroup(prompt=exchange.prompt, responses=(exchange.response,), reference=text_of(label))

"""slime and its forks: `--rm-type remote_rm --rm-url http://host:8400/rm`. One sample a request; the body is the reward.

The answer is a bare number. With `?reward_key=score` in the URL, and `--reward-key score` beside it, it is an object with
that key, and with `judge_failed` to tell where a number stands in. The client waits 120 s, tries ten times, and then ends
the run: so it is always answered.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request, Response

from tirjudge.integrations.detemplate import conversation_of, view_of, without_end
from tirjudge.types import ChatMessage, Text
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

PATH = "/rm"
DEADLINE_S = 100.0


class SlimeSample(ForeignRequest):
    prompt: Text | list[ForeignMessage]
    """Text, rendered or not, or a conversation."""
    response: Text
    label: Any = None
    """Reference answer; None if there is none."""


REQUESTS = {PATH: SlimeSample}
"""What is posted where."""


def router(service: JudgeService, *, settings: DialectSettings) -> APIRouter:
    """The endpoint."""
    routes = APIRouter()

    @routes.post(PATH)
    async def rm(request: Request) -> Response:
        """slime's remote reward model."""
        key = request.query_params.get("reward_key")

        async def reply(asked: SlimeSample, desk: DialectContext) -> Any:
            (reward,) = await desk.score_each([await asyncio.to_thread(_group, asked, desk=desk)])
            return desk.number(reward) if key is None else _object(reward, key=key, desk=desk)

        return await attend(
            request,
            SlimeSample,
            reply,
            dialect="slime" if key is None else "slime?reward_key",
            service=service,
            settings=settings,
            deadline_s=DEADLINE_S,
        )

    return routes


def _group(asked: SlimeSample, *, desk: DialectContext) -> ResponseGroup | None:
    if isinstance(asked.prompt, str):
        prompt: str | tuple[ChatMessage, ...] = conversation_of(asked.prompt) or asked.prompt
    else:
        prompt = tuple(chat_message(message) for message in asked.prompt)
    if not prompt:
        return None
    response = view_of(without_end(asked.response), view=desk.view)
    return ResponseGroup(prompt=prompt, responses=(response,), reference=text_of(asked.label))


def _object(reward: ResponseScore, *, key: str, desk: DialectContext) -> dict[str, float]:
    return {
        "judge_failed": float(not reward.is_scored),
        "judge_forced": float(reward.forced),
        "judge_tool_calls": float(reward.tool_calls),
        key: desk.number(reward),
    }

"""slime and its forks: `--rm-type remote_rm --rm-url http://host:8400/rm`. One sample per request.

The response body is the reward, a bare number. With `?reward_key=score` in the URL and `--reward-key score` in slime, it is
an object with that key and with `judge_failed`, which marks fallbacks. The client has a timeout of 120 s, makes ten attempts
over two and a half minutes, and then ends the run. So every request gets a number.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from tirjudge.integrations.detemplate import conversation_of, view_of, without_end
from tirjudge.types import Text
from tirjudge_server.dialects.base import Dialect, DialectEndpoint, scored
from tirjudge_server.dialects.bodies import ForeignMessage, ForeignRequest, chat_message, text_of
from tirjudge_server.dialects.context import DialectContext
from tirjudge_server.dialects.options import DialectOptions
from tirjudge_server.failure import FailureRow, FailureStyle
from tirjudge_server.scoring import ResponseGroup, ResponseScore


class SlimeSample(ForeignRequest):
    """A sample to reward."""

    prompt: Text | list[ForeignMessage]
    """A plain or rendered text, or a conversation."""
    response: Text
    """The response."""
    label: Any = None
    """Reference answer; None: no reference."""


class SlimeOptions(DialectOptions):
    """Options with the name of the reward."""

    texts = DialectOptions.texts | {"reward_key"}

    reward_key: Text | None = None
    """Name of the reward in the response object; None: the response is the bare reward."""


class SlimeRewards(BaseModel):
    """The reward under the name that `reward_key` gives, and how it was found."""

    model_config = ConfigDict(extra="allow")

    judge_failed: float
    """1 if the reward is a fallback, otherwise 0."""
    judge_forced: float
    """1 if the verdict was forced, otherwise 0."""
    judge_tool_calls: float
    """Number of programs that were run."""


def read(asked: SlimeSample, context: DialectContext) -> list[ResponseGroup | None]:
    """The response to the prompt."""
    if isinstance(asked.prompt, str):
        prompt = conversation_of(asked.prompt) or asked.prompt
    else:
        prompt = tuple(chat_message(message) for message in asked.prompt)
    if not prompt:
        return [None]
    response = view_of(without_end(asked.response), view=context.view)
    return [ResponseGroup(prompt=prompt, responses=(response,), reference=text_of(asked.label))]


def write(asked: SlimeSample, rewards: list[ResponseScore], context: DialectContext) -> Any:
    """The reward as a number, or as an object if `reward_key` is given."""
    (reward,) = rewards
    if context.options.reward_key is None:
        return context.number(reward)
    return {
        "judge_failed": float(not reward.is_scored),
        "judge_forced": float(reward.forced),
        "judge_tool_calls": float(reward.tool_calls),
        context.options.reward_key: context.number(reward),
    }


DIALECT = Dialect(
    name="slime",
    endpoints=[
        DialectEndpoint(
            path="/rm",
            body=SlimeSample,
            answer=float | SlimeRewards,
            reply=scored(read, write),
            summary="slime's remote reward model.",
            examples={"One sample": {"prompt": "What is 6 * 7?", "response": "It is 42.", "label": "42"}},
        )
    ],
    deadline_s=100.0,
    failures=FailureRow(judge=FailureStyle.BARE_FALLBACK, server=FailureStyle.BARE_FALLBACK),
    failures_at={"?reward_key": FailureRow(judge=FailureStyle.FALLBACK, server=FailureStyle.FALLBACK)},
    options=SlimeOptions,
)

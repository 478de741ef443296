"""`/v1/completions`: a judge prompt as plain text, answered with a verdict.

A prompt that asks for no judgment is refused. For free text, send the request to the engine behind the judge.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import ConfigDict

from tirjudge.types import ChatMessage
from tirjudge_server.openai.answering import (
    UNSUPPORTED_SAMPLING,
    AnswerShape,
    ChatJudging,
    CompletionOptions,
    judging_in,
    refuse_unsupported,
)
from tirjudge_server.openai.bodies import TextCompletion
from tirjudge_server.openai.endpoint import completion_router
from tirjudge_server.openai.wire import refuse
from tirjudge_server.service import JudgeService

COMPLETIONS_PATH = "/v1/completions"

_NEUTRAL_VALUES: dict[str, tuple[Any, ...]] = {
    "logprobs": (None,),
    "echo": (None, False),
    "suffix": (None, ""),
    "best_of": (None, 1),
    **UNSUPPORTED_SAMPLING,
}
"""Unsupported fields, each with the values that are accepted because they do not change the answer."""

_LABEL_HINT = "use /v1/decisions for the probabilities of labels"


class CompletionRequest(CompletionOptions):
    """Body of a text completion. Fields that are not declared here are kept and checked by `refuse_unsupported`."""

    model_config = ConfigDict(frozen=True, extra="allow")

    prompt: Any = None
    """One string. Token ids and lists are refused with an error that names the field."""


def router(service: JudgeService, *, max_body_bytes: int) -> APIRouter:
    """Return the endpoint.

    Args:
        service: Judges the requests.
        max_body_bytes: Maximum size of a request body. A larger one is refused with 413.
    """
    return completion_router(
        service,
        CompletionRequest,
        _interpret,
        path=COMPLETIONS_PATH,
        name="completions",
        description="Judge the judge prompt in `prompt`, and answer in the shape of a text completion.",
        dialect="openai.completions",
        shape=_SHAPE,
        answer=TextCompletion,
        max_body_bytes=max_body_bytes,
    )


def _interpret(service: JudgeService, body: CompletionRequest, is_json: bool) -> ChatJudging:
    """Read the judge prompt of a request.

    Raises:
        Refused: `prompt` is not a string, or holds nothing to judge.
    """
    refuse_unsupported(body.model_extra or {}, neutral_values=_NEUTRAL_VALUES, hints={"logprobs": _LABEL_HINT})
    if not isinstance(body.prompt, str):
        raise refuse("prompt", body.prompt, hint="expected: one string that holds a judge prompt")
    message = ChatMessage(role="user", content=body.prompt)
    wanted = judging_in(service, body, [message], is_json=is_json, param="prompt")
    if wanted is None:
        hint = f"no judge prompt found in it (docs/openai.md lists the supported ones); {_LABEL_HINT}"
        raise refuse("prompt", body.prompt, hint=hint)
    return wanted


_SHAPE = AnswerShape(
    object="text_completion",
    chunk_object="text_completion",
    id_prefix="cmpl-",
    whole=lambda choice: {"text": choice.content or ""},
    opening=None,
    turn=lambda text: None,
    answer=lambda choice: {"text": choice.content or ""},
    end={"text": ""},
)

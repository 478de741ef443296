"""`/v1/completions`: a judge's prompt as plain text. Everything that is no judgment is refused, since the judge's own
engine speaks this protocol already, and without a chat template around it."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import ConfigDict

from tirjudge.types import ChatMessage
from tirjudge_server.call import call_of
from tirjudge_server.openai.answering import (
    REQUEST_HEADER,
    AnswerShape,
    ChatJudging,
    CompletionOptions,
    judging_in,
    refuse_unsupported,
    says_json,
    verdict_fields,
)
from tirjudge_server.openai.chunks import respond
from tirjudge_server.openai.conversation import AnswerChoice
from tirjudge_server.openai.wire import receive, refuse
from tirjudge_server.service import JudgeService

COMPLETIONS_PATH = "/v1/completions"

_HARMLESS: dict[str, tuple[Any, ...]] = {
    "logprobs": (None,),
    "echo": (None, False),
    "suffix": (None, ""),
    "best_of": (None, 1),
    "logit_bias": (None, {}),
    "frequency_penalty": (None, 0, 0.0),
    "presence_penalty": (None, 0, 0.0),
}
_LABEL_HINT = "for the probabilities of labels ask /v1/decisions"


class CompletionRequest(CompletionOptions):
    model_config = ConfigDict(frozen=True, extra="allow")

    prompt: Any = None
    """One text. Token ids and lists are refused by name."""


def router(service: JudgeService, *, max_body_bytes: int) -> APIRouter:
    """The endpoint.

    Args:
        service: judges.
        max_body_bytes: a larger request is refused.
    """
    routes = APIRouter()

    @routes.post(COMPLETIONS_PATH)
    async def completions(request: Request) -> Response:
        """Judge what a judge's prompt asks, in the shape of a text completion."""
        asked = await receive(request, CompletionRequest, service=service, max_bytes=max_body_bytes)
        is_json = says_json(request.headers.get(REQUEST_HEADER))
        call = call_of(request, dialect="openai.completions")
        return await respond(
            request, service, asked, partial(_wanted, service, asked, is_json=is_json), call=call, shape=_SHAPE
        )

    return routes


def _wanted(service: JudgeService, asked: CompletionRequest, *, is_json: bool) -> ChatJudging:
    """
    Raises:
        Refused: it is no text, or nothing to judge is in it.
    """
    refuse_unsupported(asked.model_extra or {}, harmless=_HARMLESS, hints={"logprobs": _LABEL_HINT})
    if not isinstance(asked.prompt, str):
        raise refuse("prompt", asked.prompt, hint="expected: one text with a judge's prompt in it")
    message = ChatMessage(role="user", content=asked.prompt)
    wanted = judging_in(service, asked, [message], is_json=is_json, param="prompt")
    if wanted is None:
        hint = f"no judge's prompt was found in it (docs/openai.md lists them); {_LABEL_HINT}"
        raise refuse("prompt", asked.prompt, hint=hint)
    return wanted


def _choice(choice: AnswerChoice, index: int) -> dict[str, Any]:
    return {
        "index": index,
        "text": choice.content or "",
        "logprobs": None,
        "finish_reason": choice.finish_reason,
        **verdict_fields(choice),
    }


_SHAPE = AnswerShape(
    object="text_completion",
    chunk_object="text_completion",
    id_prefix="cmpl-",
    choice=_choice,
    opening=None,
    turn=lambda text: None,
    answer=lambda choice: {"index": 0, "text": choice.content or "", "logprobs": None, "finish_reason": None},
    end=lambda choice: {**_choice(choice, 0), "text": ""},
)

"""`/v1/chat/completions`: a judge behind a model's name."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import AliasChoices, ConfigDict, Field

from tirjudge.types import ChatMessage
from tirjudge_server.call import Call, call_of
from tirjudge_server.openai.answering import (
    REQUEST_HEADER,
    AnswerShape,
    ChatJudging,
    CompletionOptions,
    complete,
    interpret,
    refuse_unsupported,
    says_json,
    verdict_fields,
)
from tirjudge_server.openai.chunks import respond
from tirjudge_server.openai.conversation import AnswerChoice, ConversationQuestion
from tirjudge_server.openai.wire import Content, Foreign, receive
from tirjudge_server.service import JudgeService

CHAT_PATH = "/v1/chat/completions"

_HARMLESS: dict[str, tuple[Any, ...]] = {
    "logprobs": (None, False),
    "top_logprobs": (None, 0),
    "logit_bias": (None, {}),
    "tools": (None, []),
    "functions": (None, []),
    "audio": (None,),
    "modalities": (None, ["text"]),
    "frequency_penalty": (None, 0, 0.0),
    "presence_penalty": (None, 0, 0.0),
    "prediction": (None,),
    "web_search_options": (None,),
}
"""Fields that would change the answer and cannot be honoured, with the values that ask for nothing."""

_HINTS = {
    "logprobs": "the probabilities of the labels are in `verdict` of the choice, and at /v1/decisions",
    "top_logprobs": "the probabilities of the labels are in `verdict` of the choice, and at /v1/decisions",
    "tools": "the judge runs Python by itself; leave it out",
    "functions": "the judge runs Python by itself; leave it out",
}


_ROLES = {"developer": "system", "function": "tool"}


class ChatRequestMessage(Foreign):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Content = ""


class ChatRequest(CompletionOptions):
    model_config = ConfigDict(frozen=True, extra="allow")

    messages: list[ChatRequestMessage] = Field(min_length=1)
    max_tokens: Annotated[int, Field(ge=1)] | None = Field(
        default=None, validation_alias=AliasChoices("max_completion_tokens", "max_tokens")
    )


def router(service: JudgeService, *, max_body_bytes: int) -> APIRouter:
    """The endpoint.

    Args:
        service: judges.
        max_body_bytes: a larger request is refused.
    """
    routes = APIRouter()

    @routes.post(CHAT_PATH)
    async def chat_completions(request: Request) -> Response:
        """Judge, or answer, in the shape of a chat."""
        asked = await receive(request, ChatRequest, service=service, max_bytes=max_body_bytes)
        is_json = says_json(request.headers.get(REQUEST_HEADER))
        call = call_of(request, dialect="openai.chat")
        return await respond(
            request, service, asked, partial(_wanted, service, asked, is_json=is_json), call=call, shape=_SHAPE
        )

    return routes


async def answer_chat(service: JudgeService, asked: ChatRequest, *, call: Call) -> dict[str, Any]:
    """The whole answer.

    Raises:
        Refused, QueueFull, ShuttingDown, PromptTooLong, EngineUnavailable, SandboxUnavailable, DeadlineExceeded
    """
    wanted = await asyncio.to_thread(_wanted, service, asked)
    return await complete(service, wanted, asked, call=call, shape=_SHAPE)


def _wanted(service: JudgeService, asked: ChatRequest, *, is_json: bool = False) -> ChatJudging | ConversationQuestion:
    refuse_unsupported(asked.model_extra or {}, harmless=_HARMLESS, hints=_HINTS)
    return interpret(service, asked, _messages(asked), is_json=is_json)


def _messages(asked: ChatRequest) -> list[ChatMessage]:
    """The messages in the roles that a prompt knows."""
    roles = [_ROLES.get(message.role, message.role) for message in asked.messages]
    return [
        ChatMessage.model_validate({"role": role, "content": message.content})
        for role, message in zip(roles, asked.messages, strict=True)
    ]


def _choice(choice: AnswerChoice, index: int) -> dict[str, Any]:
    message = {
        "role": "assistant",
        "content": choice.content,
        "refusal": choice.refusal,
        "reasoning_content": choice.reasoning,
    }
    return {
        "index": index,
        "message": message,
        "logprobs": None,
        "finish_reason": choice.finish_reason,
        **verdict_fields(choice),
    }


def _delta(delta: dict[str, Any], *, finish_reason: str | None, extra: dict[str, Any]) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason, **extra}


_SHAPE = AnswerShape(
    object="chat.completion",
    chunk_object="chat.completion.chunk",
    id_prefix="chatcmpl-",
    choice=_choice,
    opening=_delta({"role": "assistant", "content": ""}, finish_reason=None, extra={}),
    turn=lambda text: _delta({"reasoning_content": text}, finish_reason=None, extra={}),
    answer=lambda choice: _delta(
        {"content": choice.content} if choice.refusal is None else {"refusal": choice.refusal},
        finish_reason=None,
        extra={},
    ),
    end=lambda choice: _delta({}, finish_reason=choice.finish_reason, extra=verdict_fields(choice)),
)

"""`/v1/chat/completions`: judgments, or answers of the model, in the shape of a chat completion."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import ConfigDict, Field, model_validator

from tirjudge.types import ChatMessage
from tirjudge_server.call import Call
from tirjudge_server.openai.answering import (
    UNSUPPORTED_SAMPLING,
    AnswerShape,
    ChatJudging,
    CompletionOptions,
    complete,
    interpret,
    refuse_unsupported,
)
from tirjudge_server.openai.bodies import ChatCompletion
from tirjudge_server.openai.conversation import AnswerChoice, ConversationQuestion
from tirjudge_server.openai.endpoint import completion_router
from tirjudge_server.openai.wire import Content, Foreign
from tirjudge_server.service import JudgeService

CHAT_PATH = "/v1/chat/completions"

_NEUTRAL_VALUES: dict[str, tuple[Any, ...]] = {
    "logprobs": (None, False),
    "top_logprobs": (None, 0),
    "tools": (None, []),
    "functions": (None, []),
    "audio": (None,),
    "modalities": (None, ["text"]),
    "prediction": (None,),
    "web_search_options": (None,),
    **UNSUPPORTED_SAMPLING,
}
"""Unsupported fields, each with the values that are accepted because they do not change the answer."""

_HINTS = {
    "logprobs": "the probabilities of the labels are in `verdict` of the choice, and at /v1/decisions",
    "top_logprobs": "the probabilities of the labels are in `verdict` of the choice, and at /v1/decisions",
    "tools": "the judge runs Python without a `tools` field; leave it out",
    "functions": "the judge runs Python without a `tools` field; leave it out",
}


_ROLES = {"developer": "system", "function": "tool"}
"""OpenAI's roles that `ChatMessage` lacks -> the role used instead."""


class ChatRequestMessage(Foreign):
    """One message of a chat."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    """Author of the message. `developer` is read as `system`, and `function` as `tool`."""
    content: Content = ""
    """Text, or parts that hold text, which are joined by line breaks. None: empty. Other parts, such as images, are
    refused."""


class ChatRequest(CompletionOptions):
    """Body of a chat completion. Fields that are not declared here are kept and checked by `refuse_unsupported`."""

    model_config = ConfigDict(frozen=True, extra="allow")

    messages: list[ChatRequestMessage] = Field(min_length=1)
    """The chat. If `judge` has `responses`, it is the prompt that they answer. Otherwise its last user message may be a
    judge prompt or, with the header `X-Tirjudge-Request: json`, a request as JSON. Any other chat is answered as a
    conversation."""
    max_completion_tokens: Annotated[int, Field(ge=1, strict=True)] | None = None
    """Maximum number of tokens that the model writes in a conversation, in all turns together. None: the limit of the
    model's profile, which also bounds larger values. Ignored for a judgment."""
    max_tokens: Annotated[int, Field(ge=1, strict=True)] | None = None
    """Another name of `max_completion_tokens`. A request with both is refused, as by OpenAI. None: not given."""

    @model_validator(mode="after")
    def _has_one_limit(self) -> ChatRequest:
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise ValueError(
                "max_tokens: given together with `max_completion_tokens`, which means the same; leave it out"
            )
        return self

    @property
    def token_limit(self) -> int | None:
        """Maximum number of tokens that the model writes in a conversation. None: the limit of the model's profile."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens


def router(service: JudgeService, *, max_body_bytes: int) -> APIRouter:
    """Return the endpoint.

    Args:
        service: Judges the requests.
        max_body_bytes: Maximum size of a request body. A larger one is refused with 413.
    """
    return completion_router(
        service,
        ChatRequest,
        _interpret,
        path=CHAT_PATH,
        name="chat_completions",
        description="Judge, or answer, in the shape of a chat.",
        dialect="openai.chat",
        shape=_SHAPE,
        answer=ChatCompletion,
        max_body_bytes=max_body_bytes,
    )


async def answer_chat(service: JudgeService, body: ChatRequest, *, call: Call) -> dict[str, Any]:
    """Return the whole answer to a chat.

    Raises:
        Refused, QueueFull, ShuttingDown, PromptTooLong, EngineUnavailable, SandboxUnavailable, DeadlineExceeded
    """
    wanted = await asyncio.to_thread(_interpret, service, body, False)
    return await complete(service, wanted, body, call=call, shape=_SHAPE)


def _interpret(service: JudgeService, body: ChatRequest, is_json: bool) -> ChatJudging | ConversationQuestion:
    refuse_unsupported(body.model_extra or {}, neutral_values=_NEUTRAL_VALUES, hints=_HINTS)
    return interpret(service, body, _messages(body), is_json=is_json)


def _messages(body: ChatRequest) -> list[ChatMessage]:
    """The messages, with OpenAI's roles mapped to those of `ChatMessage`."""
    roles = [_ROLES.get(message.role, message.role) for message in body.messages]
    return [
        ChatMessage.model_validate({"role": role, "content": message.content})
        for role, message in zip(roles, body.messages, strict=True)
    ]


def _message(choice: AnswerChoice) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": choice.content,
        "refusal": choice.refusal,
        "reasoning_content": choice.reasoning,
    }


def _answer_delta(choice: AnswerChoice) -> dict[str, Any]:
    return {"content": choice.content} if choice.refusal is None else {"refusal": choice.refusal}


_SHAPE = AnswerShape(
    object="chat.completion",
    chunk_object="chat.completion.chunk",
    id_prefix="chatcmpl-",
    whole=lambda choice: {"message": _message(choice)},
    opening={"delta": {"role": "assistant", "content": ""}},
    turn=lambda text: {"delta": {"reasoning_content": text}},
    answer=lambda choice: {"delta": _answer_delta(choice)},
    end={"delta": {}},
)

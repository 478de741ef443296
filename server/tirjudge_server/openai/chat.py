"""`/v1/chat/completions`: a judge behind a model's name."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import AliasChoices, ConfigDict, Field

from tirjudge.types import ChatMessage
from tirjudge_server.call import Call, call_of
from tirjudge_server.openai.answering import (
    REQUEST_HEADER,
    AnswerChoice,
    CompletionOptions,
    choose,
    interpret,
    made_by,
    refuse_unsupported,
    says_json,
    usage,
    verdict_fields,
)
from tirjudge_server.openai.chunks import ChunkShape, stream
from tirjudge_server.openai.wire import Content, Foreign, parse
from tirjudge_server.service import JudgeService
from tirjudge_web.body import read_body
from tirjudge_web.connection import while_connected

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
        async with service.draining.limit():
            body = await read_body(request, max_bytes=max_body_bytes)
        asked = parse_chat(body)
        is_json = says_json(request.headers.get(REQUEST_HEADER))
        call = call_of(request, dialect="openai.chat")
        if asked.stream:
            wanted = await asyncio.to_thread(interpret, service, asked, chat_messages(asked), is_json=is_json)
            return await stream(service, wanted, asked, call=call, shape=_CHUNKS)
        answer = await while_connected(request.receive, answer_chat(service, asked, call=call, is_json=is_json))
        return JSONResponse(answer, headers=judgment_header(answer["choices"]))

    return routes


def judgment_header(choices: list[dict[str, Any]]) -> dict[str, str]:
    """Where there is one judgment, its id."""
    ids = [choice["judgment_id"] for choice in choices if "judgment_id" in choice]
    return {"x-judgment-id": ids[0]} if len(ids) == 1 else {}


def parse_chat(body: bytes) -> ChatRequest:
    """The request in a body.

    Raises:
        Refused: it is none, or wants what cannot be given.
    """
    asked = parse(body, ChatRequest)
    refuse_unsupported_in(asked)
    return asked


def refuse_unsupported_in(asked: ChatRequest) -> None:
    """
    Raises:
        Refused: it wants what cannot be given.
    """
    refuse_unsupported(asked.model_extra or {}, harmless=_HARMLESS, hints=_HINTS)


async def answer_chat(
    service: JudgeService, asked: ChatRequest, *, call: Call, is_json: bool = False
) -> dict[str, Any]:
    """The whole answer of a chat that is not streamed.

    Args:
        service: judges.
        asked: the body.
        call: by whom.
        is_json: its last user message is a request as JSON.

    Raises:
        Refused, QueueFull, ShuttingDown, PromptTooLong, EngineUnavailable, SandboxUnavailable, DeadlineExceeded
    """
    # In a thread, because long texts take a while to be searched for a judge's prompt.
    wanted = await asyncio.to_thread(interpret, service, asked, chat_messages(asked), is_json=is_json)
    choices = await choose(service, wanted, asked, call=call)
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": service.judge.profile.name,
        "system_fingerprint": made_by(choices, service=service),
        "choices": [_chat_choice(choice, index=index) for index, choice in enumerate(choices)],
        "usage": usage(choices),
    }


def chat_messages(asked: ChatRequest) -> list[ChatMessage]:
    """The messages in the roles that a prompt knows."""
    roles = [_ROLES.get(message.role, message.role) for message in asked.messages]
    return [
        ChatMessage.model_validate({"role": role, "content": message.content})
        for role, message in zip(roles, asked.messages, strict=True)
    ]


def _chat_choice(choice: AnswerChoice, *, index: int) -> dict[str, Any]:
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


_CHUNKS = ChunkShape(
    object="chat.completion.chunk",
    id_prefix="chatcmpl-",
    opening=_delta({"role": "assistant", "content": ""}, finish_reason=None, extra={}),
    turn=lambda text: _delta({"reasoning_content": text}, finish_reason=None, extra={}),
    answer=lambda choice: _delta(
        {"content": choice.content} if choice.refusal is None else {"refusal": choice.refusal},
        finish_reason=None,
        extra={},
    ),
    end=lambda choice: _delta({}, finish_reason=choice.finish_reason, extra=verdict_fields(choice)),
)

"""The route that chat and text completions share: read the body, interpret it, answer as a whole or as a stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from tirjudge_server.call import call_of
from tirjudge_server.openai.answering import REQUEST_HEADER, AnswerShape, ChatJudging, CompletionOptions, announces_json
from tirjudge_server.openai.chunks import respond
from tirjudge_server.openai.conversation import ConversationQuestion
from tirjudge_server.openai.wire import receive
from tirjudge_server.service import JudgeService
from tirjudge_web.openapi import answers_with

Options = TypeVar("Options", bound=CompletionOptions)


def completion_router(
    service: JudgeService,
    model: type[Options],
    interpret: Callable[[JudgeService, Options, bool], ChatJudging | ConversationQuestion],
    *,
    path: str,
    name: str,
    description: str,
    dialect: str,
    shape: AnswerShape,
    answer: type[BaseModel],
    max_body_bytes: int,
) -> APIRouter:
    """Return a router with one `POST` route.

    Args:
        service: Judges the requests.
        model: Model of the request body.
        interpret: Called with the service, the request and whether the last user message is a request as JSON. Returns
            the work to do, or raises `Refused`. Runs in a thread.
        path: Path of the route.
        name: Name of the operation in the OpenAPI document.
        description: Description of the operation in the OpenAPI document.
        dialect: Dialect recorded for each call.
        shape: Shape of the answers.
        answer: Model of a whole answer, for the OpenAPI document.
        max_body_bytes: Maximum size of a request body. A larger one is refused with 413.
    """
    routes = APIRouter()

    @routes.post(path, name=name, description=description, responses=answers_with(answer))
    async def handle(request: Request) -> Response:
        body = await receive(request, model, service=service, max_bytes=max_body_bytes)
        is_json = announces_json(request.headers.get(REQUEST_HEADER))
        call = call_of(request, dialect=dialect)
        work = partial(interpret, service, body, is_json)
        return await respond(request, service, body, work, call=call, shape=shape)

    return routes

"""Completions as one JSON body, or as a stream of chunks in server-sent events.

A stream sends each turn when it ends, then the answer, the end of the choice, the usage if requested, and `[DONE]`. An error
before the first chunk is a plain HTTP error response. A later error is a chunk with `error`, which clients raise.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from typing import Any

from fastapi import Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from tirjudge.http.protocol import HEARTBEAT, ErrorBody
from tirjudge_server.call import Call
from tirjudge_server.openai.answering import (
    AnswerShape,
    ChatJudging,
    CompletionOptions,
    choice_fields,
    choose,
    complete,
    follow,
    usage,
)
from tirjudge_server.openai.conversation import AnswerChoice, ConversationQuestion
from tirjudge_server.openai.wire import refuse
from tirjudge_server.service import JudgeService
from tirjudge_web.connection import while_connected
from tirjudge_web.errors import FAILURES, problem_from
from tirjudge_web.tracebacks import frames_of

logger = logging.getLogger(__name__)

HEARTBEAT_S = 15.0
"""Seconds without a chunk after which a heartbeat is sent. Proxies close streams that are silent for longer."""

OPENING_S = 0.25
"""Seconds to wait for the answer before the stream is opened. An error within this time gets its own HTTP status."""

DONE = b"data: [DONE]\n\n"


async def respond(
    request: Request,
    service: JudgeService,
    body: CompletionOptions,
    interpret: Callable[[], ChatJudging | ConversationQuestion],
    *,
    call: Call,
    shape: AnswerShape,
) -> Response:
    """Answer a request, as a whole or in chunks.

    Args:
        request: The HTTP request.
        service: Judges the requests.
        body: The body.
        interpret: Returns the work to do. Runs in a thread, because searching a long text for a judge prompt takes time.
        call: The call to charge and trace.
        shape: Shape of the answer.

    Raises:
        Refused, QueueFull, ...: See `choose`.
    """
    wanted = await asyncio.to_thread(interpret)
    if body.stream:
        return await stream(service, wanted, body, call=call, shape=shape)
    answer = await while_connected(request.receive, complete(service, wanted, body, call=call, shape=shape))
    ids = [choice["judgment_id"] for choice in answer["choices"] if "judgment_id" in choice]
    return JSONResponse(answer, headers={"x-judgment-id": ids[0]} if len(ids) == 1 else {})


async def stream(
    service: JudgeService,
    wanted: ChatJudging | ConversationQuestion,
    body: CompletionOptions,
    *,
    call: Call,
    shape: AnswerShape,
) -> StreamingResponse:
    """Start the work and return its stream.

    Raises:
        Refused, QueueFull, ShuttingDown, PromptTooLong, EngineUnavailable, SandboxUnavailable: The work failed within
            `OPENING_S` seconds.
    """
    if body.n > 1:
        raise refuse("n", body.n, hint="a stream has one choice; leave out `stream`, or set n to 1")
    turns: asyncio.Queue[str | None] = asyncio.Queue()
    async with AsyncExitStack() as opened:
        headers: dict[str, str] = {}
        if isinstance(wanted, ChatJudging):
            in_flight = await opened.enter_async_context(service.join_or_begin(wanted.requests[0], call=call))
            headers["x-judgment-id"] = in_flight.judgment_id
            work = follow(in_flight, form=wanted.form, stops=body.stops, on_turn=turns.put)
        else:
            work = choose(service, wanted, body, call=call, on_turn=turns.put)
        working = asyncio.create_task(work)
        opened.push_async_callback(_end, working)
        working.add_done_callback(lambda _: turns.put_nowait(None))
        await asyncio.wait({working}, timeout=OPENING_S)
        if working.done() and working.exception() is not None:
            await working
        writer = _Writer(shape=shape, model=service.judge.profile.name, body=body)
        return _Chunks(_blocks(working, turns, writer=writer), opened=opened.pop_all(), headers=headers)


async def _end(working: asyncio.Task[list[AnswerChoice]]) -> None:
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


class _Writer:
    """Encodes the chunks of one answer."""

    def __init__(self, *, shape: AnswerShape, model: str, body: CompletionOptions) -> None:
        self.shape = shape
        self.sends_usage = body.stream_options is not None and body.stream_options.include_usage
        self.id = f"{shape.id_prefix}{uuid.uuid4().hex}"
        self._head = {
            "id": self.id,
            "object": shape.chunk_object,
            "created": int(time.time()),
            "model": model,
        }

    def chunk(self, fields: dict[str, Any], *, ended: AnswerChoice | None = None) -> bytes:
        """Return a chunk with one choice.

        Args:
            fields: The endpoint's own fields of the choice.
            ended: The finished choice, in its last chunk.
        """
        choice = choice_fields(fields, ended=ended)
        return self._encode({"choices": [choice]} | ({"usage": None} if self.sends_usage else {}))

    def usage(self, choice: AnswerChoice) -> bytes:
        """Return the chunk with the token counts."""
        return self._encode({"choices": [], "usage": usage([choice])})

    def _encode(self, rest: dict[str, Any]) -> bytes:
        return f"data: {json.dumps(self._head | rest, separators=(',', ':'))}\n\n".encode()


async def _blocks(
    working: asyncio.Task[list[AnswerChoice]], turns: asyncio.Queue[str | None], *, writer: _Writer
) -> AsyncGenerator[bytes, None]:
    shape = writer.shape
    if shape.opening is not None:
        yield writer.chunk(shape.opening)
    async for block in _turn_blocks(turns, writer=writer):
        yield block
    try:
        (choice,) = await working
    except Exception as error:
        yield f"data: {ErrorBody(error=problem_from(error)[1]).model_dump_json()}\n\n".encode()
        if not isinstance(error, FAILURES):
            logger.error("%s failed: a bug\n%s", writer.id, frames_of(error))
        return
    yield writer.chunk(shape.answer(choice))
    yield writer.chunk(shape.end, ended=choice)
    if writer.sends_usage:
        yield writer.usage(choice)
    yield DONE


async def _turn_blocks(turns: asyncio.Queue[str | None], *, writer: _Writer) -> AsyncGenerator[bytes, None]:
    while True:
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                text = await turns.get()
        except TimeoutError:
            yield HEARTBEAT
            continue
        if text is None:
            return
        fields = writer.shape.turn(text)
        if fields is not None:
            yield writer.chunk(fields)


class _Chunks(StreamingResponse):
    """A stream that cancels its work when the response ends, so that a disconnected client frees its slot immediately."""

    def __init__(self, blocks: AsyncGenerator[bytes, None], *, opened: AsyncExitStack, headers: dict[str, str]) -> None:
        self._blocks, self._opened = blocks, opened
        super().__init__(blocks, headers=headers, media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._opened:
            try:
                await super().__call__(scope, receive, send)
            finally:
                await self._blocks.aclose()

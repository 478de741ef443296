"""A judgment as a stream of server-sent events: created, each turn when it ends, completed. An error ends the stream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from tirjudge.concurrency import background
from tirjudge.http.protocol import HEARTBEAT, ErrorBody, Event, JudgmentCreated, JudgmentTurn, encode_event
from tirjudge.types import JudgeRequest, TurnRecord
from tirjudge_server.call import Call
from tirjudge_server.service import JudgeService
from tirjudge_web.errors import FAILURES, problem_from
from tirjudge_web.tracebacks import frames_of

logger = logging.getLogger(__name__)

HEARTBEAT_S = 15.0
"""Maximum seconds without an event before a heartbeat is sent. Proxies close connections that are idle for longer."""


async def judgment_events(
    service: JudgeService, request: JudgeRequest, *, call: Call, heartbeat_s: float = HEARTBEAT_S
) -> AsyncGenerator[Event | None, None]:
    """Yield the events of the stream, and None for each heartbeat. The first event is `JudgmentCreated`.

    Args:
        service: makes the judgment.
        request: what to judge.
        call: caller, priority and deadline of the request.
        heartbeat_s: maximum seconds between two events.

    Raises:
        Refused, QueueFull, ShuttingDown, EngineUnavailable, SandboxUnavailable, RecordsUnavailable: before the first
            event. A later failure is an `ErrorBody` event.
    """
    turns: asyncio.Queue[JudgmentTurn | None] = asyncio.Queue()

    async def on_turn(order: Sequence[int], turn: TurnRecord) -> None:
        turns.put_nowait(JudgmentTurn(order=list(order), turn=turn))

    async with service.join_or_begin(request, call=call) as in_flight:
        yield JudgmentCreated(id=in_flight.judgment_id, mode=request.mode, model=service.judge.profile.name)
        async with background(in_flight.judgment(on_turn)) as judging:
            judging.add_done_callback(lambda _: turns.put_nowait(None))
            try:
                async for event in _turn_events(turns, heartbeat_s=heartbeat_s):
                    yield event
                yield await judging
            except Exception as error:
                yield ErrorBody(error=problem_from(error)[1])
                if not isinstance(error, FAILURES):
                    logger.error("%s failed: a bug\n%s", in_flight.judgment_id, frames_of(error))


async def _turn_events(
    turns: asyncio.Queue[JudgmentTurn | None], *, heartbeat_s: float
) -> AsyncGenerator[JudgmentTurn | None, None]:
    """Yield each turn until the queue returns None, and None as a heartbeat when no turn ends in time."""
    while True:
        try:
            async with asyncio.timeout(heartbeat_s):
                turn = await turns.get()
        except TimeoutError:
            yield None
            continue
        if turn is None:
            return
        yield turn


def encode_block(event: Event | None) -> bytes:
    """Encode an event, or a heartbeat, as a block of the stream."""
    return HEARTBEAT if event is None else encode_event(event)


class EventStream(StreamingResponse):
    """A streaming response that closes its generator when the caller disconnects, which cancels the judgment.

    Args:
        first: the first event, already taken from `rest`; a `JudgmentCreated`, or None for a heartbeat.
        rest: the remaining events.
        encode: encodes an event, or None for a heartbeat.
    """

    def __init__(
        self,
        first: Event | None,
        rest: AsyncGenerator[Event | None, None],
        *,
        encode: Callable[[Event | None], bytes] = encode_block,
    ) -> None:
        self._rest = rest
        headers = {"x-judgment-id": first.id} if isinstance(first, JudgmentCreated) else {}
        super().__init__(_blocks(first, rest, encode), headers=headers, media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._rest.aclose()


async def _blocks(
    first: Event | None, rest: AsyncGenerator[Event | None, None], encode: Callable[[Event | None], bytes]
) -> AsyncGenerator[bytes, None]:
    event = first
    while True:
        yield encode(event)
        try:
            event = await anext(rest)
        except StopAsyncIteration:
            return

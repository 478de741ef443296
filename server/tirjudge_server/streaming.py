"""A judgment as server-sent events: created, each turn as it ends, completed; or an error in place of the rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from tirjudge.protocol import HEARTBEAT, ErrorBody, JudgmentCreated, JudgmentTurn, encode_event
from tirjudge.types import JudgeRequest, TurnRecord
from tirjudge_server.errors import JUDGING_FAILURES, problem_from
from tirjudge_server.service import Service

HEARTBEAT_S = 15.0
"""Longest silence of a stream; proxies close quieter ones."""


async def judgment_events(
    service: Service, request: JudgeRequest, *, judgment_id: str, heartbeat_s: float = HEARTBEAT_S
) -> AsyncGenerator[bytes, None]:
    """The blocks of the stream. The place in the queue is held from the first block to the last.

    Raises:
        QueueFull: before the first block.
    """
    turns: asyncio.Queue[JudgmentTurn | None] = asyncio.Queue()

    async def on_turn(order: Sequence[int], turn: TurnRecord) -> None:
        turns.put_nowait(JudgmentTurn(order=list(order), turn=turn))

    with service.admission.enter() as place:
        model = service.judge.profile.name
        yield encode_event(JudgmentCreated(id=judgment_id, mode=request.mode, model=model))
        judging = asyncio.create_task(service.judgment(request, judgment_id=judgment_id, place=place, on_turn=on_turn))
        judging.add_done_callback(lambda _: turns.put_nowait(None))
        try:
            async for block in _turn_blocks(turns, heartbeat_s=heartbeat_s):
                yield block
            yield encode_event(await judging)
        except Exception as error:
            yield encode_event(ErrorBody(error=problem_from(error)[1]))
            if not isinstance(error, JUDGING_FAILURES):
                raise
        finally:
            judging.cancel()
            await asyncio.gather(judging, return_exceptions=True)


async def _turn_blocks(turns: asyncio.Queue[JudgmentTurn | None], *, heartbeat_s: float) -> AsyncGenerator[bytes, None]:
    """A block for each turn up to the `None`, and heartbeats in the silence between."""
    while True:
        try:
            turn = await asyncio.wait_for(turns.get(), heartbeat_s)
        except TimeoutError:
            yield HEARTBEAT
            continue
        if turn is None:
            return
        yield encode_event(turn)


class EventStream(StreamingResponse):
    """Ends its generator with the response, so that a caller who hangs up frees the place at once."""

    def __init__(self, first: bytes, rest: AsyncGenerator[bytes, None], *, headers: dict[str, str]) -> None:
        self._rest = rest
        super().__init__(_chain(first, rest), headers=headers, media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._rest.aclose()


async def _chain(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    yield first
    async for block in rest:
        yield block

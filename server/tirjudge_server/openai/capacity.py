"""Admission of work that is not a judgment. Conversations wait in the same queue as judgments, under the same limits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tirjudge.deadline import Deadline, until
from tirjudge.errors import DeadlineExceeded
from tirjudge.request_context import coming_from
from tirjudge.types import JudgeRequest
from tirjudge_server.call import Call
from tirjudge_server.service import JudgeService
from tirjudge_web.errors import UNAVAILABLE


@asynccontextmanager
async def place(service: JudgeService, request: JudgeRequest, *, call: Call) -> AsyncIterator[Deadline]:
    """Wait in the queue, and hold a slot until the end of the block.

    Args:
        service: Owns the queue.
        request: A request with the model and the `tools` of the work.
        call: The caller, the priority and the deadline.

    Yields:
        The deadline of the work.

    Raises:
        Refused: This server cannot serve the request.
        QueueFull: The queue is full.
        ShuttingDown: The server is shutting down, before or during the work.
        EngineUnavailable, SandboxUnavailable: The engine or the sandbox is down.
        DeadlineExceeded: The deadline passed in the queue.
    """
    service.check(request)
    service.readiness.check(request)
    deadline = Deadline.after(service.deadline_s(request, call=call))
    context = coming_from(call.caller, urgency=call.priority)
    with context, service.admission.enter(caller=call.caller, priority=call.priority) as ticket:
        async with service.draining.limit():
            if await until(deadline.forces_at, ticket.turn()) is None:
                raise DeadlineExceeded("the deadline of this request passed while it was queued")
            try:
                yield deadline
            except UNAVAILABLE as error:
                service.readiness.doubt(error)
                raise

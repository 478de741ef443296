"""A place among the judgments for work that is none: chats without a verdict wait in the same queue, and end in time."""

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
    """Wait for a turn, and hold it until the end of the block; gives the time by which it is to end.

    Args:
        service: whose queue it is.
        request: says which model and what else it needs.
        call: who asks.

    Raises:
        Refused: this server cannot take the request.
        QueueFull: as many wait as may.
        ShuttingDown: the server is about to end, or ended while this waited or worked.
        EngineUnavailable, SandboxUnavailable: it is known not to work.
        DeadlineExceeded: the time was up first.
    """
    service.check(request)
    service.readiness.check(request)
    deadline = Deadline.after(service.deadline_s(request, call=call))
    context = coming_from(call.caller, urgency=call.priority)
    with context, service.admission.enter(caller=call.caller, priority=call.priority) as ticket:
        async with service.draining.limit():
            if await until(deadline.forces_at, ticket.turn()) is None:
                raise DeadlineExceeded("the time for this answer was up before its turn came")
            try:
                yield deadline
            except UNAVAILABLE as error:
                service.readiness.doubt(error)
                raise

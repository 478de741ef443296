"""Limits the bytes of request bodies that one server holds at a time: each is small enough, but connections are many.

When the limit is reached, the body that has been incomplete for the longest gives up its place. So a caller who sends slowly
on purpose keeps no others out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import ASGIApp, Receive, Scope, Send

from tirjudge.http.protocol import Problem
from tirjudge_web.errors import Refused

NUM_LARGEST = 16
"""Bodies of the largest size that are held at a time."""

RETRY_S = 1

_KEY = "tirjudge.body"


class BodyBudget:
    """ASGI middleware: what `read_body` reads counts until its request is answered.

    Args:
        app: reads bodies.
        max_bytes: of all bodies that are held.
    """

    def __init__(self, app: ASGIApp, *, max_bytes: int) -> None:
        self.app = app
        self.max_bytes = max_bytes
        self._num_bytes = 0
        self._reading: dict[HeldBody, None] = {}  # those that are not whole, by their beginning

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        held = scope[_KEY] = HeldBody(self)
        try:
            await self.app(scope, receive, send)
        finally:
            self.release(held)

    def begin(self, held: HeldBody) -> None:
        self._reading[held] = None

    def end(self, held: HeldBody) -> None:
        self._reading.pop(held, None)

    def hold(self, held: HeldBody, *, num_bytes: int) -> None:
        """
        Raises:
            Refused: 503, there is no room, and no body before this one could make any.
        """
        held.num_bytes += num_bytes
        self._num_bytes += num_bytes
        while self._num_bytes > self.max_bytes:
            first = next(iter(self._reading), held)
            self.release(first)
            if first is held:
                raise self.no_room()
            first.give_up()

    def release(self, held: HeldBody) -> None:
        self.end(held)
        self._num_bytes -= held.num_bytes
        held.num_bytes = 0

    def no_room(self) -> Refused:
        message = f"body: {self.max_bytes:,} bytes of other requests are held; send it again in {RETRY_S} s"
        problem = Problem(message=message, type="server_error", code="too_many_bytes")
        return Refused(problem, status=503, headers={"retry-after": str(RETRY_S)})


class HeldBody:
    """The body of one request."""

    def __init__(self, budget: BodyBudget) -> None:
        self.num_bytes = 0
        self._budget = budget
        self._timer: asyncio.Timeout | None = None

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """
        Raises:
            Refused: 503, it has to make room for others.
        """
        self._budget.begin(self)
        try:
            async with asyncio.timeout(None) as self._timer:
                yield
        except TimeoutError as error:
            raise self._budget.no_room() from error
        finally:
            self._budget.end(self)

    def add(self, num_bytes: int) -> None:
        """
        Raises:
            Refused: 503, there is no room.
        """
        self._budget.hold(self, num_bytes=num_bytes)

    def give_up(self) -> None:
        if self._timer is not None:
            self._timer.reschedule(asyncio.get_running_loop().time())


def held_body(scope: Scope) -> HeldBody:
    """Of a request; without a budget around the application, of one that has room for all."""
    return scope.get(_KEY) or HeldBody(BodyBudget(_nothing, max_bytes=1 << 62))


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    raise NotImplementedError

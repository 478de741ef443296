"""Limit the total size of the request bodies that a server holds in memory, in addition to the limit of each body.

When the total is reached, the request whose body has been incomplete for the longest time is refused. A caller who
sends slowly on purpose therefore cannot block others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import ASGIApp, Receive, Scope, Send

from tirjudge.http.protocol import Problem
from tirjudge_web.errors import Refused

NUM_LARGEST = 16
"""Number of bodies of maximum size that fit into the budget."""

RETRY_S = 1
"""Value of the header retry-after, in seconds."""

_KEY = "tirjudge.body"


class BodyBudget:
    """ASGI middleware that counts the bytes read by `read_body` until the request is answered, and the messages that the
    application of a WebSocket holds.

    Args:
        app: the application.
        max_bytes: maximum total size of all bodies held.
    """

    def __init__(self, app: ASGIApp, *, max_bytes: int) -> None:
        self.app = app
        self.max_bytes = max_bytes
        self._num_bytes = 0
        self._reading: dict[HeldBody, None] = {}  # incomplete bodies, oldest first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        held = scope[_KEY] = HeldBody(self)
        try:
            await self.app(scope, receive, send)
        finally:
            self.release(held)

    def begin(self, held: HeldBody) -> None:
        """Mark a body as incomplete."""
        self._reading[held] = None

    def end(self, held: HeldBody) -> None:
        """Mark a body as complete, or as abandoned."""
        self._reading.pop(held, None)

    def hold(self, held: HeldBody, *, num_bytes: int) -> None:
        """Count bytes of a body. If the budget is exceeded, refuse older incomplete bodies until it is not.

        Raises:
            Refused: 503, the budget is exceeded and this body is the oldest incomplete one.
        """
        held.num_bytes += num_bytes
        self._num_bytes += num_bytes
        while self._num_bytes > self.max_bytes:
            first = next(iter(self._reading), held)
            self.release(first)
            if first is held:
                raise self.no_room()
            first.give_up()

    def discount(self, num_bytes: int) -> None:
        """Count bytes of a body no longer."""
        self._num_bytes -= num_bytes

    def release(self, held: HeldBody) -> None:
        """Stop counting a body."""
        self.end(held)
        self._num_bytes -= held.num_bytes
        held.num_bytes = 0

    def no_room(self) -> Refused:
        """Return the error for a body that exceeds the budget."""
        message = f"body: the bodies of all requests exceed {self.max_bytes:,} bytes; retry in {RETRY_S} s"
        problem = Problem(message=message, type="server_error", code="too_many_bytes")
        return Refused(problem, status=503, headers={"retry-after": str(RETRY_S)})


class HeldBody:
    """The body of one request, as counted by a budget."""

    def __init__(self, budget: BodyBudget) -> None:
        self.num_bytes = 0
        self._budget = budget
        self._timer: asyncio.Timeout | None = None

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Context in which the body is read.

        Raises:
            Refused: 503, the body was abandoned in favor of newer ones.
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
        """Count bytes of this body.

        Raises:
            Refused: 503, see `BodyBudget.hold`.
        """
        self._budget.hold(self, num_bytes=num_bytes)

    def remove(self, num_bytes: int) -> None:
        """Count bytes no longer that were added, unless the body was released."""
        num_bytes = min(num_bytes, self.num_bytes)
        self.num_bytes -= num_bytes
        self._budget.discount(num_bytes)

    def give_up(self) -> None:
        """Abort reading this body."""
        if self._timer is not None:
            self._timer.reschedule(asyncio.get_running_loop().time())


def held_body(scope: Scope) -> HeldBody:
    """Return the counted body of a request. Without the middleware, the budget is unlimited."""
    return scope.get(_KEY) or HeldBody(BodyBudget(_nothing, max_bytes=1 << 62))


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    raise NotImplementedError

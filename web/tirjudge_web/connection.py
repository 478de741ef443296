"""Cancel the work of a request, including its engine and sandbox calls, when the caller disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from tirjudge.concurrency import background

T = TypeVar("T")

HUNG_UP = 499
"""Status of a request whose caller disconnected before the response."""


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Await work, and cancel it if the caller disconnects.

    Args:
        receive: ASGI function of a request whose body was read completely. Its next message is the disconnect.
        work: work for the request.

    Raises:
        ClientDisconnect: the caller disconnected before the work was done.
    """
    async with background(work) as working, background(_hang_up(receive)) as hung_up:
        await asyncio.wait({working, hung_up}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

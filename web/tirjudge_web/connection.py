"""Cancels the work of a request when its caller hangs up, down to the engine and the sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from tirjudge.concurrency import background

T = TypeVar("T")

HUNG_UP = 499
"""Status of a request whose caller hung up before the answer."""


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Do the work for as long as the caller is there.

    Args:
        receive: of a request whose body was read whole; what comes next can only be its end.
        work: cancelled when the caller hangs up.

    Raises:
        ClientDisconnect: the caller hung up first.
    """
    async with background(work) as working, background(_hang_up(receive)) as hung_up:
        await asyncio.wait({working, hung_up}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

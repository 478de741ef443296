"""Waiting for what nobody announces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], *, at_most_s: float = 20.0) -> None:
    """Raises TimeoutError if it does not come about."""
    async with asyncio.timeout(at_most_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)

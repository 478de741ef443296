"""Wait for a condition that has no event to wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], *, at_most_s: float = 60.0) -> None:
    """Poll a condition until it is true. Raises TimeoutError after `at_most_s` seconds."""
    async with asyncio.timeout(at_most_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)

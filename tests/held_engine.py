"""A scripted engine whose progress a test controls, for tests of queues, batches and coalescing without sleeping."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.types import Completion, Sampling


class HeldEngine(ScriptedEngine):
    """Writes a turn only when the test allows a turn. Reads of label probabilities never wait.

    Attributes:
        num_held: Number of turns that wait for permission.
    """

    def __init__(self, script: Iterable[str] | Callable[[str], str], **options: Any) -> None:
        super().__init__(script, **options)
        self.num_held = 0
        self._permits = asyncio.Semaphore(0)

    def allow(self, num_turns: int) -> None:
        """Let this many more turns be written."""
        for _ in range(num_turns):
            self._permits.release()

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        if sampling.allowed_token_ids is None:
            self.num_held += 1
            try:
                await self._permits.acquire()
            finally:
                self.num_held -= 1
        return await super().generate(token_ids, sampling=sampling, session=session)

"""One engine of a fleet: what it serves, whether that is what the others serve, and with which weights."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tirjudge.engines.base import Engine
from tirjudge.engines.vllm import ServedModel
from tirjudge.errors import CheckpointError, EngineUnavailable
from tirjudge.http.workers import Worker

PROBE = (
    "```python\nprint(len(response_a.split()) >= 12, 3.14159)\n```\n```output\nTrue\n```\n"
    "<preference>A</preference> <score>10</score> Zwölf naïve Wörter, 数字 и слова 🙂\t\t  \n\n\n"
)
"""Two tokenizers that agree on this, and on it as a message, are one. Too long for anybody to remember its ids."""

LOOK_TIMEOUT_S = 10.0
"""Longest that a worker may take to say how it is."""

T = TypeVar("T")


class RemoteEngine(Engine, Protocol):
    """An engine behind a URL."""

    async def ready(self) -> ServedModel:
        """What it serves, once it is healthy.

        Raises:
            EngineUnavailable: it cannot be reached, or is not healthy.
            CheckpointError: it does not serve the model asked for.
        """
        ...

    async def progress(self) -> str | None:
        """What changes whenever it takes a step, for whomever; None: it does not say."""
        ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """What a fleet was last told to go on with."""

    checkpoint: Path
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerIdentity:
    """What has to be the same wherever a rollout may go on."""

    served: ServedModel
    tokenizer_sha256: str
    """Of the ids of `PROBE`."""

    def difference(self, others: WorkerIdentity) -> str | None:
        """What of it is not as the others have it; None: nothing."""
        if self.served != others.served:
            return f"it serves {_shown(self.served)}, the others {_shown(others.served)}"
        return None if self == others else "its tokenizer is not that of the others"


@dataclass(slots=True, eq=False, kw_only=True)
class EngineWorker(Worker):
    """One engine, as the fleet sees it."""

    engine: RemoteEngine
    weights: Weights | None = None
    """What it was told to go on with since it was last left out; None: nothing."""
    asked: set[asyncio.Future[Any]] = field(default_factory=set, repr=False)
    """What it was asked and has not answered."""
    num_missed: int = 0
    """How often in a row it did not say in time how it is."""
    num_turns: int = 0
    """Turns that it was asked since the start."""
    seen_at: tuple[str, float] | None = None
    """Its progress, and since when it has not changed, as far as it was looked at without a gap."""
    mute_since: float | None = None
    """Since when it has written no token for us, though it says that it is well; None: it has."""

    async def identify(self) -> WorkerIdentity:
        """
        Raises:
            EngineUnavailable: it cannot be reached, is not healthy, or takes too long to say so.
            CheckpointError: it does not serve the model asked for.
        """
        return await in_time(self._identify(), url=self.url)

    async def ask(self, request: Awaitable[T]) -> T:
        """What it answers.

        Raises:
            EngineUnavailable: nobody waits for its answer any more, because it was given up.
            What the request raises.
        """
        asking = asyncio.ensure_future(request)
        self.asked.add(asking)
        try:
            await asyncio.wait([asking])
        finally:
            self.asked.discard(asking)
            if not asking.done():  # whoever asked has gone
                await cancelled(asking)
        if asking.cancelled():
            raise EngineUnavailable(f"{self.url}: {self.problem}")
        return asking.result()

    async def ask_turn(self, turn: Awaitable[T]) -> T:
        """The same for a turn, which is counted."""
        self.num_running += 1
        self.num_turns += 1
        self.last_used = asyncio.get_running_loop().time()
        try:
            return await self.ask(turn)
        finally:
            self.num_running -= 1

    async def stuck_s(self, *, within_s: float) -> float:
        """For how long it has made no progress, though it has turns; 0 if it does not say so within that time."""
        progress = None
        if self.num_running:
            with suppress(TimeoutError):
                progress = await asyncio.wait_for(self.engine.progress(), within_s)
        if progress is None:
            self.seen_at = None
            return 0.0
        now = asyncio.get_running_loop().time()
        if self.seen_at is None or self.seen_at[0] != progress:
            self.seen_at = progress, now
        return now - self.seen_at[1]

    def give_up(self) -> None:
        """Wait no longer for what it was asked."""
        for asking in self.asked:
            asking.cancel()

    async def load(self, weights: Weights) -> None:
        """
        Raises:
            CheckpointError: it cannot exchange its weights; nothing has changed.
            EngineUnavailable: it failed, and nobody knows which weights it has now.
        """
        reload = getattr(self.engine, "reload", None)
        if reload is None:
            raise CheckpointError(f"{self.url}: this engine cannot exchange its weights")
        await reload(weights.checkpoint, version=weights.version)
        self.weights, self.seen_at = weights, None

    async def _identify(self) -> WorkerIdentity:
        served = await self.engine.ready()
        tokenizer = self.engine.tokenizer
        ids = [await tokenizer.encode(PROBE), await tokenizer.encode_prompt(PROBE)]
        return WorkerIdentity(served=served, tokenizer_sha256=hashlib.sha256(json.dumps(ids).encode()).hexdigest())


async def in_time(answer: Awaitable[T], *, url: str) -> T:
    """
    Raises:
        EngineUnavailable: there is no answer in time.
        What the answer raises.
    """
    try:
        return await asyncio.wait_for(answer, LOOK_TIMEOUT_S)
    except TimeoutError as error:
        raise EngineUnavailable(f"{url}: no answer within {LOOK_TIMEOUT_S:g} s") from error


async def cancelled(task: asyncio.Future[Any]) -> None:
    """Cancel it, and wait until it has ended."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _shown(served: ServedModel) -> str:
    return f"{served.name} with {served.context_tokens} tokens of context"

"""One engine of a fleet: its identity (model and tokenizer), its weights, its requests in flight and its progress."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tirjudge.concurrency import background
from tirjudge.engines.base import Engine
from tirjudge.engines.vllm import ServedModel
from tirjudge.errors import CheckpointError, EngineUnavailable
from tirjudge.http.workers import Worker

PROBE = (
    "```python\nprint(len(response_a.split()) >= 12, 3.14159)\n```\n```output\nTrue\n```\n"
    "<preference>A</preference> <score>10</score> Zwölf naïve Wörter, 数字 и слова 🙂\t\t  \n\n\n"
)
"""Text for comparing tokenizers: equal ids for it, as a text and as a message, count as the same tokenizer. It is
longer than the texts whose encodings are cached."""

LOOK_TIMEOUT_S = 10.0
"""Timeout of a health check, in seconds."""

T = TypeVar("T")


class RemoteEngine(Engine, Protocol):
    """An engine behind a URL."""

    async def ready(self) -> ServedModel:
        """Check that the server is healthy and return the model it serves.

        Raises:
            EngineUnavailable: the server cannot be reached or is not healthy.
            CheckpointError: the server does not serve the requested model.
        """
        ...

    async def progress(self) -> str | None:
        """Return a text that changes with every step of the engine, for any client; None: not available."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The weights of the last `reload` of a fleet."""

    checkpoint: Path
    """Checkpoint folder."""
    version: str
    """Version of the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerIdentity:
    """Properties that must be equal for all workers, so that a rollout can move between them."""

    served: ServedModel
    """Name and context of the model."""
    tokenizer_sha256: str
    """Hash of the ids of `PROBE`."""

    def difference(self, others: WorkerIdentity) -> str | None:
        """Return the difference to the other workers as an error message; None: equal."""
        if self.served != others.served:
            return f"it serves {_shown(self.served)}, the others {_shown(others.served)}"
        return None if self == others else "its tokenizer differs from that of the others"


@dataclass(slots=True, eq=False, kw_only=True)
class EngineWorker(Worker):
    """One engine of a fleet."""

    engine: RemoteEngine
    """The engine."""
    weights: Weights | None = None
    """Weights loaded since the worker was last excluded. None: its initial weights."""
    asked: set[asyncio.Future[Any]] = field(default_factory=set, repr=False)
    """Requests in flight."""
    num_missed: int = 0
    """Number of consecutive health checks that timed out."""
    num_turns: int = 0
    """Number of turns sent since the start."""
    seen_at: tuple[str, float] | None = None
    """Last observed progress and the time since when it has been unchanged. None: not observed continuously."""
    mute_since: float | None = None
    """Time since when the worker reports to be healthy but generates no token. None: it generates."""

    async def identify(self) -> WorkerIdentity:
        """Check the health of the worker and return its identity.

        Raises:
            EngineUnavailable: the worker cannot be reached, is not healthy, or the check timed out.
            CheckpointError: the worker does not serve the requested model.
        """
        return await in_time(self._identify(), url=self.url)

    async def ask(self, request: Coroutine[Any, Any, T]) -> T:
        """Await a request to the worker, which `give_up` can cancel. Errors of the request are raised unchanged.

        Raises:
            EngineUnavailable: the request was cancelled by `give_up`.
        """
        async with background(request) as asking:
            self.asked.add(asking)
            try:
                await asyncio.wait([asking])
            finally:
                self.asked.discard(asking)
        if asking.cancelled():
            raise EngineUnavailable(f"{self.url}: {self.problem}")
        return asking.result()

    async def ask_turn(self, turn: Coroutine[Any, Any, T]) -> T:
        """Like `ask`, for a turn: also update the counters of turns."""
        self.num_running += 1
        self.num_turns += 1
        self.last_used = asyncio.get_running_loop().time()
        try:
            return await self.ask(turn)
        finally:
            self.num_running -= 1

    async def stuck_s(self, *, within_s: float) -> float:
        """Return for how many seconds the worker has made no progress on its turns; 0 if it is idle or does not answer.

        Args:
            within_s: timeout of the request for the progress, in seconds.
        """
        progress = None
        if self.num_running:
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    progress = await self.engine.progress()
        if progress is None:
            self.seen_at = None
            return 0.0
        now = asyncio.get_running_loop().time()
        if self.seen_at is None or self.seen_at[0] != progress:
            self.seen_at = progress, now
        return now - self.seen_at[1]

    def give_up(self) -> None:
        """Cancel all requests in flight."""
        for asking in self.asked:
            asking.cancel()

    async def load(self, weights: Weights) -> None:
        """Load weights into the worker.

        Raises:
            CheckpointError: the worker cannot load these weights. It still has the old ones.
            EngineUnavailable: the worker failed. It is not known which weights it has.
        """
        reload = getattr(self.engine, "reload", None)
        if reload is None:
            raise CheckpointError(f"{self.url}: this engine cannot replace its weights")
        await reload(weights.checkpoint, version=weights.version)
        self.weights, self.seen_at = weights, None

    async def _identify(self) -> WorkerIdentity:
        served = await self.engine.ready()
        tokenizer = self.engine.tokenizer
        ids = [await tokenizer.encode(PROBE), await tokenizer.encode_prompt(PROBE)]
        return WorkerIdentity(served=served, tokenizer_sha256=hashlib.sha256(json.dumps(ids).encode()).hexdigest())


async def in_time(answer: Awaitable[T], *, url: str) -> T:
    """Await an answer with the timeout of a health check. Other errors of the answer are raised unchanged.

    Raises:
        EngineUnavailable: no answer within `LOOK_TIMEOUT_S`.
    """
    try:
        async with asyncio.timeout(LOOK_TIMEOUT_S):
            return await answer
    except TimeoutError as error:
        raise EngineUnavailable(f"{url}: no answer within {LOOK_TIMEOUT_S:g} s") from error


async def cancelled(task: asyncio.Future[Any]) -> None:
    """Cancel a task and wait until it has ended."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _shown(served: ServedModel) -> str:
    return f"{served.name} with {served.context_tokens} tokens of context"

"""A judge with a persistent cache: a request that was answered in this or an earlier run is not sent again.

    runner = Runner(opened.judge, identity=opened.identity, store=store, pace=Pace(most=64))
    judgment = await runner.judge(request)

Any number of tasks can call `judge` concurrently. The number of requests in flight adapts to the endpoint. Identical
requests are sent once. A failure is recorded and raised; the next run sends the request again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, Protocol, TypeVar

from tirjudge.concurrency import run_concurrently
from tirjudge.errors import (
    DeadlineExceeded,
    EngineNotListening,
    EngineUnavailable,
    RequestNotShown,
    SandboxBusy,
    SandboxUnavailable,
    TirjudgeError,
)
from tirjudge.http.exchange import RequestRefused, ServerNotListening, ServerUnavailable
from tirjudge.http.retry_events import on_retry
from tirjudge.types import JudgeRequest, Judgment
from tirjudge_harness.pacing import Pace
from tirjudge_harness.run_store import RunStopped

JudgeOne = Callable[[JudgeRequest], Awaitable[Judgment]]
"""Makes one judgment, in this process or through a client."""

UNAVAILABLE = (EngineUnavailable, SandboxUnavailable, ServerUnavailable)
"""Failures of engine, sandbox or server, which do not depend on the request."""

MAX_FAILURES = 5
"""The run stops after this number of consecutive failures, and after this number of refused requests if no request was
answered."""

MAX_SILENCE_S = 60.0
"""The run stops after two consecutive failures if there was no answer for this number of seconds."""

MAX_BUSY = 8
"""Maximum number of retries of a request while the sandbox queue is full."""

IGNORED_FIELDS = {"stream"}
"""Request fields that do not affect the judgment and are not part of its key."""

T = TypeVar("T")
R = TypeVar("R")


class Store(Protocol):
    """Stores judgments by key."""

    @property
    def place(self) -> str:
        """Path of the store, for messages."""
        ...

    def find(self, key: str) -> Judgment | None:
        """Return a stored judgment; None if missing."""
        ...

    async def keep(self, key: str, judgment: Judgment) -> None:
        """Store a judgment. The judgment is on disk when the method returns."""

    async def fail(self, key: str, error: str) -> None:
        """Record the error of a failed request."""


def key_of(request: JudgeRequest, *, identity: Mapping[str, Any]) -> str:
    """Return the key of a request: a hash of the judge's identity and the request, 64 hex digits."""
    asked = {"judge": dict(identity), "request": request.model_dump(mode="json", exclude=IGNORED_FIELDS)}
    return hashlib.sha256(json.dumps(asked, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


class Runner:
    """Sends requests to a judge with adaptive concurrency, and stores the judgments.

    Args:
        judge: makes one judgment.
        identity: JSON data that identifies the judge, such as its name and fingerprint.
        store: holds earlier judgments and receives new ones.
        pace: limit for the number of requests in flight.

    Attributes:
        num_asked: number of requests that the judge answered in this run.
    """

    def __init__(self, judge: JudgeOne, *, identity: Mapping[str, Any], store: Store, pace: Pace) -> None:
        self.pace = pace
        self.num_asked = 0
        self._judge = judge
        self._identity = dict(identity)
        self._store = store
        self._slots = _Slots(pace)
        self._in_flight: dict[str, asyncio.Task[Judgment]] = {}
        self._unavailable_since: float | None = None
        self._answered_at = 0.0
        self._num_unavailable = 0
        self._num_refused = 0
        self._stopped: RunStopped | None = None

    def key_of(self, request: JudgeRequest) -> str:
        """Return the key of the judgment in the store."""
        return key_of(request, identity=self._identity)

    async def judge(self, request: JudgeRequest) -> Judgment:
        """Return the judgment from the store, or request it from the judge.

        Raises:
            RunStopped: the run cannot continue, because the judge is unavailable or the disk is full. Do not handle this
                error like the failure of a single request.
            TirjudgeError: the request failed. The failure is recorded.
        """
        key = self.key_of(request)
        while (kept := self._store.find(key)) is None:
            same = self._in_flight.get(key)
            if same is None:
                return await self._begin(key, request)
            await asyncio.wait([same])
            if not same.cancelled():
                return same.result()
        return kept

    async def _begin(self, key: str, request: JudgeRequest) -> Judgment:
        task = self._in_flight[key] = asyncio.create_task(self._ask(key, request))
        try:
            return await task
        finally:
            del self._in_flight[key]

    async def _ask(self, key: str, request: JudgeRequest) -> Judgment:
        async with self._slots.one() as stage:
            if self._stopped is not None:
                raise self._stopped
            began = monotonic()
            try:
                judgment = await self._paced(request, stage=stage)
            except TirjudgeError as error:
                self._count_failure(error, began=began)
                await self._store.fail(key, f"{type(error).__name__}: {error}")
                if self._stopped is not None:
                    raise self._stopped from error
                raise
        self._num_unavailable, self._unavailable_since, self._answered_at = 0, None, monotonic()
        await self._store.keep(key, judgment)
        self.num_asked += 1
        return judgment

    async def _paced(self, request: JudgeRequest, *, stage: int) -> Judgment:
        """Make one judgment. Report its latency, retries and failure to the pace."""
        pauses: list[float] = []

        def on_pause(pause_s: float) -> None:
            pauses.append(pause_s)
            self.pace.refused(stage=stage)

        started = monotonic()
        try:
            with on_retry(on_pause):
                judgment = await self._with_busy_retries(request, on_busy=on_pause)
        except (*UNAVAILABLE, DeadlineExceeded):
            self.pace.refused(stage=stage)
            raise
        if not pauses:
            self.pace.answered(monotonic() - started, stage=stage)
        return judgment

    async def _with_busy_retries(self, request: JudgeRequest, *, on_busy: Callable[[float], None]) -> Judgment:
        """Make one judgment. Retry while the sandbox queue of this process is full."""
        for _ in range(MAX_BUSY):
            try:
                return await self._judge(request)
            except SandboxBusy as error:
                on_busy(error.retry_after_s)
                await asyncio.sleep(error.retry_after_s)
        return await self._judge(request)

    def _count_failure(self, error: TirjudgeError, *, began: float) -> None:
        """Count a failure, and stop the run if further requests are pointless. `began`: start of the request, monotonic."""
        if isinstance(error, RequestRefused | RequestNotShown):
            self._num_refused += 1
            kind = error.problem.type if isinstance(error, RequestRefused) else None
            is_ours = kind in ("authentication_error", "permission_error")
            if is_ours or (self._num_refused >= MAX_FAILURES and not self.num_asked):
                self._stop(f"the judge refuses the requests: {error}")
        elif isinstance(error, ServerNotListening | EngineNotListening):
            self._stop(str(error))
        elif isinstance(error, UNAVAILABLE):
            self._num_unavailable += 1
            if self._unavailable_since is None:
                self._unavailable_since = max(began, self._answered_at)
            silent_s = monotonic() - self._unavailable_since
            is_long = self._num_unavailable > 1 and silent_s >= MAX_SILENCE_S
            if is_long or self._num_unavailable >= MAX_FAILURES:
                self._stop(f"{self._num_unavailable} consecutive requests failed within {silent_s:.0f} s: {error}")

    def _stop(self, why: str) -> None:
        self._stopped = RunStopped(
            f"run stopped: {why}; judgments are stored in {self._store.place}, run the same command again to continue"
        )
        self._stopped.why = why


async def run_all(
    questions: Iterable[tuple[T, JudgeRequest]],
    *,
    runner: Runner,
    on_done: Callable[[T, Judgment | TirjudgeError], None],
) -> None:
    """Send all requests. A failure does not stop the other requests.

    Args:
        questions: names with their requests.
        runner: sends the requests.
        on_done: called with each name and its judgment or error.

    Raises:
        RunStopped: the run cannot continue.
    """
    await do_all(
        questions,
        do=lambda question: runner.judge(question[1]),
        most=runner.pace.most,
        on_done=lambda question, done: on_done(question[0], done),
    )


async def do_all(
    pieces: Iterable[T],
    *,
    do: Callable[[T], Awaitable[R]],
    most: int,
    on_done: Callable[[T, R | TirjudgeError], None],
) -> None:
    """Process items concurrently. A failure does not stop the other items.

    Args:
        pieces: items to process.
        do: processes one item.
        most: maximum number of items in progress.
        on_done: called with each item and its result or error.

    Raises:
        RunStopped: the run cannot continue.
    """

    async def one(piece: T) -> None:
        try:
            done: R | TirjudgeError = await do(piece)
        except RunStopped:
            raise
        except TirjudgeError as error:
            done = error
        on_done(piece, done)

    await run_concurrently(map(one, pieces), num_at_once=most)


class _Slots:
    """A first-come, first-served semaphore whose size is the current limit of a `Pace`."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._num_used = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[int]:
        """Hold one slot. Yields the stage of the pace when the slot was acquired."""
        await self._acquire()
        try:
            yield self._pace.begin()
        finally:
            self._num_used -= 1
            self._wake()

    async def _acquire(self) -> None:
        slot = asyncio.get_running_loop().create_future()
        self._waiting.append(slot)
        self._wake()
        try:
            await slot
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled():
                self._num_used -= 1
                self._wake()
            raise

    def _wake(self) -> None:
        while self._waiting and self._num_used < self._pace.limit:
            slot = self._waiting.popleft()
            if not slot.done():
                slot.set_result(None)
                self._num_used += 1

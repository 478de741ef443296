"""A judge whose answers are written down: what was answered once is not asked again, in this run or a later one.

    runner = Runner(opened.judge, identity=opened.identity, store=store, pace=Pace(most=64))
    judgment = await runner.judge(request)

Any number of tasks may ask at once; how many are under way at a time adapts to the endpoint. Questions that are the same
are asked once. A judgment that we fail to make is put down as a failure and raised; the next run asks anew.
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
from tirjudge.errors import DeadlineExceeded, EngineUnavailable, SandboxBusy, SandboxUnavailable, TirjudgeError
from tirjudge.http.exchange import RequestRefused, ServerUnavailable
from tirjudge.http.retry_events import on_retry
from tirjudge.types import JudgeRequest, Judgment
from tirjudge_harness.pacing import Pace
from tirjudge_harness.run_store import RunStopped

JudgeOne = Callable[[JudgeRequest], Awaitable[Judgment]]
"""A judge in this process, or a client of one elsewhere."""

UNAVAILABLE = (EngineUnavailable, SandboxUnavailable, ServerUnavailable)
"""What fails when it is not the question's fault."""

MAX_FAILURES = 5
"""So many failures in a row, with no answer between them, and the run stops: of a judge that is not there, or of one that
has refused every question so far."""

MAX_SILENCE_S = 60.0
"""Two in a row are enough once nothing has come for so long."""

MAX_BUSY = 8
"""How often a question that found the sandbox full is asked again."""

UNHEEDED = {"stream"}
"""Fields of a request that change no judgment."""

T = TypeVar("T")
R = TypeVar("R")


class Store(Protocol):
    """Where judgments are kept, by key."""

    @property
    def place(self) -> str:
        """Where that is, for messages."""
        ...

    def find(self, key: str) -> Judgment | None: ...

    async def keep(self, key: str, judgment: Judgment) -> None:
        """On disk when it returns."""

    async def fail(self, key: str, error: str) -> None:
        """Put down why there is no judgment."""


def key_of(request: JudgeRequest, *, identity: Mapping[str, Any]) -> str:
    """The key of a question: a hash of who judges, how, and what is shown, 64 hex digits."""
    asked = {"judge": dict(identity), "request": request.model_dump(mode="json", exclude=UNHEEDED)}
    return hashlib.sha256(json.dumps(asked, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


class Runner:
    """Asks a judge, at a pace that it stands, and writes down what it says.

    Args:
        judge: makes one judgment.
        identity: what tells this judge from others, such as its name and fingerprint; JSON.
        store: has what was judged before, and gets what is judged now.
        pace: how many are asked at a time.

    Attributes:
        num_asked: questions answered by the judge itself, not by the store.
    """

    def __init__(self, judge: JudgeOne, *, identity: Mapping[str, Any], store: Store, pace: Pace) -> None:
        self.pace = pace
        self.num_asked = 0
        self._judge = judge
        self._identity = dict(identity)
        self._store = store
        self._places = _Places(pace)
        self._under_way: dict[str, asyncio.Task[Judgment]] = {}
        self._unavailable_since: float | None = None
        self._answered_at = 0.0
        self._num_unavailable = 0
        self._num_refused = 0
        self._stopped: RunStopped | None = None

    def key_of(self, request: JudgeRequest) -> str:
        """The key under which the store has its judgment."""
        return key_of(request, identity=self._identity)

    async def judge(self, request: JudgeRequest) -> Judgment:
        """The judgment, from the store or from the judge.

        Raises:
            RunStopped: the run cannot go on: the endpoint is gone, or the disk is full. Do not catch it with the others.
            TirjudgeError: we failed to make it; that is put down.
        """
        key = self.key_of(request)
        while (kept := self._store.find(key)) is None:
            same = self._under_way.get(key)
            if same is None:
                return await self._begin(key, request)
            await asyncio.wait([same])
            if not same.cancelled():
                return same.result()
        return kept

    async def _begin(self, key: str, request: JudgeRequest) -> Judgment:
        task = self._under_way[key] = asyncio.create_task(self._ask(key, request))
        try:
            return await task
        finally:
            del self._under_way[key]

    async def _ask(self, key: str, request: JudgeRequest) -> Judgment:
        async with self._places.one() as stage:
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
        """One judgment; the pace hears of how it went."""
        pauses: list[float] = []

        def heard(pause_s: float) -> None:
            pauses.append(pause_s)
            self.pace.refused(stage=stage)

        started = monotonic()
        try:
            with on_retry(heard):
                judgment = await self._patient(request, on_busy=heard)
        except (*UNAVAILABLE, DeadlineExceeded):
            self.pace.refused(stage=stage)
            raise
        if not pauses:
            self.pace.answered(monotonic() - started, stage=stage)
        return judgment

    async def _patient(self, request: JudgeRequest, *, on_busy: Callable[[float], None]) -> Judgment:
        """One judgment, asked for again while the sandbox of this process is full."""
        for _ in range(MAX_BUSY):
            try:
                return await self._judge(request)
            except SandboxBusy as error:
                on_busy(error.retry_after_s)
                await asyncio.sleep(error.retry_after_s)
        return await self._judge(request)

    def _count_failure(self, error: TirjudgeError, *, began: float) -> None:
        """Stop if there is no sense in going on; `began` is when the question was."""
        if isinstance(error, RequestRefused):
            self._num_refused += 1
            is_ours = error.problem.type in ("authentication_error", "permission_error")
            if is_ours or (self._num_refused >= MAX_FAILURES and not self.num_asked):
                self._stop(f"the judge refuses what it is asked: {error}")
        elif isinstance(error, UNAVAILABLE):
            self._num_unavailable += 1
            if self._unavailable_since is None:
                self._unavailable_since = max(began, self._answered_at)
            silent_s = monotonic() - self._unavailable_since
            is_long = self._num_unavailable > 1 and silent_s >= MAX_SILENCE_S
            if is_long or self._num_unavailable >= MAX_FAILURES:
                self._stop(f"{self._num_unavailable} questions in a row failed within {silent_s:.0f} s: {error}")

    def _stop(self, why: str) -> None:
        self._stopped = RunStopped(
            f"stopped, {why}; what was judged is kept in {self._store.place}, and the same command goes on from there"
        )


async def run_all(
    questions: Iterable[tuple[T, JudgeRequest]],
    *,
    runner: Runner,
    on_done: Callable[[T, Judgment | TirjudgeError], None],
) -> None:
    """Ask everything. What fails stops no other; `on_done` is told of each, with the name that came with it.

    Raises:
        RunStopped: the run cannot go on.
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
    """Do pieces of work, so many at a time. What fails stops no other; `on_done` is told of each.

    Raises:
        RunStopped: the run cannot go on.
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


class _Places:
    """Who may ask, in the order in which they came; as many at a time as the pace says."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._num_taken = 0
        self._line: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[int]:
        """A place; yields the stage in which it was taken."""
        await self._take()
        try:
            yield self._pace.begin()
        finally:
            self._num_taken -= 1
            self._let_in()

    async def _take(self) -> None:
        place = asyncio.get_running_loop().create_future()
        self._line.append(place)
        self._let_in()
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._num_taken -= 1
                self._let_in()
            raise

    def _let_in(self) -> None:
        while self._line and self._num_taken < self._pace.limit:
            place = self._line.popleft()
            if not place.done():
                place.set_result(None)
                self._num_taken += 1

"""Any number of engines that serve the same model, as one: a rollout stays where its prefix is cached, and goes on elsewhere
if it must.

What a reader would trip over:

- A turn is its token ids, so it can be asked anywhere. A worker that fails is left out, and its turns are asked of others,
  of three workers at most: a turn that kills engines must not get to all of them.
- What a worker refuses as wrong (`TurnRefused`, `PromptTooLong`) is asked of nobody else.
- Weights are exchanged in all workers or the worker is left out. One that was left out since may have been started anew
  with the weights it had at first: it is told again, and gets no turn before.
- It works in one event loop, from `ready`, called once, to `aclose`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from tirjudge.control_tokens import ControlTokens
from tirjudge.engines.base import BaseEngine, EngineFacts, Tokenizer
from tirjudge.engines.fleet_worker import EngineWorker, RemoteEngine, Weights, WorkerIdentity, cancelled, in_time
from tirjudge.engines.vllm import ServedModel
from tirjudge.errors import CheckpointError, EngineUnavailable, TirjudgeError, TurnRefused, logged
from tirjudge.http.workers import least_busy
from tirjudge.types import Completion, Sampling

logger = logging.getLogger(__name__)

MUCH_BUSIER = 4
"""So many turns more than the least busy worker, and the rollouts of one request do not go to the same worker any more:
waiting costs more than computing their common prompt once more."""

MAX_WORKERS_ASKED = 3
"""Of how many workers a turn is asked, one after the other, before it fails."""

NUM_REMEMBERED = 65536
"""Rollouts, and requests, whose worker is remembered; the oldest are forgotten, which costs them their cache."""

WATCH_S = 5.0
"""Between two looks at the workers that work."""

STUCK_S = 60.0
"""A worker that answers, has turns, and takes no step for so long is left out, and its turns are asked elsewhere: a server
may say that it is healthy while its engine hangs."""

NUM_MISSED = 3
"""After so many looks in a row that got no answer a worker is left out, and its turns are asked elsewhere."""

T = TypeVar("T")

UrlSource = Callable[[], Sequence[str]]


class FleetEngine(BaseEngine):
    """Engines behind URLs.

    Args:
        urls: says where they are, now; asked again every few seconds, so that workers can be added and removed.
        connect: an engine at a URL.
        on_hung: is told the URL of one that hangs, once it is left out.
        wait_s: for how long `ready` tries again while none can be reached, or is healthy: one may take minutes to start.

    """

    def __init__(
        self,
        urls: UrlSource,
        *,
        connect: Callable[[str], RemoteEngine],
        on_hung: Callable[[str], None] | None = None,
        wait_s: float = 0.0,
    ) -> None:
        self._workers: list[EngineWorker] = []
        self.tokenizer = FleetTokenizer(self)
        self._urls = urls
        self._connect = connect
        self._on_hung = on_hung
        self._wait_s = wait_s
        self._identity: WorkerIdentity | None = None
        self._weights: Weights | None = None
        self._is_exchanging = False
        self._at_session: OrderedDict[str, EngineWorker] = OrderedDict()
        self._at_request: OrderedDict[str, EngineWorker] = OrderedDict()
        self._watching: asyncio.Task[None] | None = None
        self._draining: set[asyncio.Task[None]] = set()
        self._rotation = itertools.count()

    facts = EngineFacts(reloads=True)

    @property
    def workers(self) -> Sequence[EngineWorker]:
        """Those in use or left out for now, in the order of their URLs."""
        return self._workers

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Those that any of them knows."""
        return frozenset[int]().union(*(worker.engine.eos_token_ids for worker in self._workers))

    async def ready(self) -> ServedModel:
        """What the workers serve: most of those that can be reached. The others are left out, and watched.

        Raises:
            EngineUnavailable: none can be reached, or is healthy.
            CheckpointError: none serves the model asked for.
            ValueError: there is no URL.
        """
        deadline = asyncio.get_running_loop().time() + self._wait_s
        said = ""
        while True:
            self._workers, gone = self._at_urls()
            await asyncio.gather(*map(_close, gone))
            if not self._workers:
                raise ValueError("engines: no URL given, at least one is needed")
            found = await asyncio.gather(*(worker.identify() for worker in self._workers), return_exceptions=True)
            identities = [answer for answer in found if isinstance(answer, WorkerIdentity)]
            if identities:
                break
            failure = self._none_of(found)
            left_s = deadline - asyncio.get_running_loop().time()
            if not isinstance(failure, EngineUnavailable) or left_s <= 0:
                raise failure
            if logged(failure) != said:
                said = logged(failure)
                logger.warning("%s; waiting for one, for %.0f s at most", said, left_s)
            await asyncio.sleep(min(WATCH_S, left_s))
        self._identity = Counter(identities).most_common(1)[0][0]
        for worker, answer in zip(self._workers, found, strict=True):
            problem = answer.difference(self._identity) if isinstance(answer, WorkerIdentity) else str(answer)
            if problem is not None:
                self._leave_out(worker, problem)
        self._watching = asyncio.create_task(self._watch())
        return self._identity.served

    async def aclose(self) -> None:
        """Ends what is under way."""
        ending = [*self._draining, *([] if self._watching is None else [self._watching])]
        await asyncio.gather(*(cancelled(task) for task in ending))
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.give_up()
        await asyncio.gather(*(_close(worker) for worker in workers))

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        """One turn, of the worker that has the rollout. The part of `session` before its first dot is the request.

        Raises:
            PromptTooLong, TurnRefused: a worker refuses it.
            EngineUnavailable: no worker is left that has not failed.
            CheckpointError: none serves the model any more.
        """

        def turn(worker: EngineWorker) -> Awaitable[Completion]:
            return worker.ask_turn(worker.engine.generate(token_ids, sampling=sampling, session=session))

        return await self._ask(turn, place=partial(self._place, session))

    async def tokenize(self, request: Callable[[Tokenizer], Awaitable[T]]) -> T:
        """What the tokenizer of any worker answers; they take turns.

        Raises:
            As `generate`.
        """

        def tokens(worker: EngineWorker) -> Awaitable[T]:
            return worker.ask(request(worker.engine.tokenizer))

        return await self._ask(tokens, place=lambda free: free[next(self._rotation) % len(free)])

    async def _ask(
        self,
        request: Callable[[EngineWorker], Awaitable[T]],
        *,
        place: Callable[[Sequence[EngineWorker]], EngineWorker],
    ) -> T:
        """What a worker answers; `place` says which of those that are free, and again after one has failed."""
        asked: list[EngineWorker] = []
        failure: TirjudgeError | None = None
        while len(asked) < MAX_WORKERS_ASKED:
            free = [worker for worker in self._workers if worker.problem is None and worker not in asked]
            if not free:
                self._hurry()
                break
            worker = place(free)
            try:
                return await request(worker)
            except TurnRefused:
                raise
            except (EngineUnavailable, CheckpointError) as error:
                failure = error
                asked.append(worker)
                self._leave_out(worker, logged(error))
        raise failure or EngineUnavailable(self._none_left())

    async def reload(self, checkpoint: Path, *, version: str) -> None:
        """Have all go on with the weights of that folder. A worker that fails is left out until it has them.

        Raises:
            CheckpointError: no worker can; nothing has changed.
            EngineUnavailable: none has them now, and nobody knows which they have.
        """
        self._is_exchanging = True
        try:
            await self._reload(Weights(checkpoint=checkpoint, version=version))
        finally:
            self._is_exchanging = False

    async def _reload(self, weights: Weights) -> None:
        before, self._weights = self._weights, weights
        asked = [worker for worker in self._workers if worker.problem is None]
        outcomes = await asyncio.gather(*(worker.load(weights) for worker in asked), return_exceptions=True)
        failures = [outcome for outcome in outcomes if outcome is not None]
        if (
            failures
            and all(isinstance(failure, CheckpointError) for failure in failures)
            and len(failures) == len(asked)
        ):
            self._weights = before
            self._leave_out_strays()
            raise failures[0]
        for worker, outcome in zip(asked, outcomes, strict=True):
            if outcome is not None:
                self._leave_out(worker, f"it does not have the weights {weights.version}: {outcome}")
        self._leave_out_strays()
        if len(failures) == len(asked):
            raise EngineUnavailable(self._none_left())

    def _leave_out_strays(self) -> None:
        """Those that came back while the weights were exchanged may have others."""
        for worker in self._workers:
            if worker.problem is None and worker.weights != self._weights:
                self._leave_out(worker, "it has other weights than the others")

    def _place(self, session: str, free: Sequence[EngineWorker]) -> EngineWorker:
        """Where the rollout is; else where its request is, unless that is much busier than the least busy one."""
        worker = self._at_session.get(session)
        if worker is None or worker not in free:
            request = session.partition(".")[0]
            least = least_busy(free)
            worker = self._at_request.get(request)
            if worker is None or worker not in free or worker.num_running > least.num_running + MUCH_BUSIER:
                worker = least
            _remember(self._at_request, request, worker=worker)
        _remember(self._at_session, session, worker=worker)
        return worker

    def _at_urls(self) -> tuple[list[EngineWorker], list[EngineWorker]]:
        """The workers at the URLs of now, and those that are gone from them."""
        known = {worker.url: worker for worker in self._workers}
        urls = dict.fromkeys(self._urls())
        now = [known.get(url) or EngineWorker(url=url, engine=self._connect(url)) for url in urls]
        return now, [worker for url, worker in known.items() if url not in urls]

    def _leave_out(self, worker: EngineWorker, problem: str) -> None:
        if worker.problem is None:
            logger.warning("engine worker %s is left out: %s", worker.url, problem)
        worker.weights, worker.problem, worker.seen_at = None, problem, None
        if worker in self._workers:  # else it was removed, and nobody waits for it
            worker.leave_out(problem, look=partial(self._look, worker))

    async def _look(self, worker: EngineWorker) -> str | None:
        """Why it cannot be used; None if it can, with the weights that the others have."""
        mute_since, worker.mute_since = worker.mute_since, None  # one that is not even there is not mute
        try:
            identity = await worker.identify()
            worker.mute_since = mute_since
            if self._identity is not None and (problem := identity.difference(self._identity)) is not None:
                return problem
            await self._try_token(worker)
            if self._is_exchanging:  # whether the others take them is not known yet
                return "the weights are being exchanged"
            if self._weights is not None and worker.weights != self._weights:
                await worker.load(self._weights)
        except TirjudgeError as error:
            return logged(error)
        if worker.weights != self._weights:
            return "it has other weights than the others"
        worker.num_missed = 0
        logger.warning("engine worker %s is in use", worker.url)
        return None

    async def _try_token(self, worker: EngineWorker) -> None:
        """Have it write a token: one that answers everything else, and every turn with an error, would be the least busy.

        Raises:
            EngineUnavailable, CheckpointError: it cannot.
        """
        now = asyncio.get_running_loop().time
        ids = await worker.engine.tokenizer.encode_prompt("?")
        turn = worker.engine.generate(ids, sampling=Sampling(max_tokens=1), session="look")
        try:
            await in_time(turn, url=worker.url)
        except EngineUnavailable:
            worker.mute_since = worker.mute_since or now()
            if now() - worker.mute_since >= STUCK_S:
                worker.mute_since = None
                self._tell_of_hung(worker)
            raise
        worker.mute_since = None

    def _tell_of_hung(self, worker: EngineWorker) -> None:
        if self._on_hung is not None:
            self._on_hung(worker.url)

    def _hurry(self) -> None:
        for worker in self._workers:
            worker.hurried.set()

    def _none_left(self) -> str:
        problems = "; ".join(
            f"{worker.url}: {worker.problem}" for worker in self._workers if worker.problem is not None
        )
        return f"no engine worker can be used: {problems}"

    def _none_of(self, failures: Iterable[object]) -> BaseException:
        """The one failure of a start with one worker; else all of them, in one line."""
        failed = [failure for failure in failures if isinstance(failure, BaseException)]
        for failure in failed:
            if len(failed) == 1 or not isinstance(failure, TirjudgeError):
                return failure
        message = "no engine worker can be used: " + "; ".join(map(str, failed))
        are_wrong = all(isinstance(failure, CheckpointError) for failure in failed)
        return CheckpointError(message) if are_wrong else EngineUnavailable(message)

    async def _watch(self) -> None:
        """Follow the URLs, and look at the workers that work, until cancelled."""
        while True:
            await asyncio.sleep(WATCH_S)
            self._follow()
            await asyncio.gather(*(self._watch_one(worker) for worker in self._workers if worker.problem is None))

    async def _watch_one(self, worker: EngineWorker) -> None:
        """One that is silent may be busy: it is given up after a while, and never if it is the last; one that says that it
        is ill, at once."""
        try:
            served = await asyncio.wait_for(worker.engine.ready(), WATCH_S)
        except TimeoutError:
            worker.num_missed, worker.seen_at = worker.num_missed + 1, None
            has_others = any(other.problem is None for other in self._workers if other is not worker)
            if worker.num_missed >= NUM_MISSED and worker.problem is None and has_others:
                self._leave_out(worker, f"no answer within {WATCH_S:g} s, {worker.num_missed} times in a row")
                worker.give_up()
        except (EngineUnavailable, CheckpointError) as error:
            if worker.problem is None:
                self._leave_out(worker, logged(error))
        else:
            worker.num_missed = 0
            if self._identity is not None and served != self._identity.served and worker.problem is None:
                self._leave_out(worker, "it serves another model than it did")
            await self._leave_out_if_stuck(worker)

    async def _leave_out_if_stuck(self, worker: EngineWorker) -> None:
        stuck_s = await worker.stuck_s(within_s=WATCH_S)
        if stuck_s >= STUCK_S and worker.problem is None and not self._is_exchanging:
            under_way = f"{worker.num_running} under way"
            self._leave_out(worker, f"its engine hangs: no step in {stuck_s:.0f} s, with {under_way}")
            worker.give_up()
            self._tell_of_hung(worker)

    def _follow(self) -> None:
        """Take up workers at new URLs, once they are ready, and remove those whose URL is gone."""
        before = self._workers
        self._workers, gone = self._at_urls()
        for worker in self._workers:
            if worker not in before:
                worker.leave_out("it is new", look=partial(self._look, worker))
        for worker in gone:
            logger.warning("engine worker %s is removed", worker.url)
            draining = asyncio.create_task(_drain(worker))
            self._draining.add(draining)
            draining.add_done_callback(self._draining.discard)


class FleetTokenizer:
    """The tokenizer of any of the workers: all have the same."""

    def __init__(self, fleet: FleetEngine) -> None:
        self._fleet = fleet

    async def encode(self, text: str) -> list[int]:
        return await self._fleet.tokenize(lambda tokenizer: tokenizer.encode(text))

    async def encode_prompt(self, text: str) -> list[int]:
        return await self._fleet.tokenize(lambda tokenizer: tokenizer.encode_prompt(text))

    async def control_tokens(self) -> ControlTokens:
        return await self._fleet.tokenize(lambda tokenizer: tokenizer.control_tokens())


def _remember(places: OrderedDict[str, EngineWorker], name: str, *, worker: EngineWorker) -> None:
    places[name] = worker
    places.move_to_end(name)
    if len(places) > NUM_REMEMBERED:
        places.popitem(last=False)


async def _drain(worker: EngineWorker) -> None:
    """Let it end the turns that it has."""
    try:
        while worker.asked:
            await asyncio.wait(set(worker.asked))
    finally:
        await _close(worker)


async def _close(worker: EngineWorker) -> None:
    await worker.stop_checking()
    await worker.engine.aclose()

"""Engine that distributes rollouts over several engines (workers) of the same model.

Notes:

- A rollout stays on the worker that has its prefix in the cache.
- A turn contains all its token ids, so every worker can run it. If a worker fails, it is excluded, and its turns are
  retried on other workers. A turn is tried on at most three workers, so that a turn that crashes engines does not reach
  all of them.
- A turn that a worker rejects as invalid (`TurnRefused`, `TemplateFailed`, `PromptTooLong`) is not retried.
- A reload replaces the weights of all workers. A worker that fails to reload is excluded. An excluded worker may have
  been restarted with its initial weights, so it reloads the current weights before it gets turns again.
- Use the engine in one event loop: call `ready` once, and `aclose` at the end.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tirjudge.control_tokens import ControlTokens
from tirjudge.engines.base import BaseEngine, EngineFacts, Tokenizer
from tirjudge.engines.fleet_worker import EngineWorker, RemoteEngine, Weights, WorkerIdentity, cancelled, in_time
from tirjudge.engines.vllm import ServedModel
from tirjudge.errors import CheckpointError, EngineUnavailable, TemplateFailed, TirjudgeError, TurnRefused, logged
from tirjudge.http.workers import least_busy
from tirjudge.prompt_messages import Prompt
from tirjudge.template_options import TemplateOptions
from tirjudge.types import Completion, Sampling

logger = logging.getLogger(__name__)

MUCH_BUSIER = 4
"""Rollouts of one request go to the same worker unless it has this many more turns than the least busy one. Beyond
that, waiting costs more than computing their common prompt again."""

MAX_WORKERS_ASKED = 3
"""Maximum number of workers on which a turn is tried."""

NUM_REMEMBERED = 65536
"""Maximum number of rollouts, and of requests, whose worker is remembered. The oldest are dropped and lose their
cache."""

WATCH_S = 5.0
"""Interval between health checks of workers in use, in seconds."""

STUCK_S = 60.0
"""Seconds without progress after which a worker with turns is excluded, even if it answers health checks. A server may
report to be healthy while its engine hangs."""

NUM_MISSED = 3
"""Number of consecutive health-check timeouts after which a worker is excluded."""

T = TypeVar("T")

UrlSource = Callable[[], Sequence[str]]


class FleetEngine(BaseEngine):
    """Fleet of engines behind URLs.

    Args:
        urls: returns the current URLs. It is called every few seconds, so that workers can be added and removed.
        connect: creates the engine for a URL.
        on_hung: called with the URL of a worker that is excluded because it hangs. None: no callback.
        wait_s: maximum time in seconds for which `ready` waits for a first healthy worker. Starting one may take
            minutes.
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
        """All workers, in use or excluded, in the order of their URLs."""
        return self._workers

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """End-of-turn ids known to any worker."""
        return frozenset[int]().union(*(worker.engine.eos_token_ids for worker in self._workers))

    async def ready(self) -> ServedModel:
        """Connect to the workers and return the model that most healthy workers serve. Other workers are excluded.

        Raises:
            EngineUnavailable: no worker can be reached and is healthy.
            CheckpointError: no worker serves the requested model.
            ValueError: there are no URLs.
        """
        deadline = asyncio.get_running_loop().time() + self._wait_s
        last_logged = ""
        while True:
            self._workers, gone = self._at_urls()
            await asyncio.gather(*map(_close, gone))
            if not self._workers:
                raise ValueError("engines: no URL given; give at least one")
            found = await asyncio.gather(*(worker.identify() for worker in self._workers), return_exceptions=True)
            identities = [answer for answer in found if isinstance(answer, WorkerIdentity)]
            if identities:
                break
            failure = self._none_of(found)
            left_s = deadline - asyncio.get_running_loop().time()
            if not isinstance(failure, EngineUnavailable) or left_s <= 0:
                raise failure
            if logged(failure) != last_logged:
                last_logged = logged(failure)
                logger.warning("%s; waiting up to %.0f s for a worker", last_logged, left_s)
            await asyncio.sleep(min(WATCH_S, left_s))
        self._identity = Counter(identities).most_common(1)[0][0]
        for worker, answer in zip(self._workers, found, strict=True):
            problem = answer.difference(self._identity) if isinstance(answer, WorkerIdentity) else str(answer)
            if problem is not None:
                self._leave_out(worker, problem)
        self._watching = asyncio.create_task(self._watch())
        return self._identity.served

    async def aclose(self) -> None:
        """Cancel all requests in flight and close all workers."""
        ending = [*self._draining, *([] if self._watching is None else [self._watching])]
        await asyncio.gather(*(cancelled(task) for task in ending))
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.give_up()
        await asyncio.gather(*(_close(worker) for worker in workers))

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        """Generate one turn on the worker of the rollout.

        Args:
            token_ids, sampling: as in `Engine.generate`.
            session: id of the rollout. The part before its first dot identifies the request.

        Raises:
            PromptTooLong, TurnRefused: a worker rejected the turn.
            EngineUnavailable: the turn failed on every worker tried, or no worker is in use.
            CheckpointError: the last worker tried no longer serves the model.
        """

        def turn(worker: EngineWorker) -> Awaitable[Completion]:
            return worker.ask_turn(worker.engine.generate(token_ids, sampling=sampling, session=session))

        return await self._ask(turn, place=partial(self._place, session))

    async def tokenize(self, request: Callable[[Tokenizer], Coroutine[Any, Any, T]]) -> T:
        """Run a request on the tokenizer of one worker, chosen round-robin. Raises the same errors as `generate`."""

        def tokens(worker: EngineWorker) -> Awaitable[T]:
            return worker.ask(request(worker.engine.tokenizer))

        return await self._ask(tokens, place=lambda free: free[next(self._rotation) % len(free)])

    async def _ask(
        self,
        request: Callable[[EngineWorker], Awaitable[T]],
        *,
        place: Callable[[Sequence[EngineWorker]], EngineWorker],
    ) -> T:
        """Run a request on a worker. `place` chooses one of the workers in use, again after each failure."""
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
            except (TurnRefused, TemplateFailed):
                raise
            except (EngineUnavailable, CheckpointError) as error:
                failure = error
                asked.append(worker)
                self._leave_out(worker, logged(error))
        raise failure or EngineUnavailable(self._none_left())

    async def reload(self, checkpoint: Path, *, version: str) -> None:
        """Replace the weights of all workers. A worker that fails is excluded until it has loaded them.

        Raises:
            CheckpointError: no worker can load these weights. All workers still have the old ones.
            EngineUnavailable: no worker has the new weights. It is not known which weights they have.
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
        """Exclude workers with other weights, such as those that became healthy during the reload."""
        for worker in self._workers:
            if worker.problem is None and worker.weights != self._weights:
                self._leave_out(worker, "its weights differ from those of the others")

    def _place(self, session: str, free: Sequence[EngineWorker]) -> EngineWorker:
        """Choose the worker of the rollout; otherwise the worker of its request if that worker is not too busy;
        otherwise the least busy worker."""
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
        """Return the workers at the current URLs, and the workers whose URLs have been removed."""
        known = {worker.url: worker for worker in self._workers}
        urls = dict.fromkeys(self._urls())
        now = [known.get(url) or EngineWorker(url=url, engine=self._connect(url)) for url in urls]
        return now, [worker for url, worker in known.items() if url not in urls]

    def _leave_out(self, worker: EngineWorker, problem: str) -> None:
        if worker.problem is None:
            logger.warning("engine worker %s excluded: %s", worker.url, problem)
        worker.weights, worker.problem, worker.seen_at = None, problem, None
        if worker in self._workers:  # a removed worker needs no health checks
            worker.leave_out(problem, look=partial(self._look, worker))

    async def _look(self, worker: EngineWorker) -> str | None:
        """Health check of an excluded worker. Return why it cannot be used, or None if it can, with the current
        weights."""
        mute_since, worker.mute_since = worker.mute_since, None  # restored below only if the worker can be reached
        try:
            identity = await worker.identify()
            worker.mute_since = mute_since
            if self._identity is not None and (problem := identity.difference(self._identity)) is not None:
                return problem
            await self._try_token(worker)
            if self._is_exchanging:  # it is not known yet whether the other workers accept the new weights
                return "a reload of the weights is in progress"
            if self._weights is not None and worker.weights != self._weights:
                await worker.load(self._weights)
        except TirjudgeError as error:
            return logged(error)
        if worker.weights != self._weights:
            return "its weights differ from those of the others"
        worker.num_missed = 0
        logger.warning("engine worker %s in use again", worker.url)
        return None

    async def _try_token(self, worker: EngineWorker) -> None:
        """Generate one token. Otherwise a worker that fails only turns would be the least busy and attract all of them.

        Raises:
            EngineUnavailable, CheckpointError: the worker does not generate.
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
        """Return the error of a failed start: that of the only worker, or the errors of all workers in one message."""
        failed = [failure for failure in failures if isinstance(failure, BaseException)]
        for failure in failed:
            if len(failed) == 1 or not isinstance(failure, TirjudgeError):
                return failure
        message = "no engine worker can be used: " + "; ".join(map(str, failed))
        are_wrong = all(isinstance(failure, CheckpointError) for failure in failed)
        return CheckpointError(message) if are_wrong else EngineUnavailable(message)

    async def _watch(self) -> None:
        """Update the URLs and check the workers in use every `WATCH_S` seconds, until cancelled."""
        while True:
            await asyncio.sleep(WATCH_S)
            self._follow()
            await asyncio.gather(*(self._watch_one(worker) for worker in self._workers if worker.problem is None))

    async def _watch_one(self, worker: EngineWorker) -> None:
        """Check a worker in use. Exclude an unhealthy one immediately, and one that times out after `NUM_MISSED`
        checks.

        A worker that times out may be busy, so the last worker in use is never excluded for that.
        """
        try:
            async with asyncio.timeout(WATCH_S):
                served = await worker.engine.ready()
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
                self._leave_out(worker, "it now serves another model")
            await self._leave_out_if_stuck(worker)

    async def _leave_out_if_stuck(self, worker: EngineWorker) -> None:
        stuck_s = await worker.stuck_s(within_s=WATCH_S)
        if stuck_s >= STUCK_S and worker.problem is None and not self._is_exchanging:
            problem = f"its engine hangs: no step in {stuck_s:.0f} s with {worker.num_running} turns in flight"
            self._leave_out(worker, problem)
            worker.give_up()
            self._tell_of_hung(worker)

    def _follow(self) -> None:
        """Add workers at new URLs once they are healthy, and drain workers whose URL was removed."""
        before = self._workers
        self._workers, gone = self._at_urls()
        for worker in self._workers:
            if worker not in before:
                worker.leave_out("new, not checked yet", look=partial(self._look, worker))
        for worker in gone:
            logger.warning("engine worker %s removed", worker.url)
            draining = asyncio.create_task(_drain(worker))
            self._draining.add(draining)
            draining.add_done_callback(self._draining.discard)


class FleetTokenizer:
    """Tokenizer of the fleet. All workers have the same tokenizer, so any of them can answer."""

    def __init__(self, fleet: FleetEngine) -> None:
        self._fleet = fleet

    async def encode(self, text: str) -> list[int]:
        return await self._fleet.tokenize(lambda tokenizer: tokenizer.encode(text))

    async def encode_prompt(self, prompt: Prompt) -> list[int]:
        return await self._fleet.tokenize(lambda tokenizer: tokenizer.encode_prompt(prompt))

    async def chat_template_kwargs(self) -> TemplateOptions | None:
        return await self._fleet.tokenize(lambda tokenizer: tokenizer.chat_template_kwargs())

    async def control_tokens(self, texts: Sequence[str] = ()) -> ControlTokens:
        return await self._fleet.tokenize(lambda tokenizer: tokenizer.control_tokens(texts))

    async def tokens_of(self, texts: Collection[str]) -> Mapping[str, Sequence[int]]:
        return await self._fleet.tokenize(lambda tokenizer: tokenizer.tokens_of(texts))

    async def token_bytes(self, token_ids: Sequence[int]) -> list[bytes | None]:
        return await self._fleet.tokenize(lambda tokenizer: tokenizer.token_bytes(token_ids))


def _remember(places: OrderedDict[str, EngineWorker], name: str, *, worker: EngineWorker) -> None:
    places[name] = worker
    places.move_to_end(name)
    if len(places) > NUM_REMEMBERED:
        places.popitem(last=False)


async def _drain(worker: EngineWorker) -> None:
    """Wait until all requests of a removed worker have ended, then close it."""
    try:
        while worker.asked:
            await asyncio.wait(set(worker.asked))
    finally:
        await _close(worker)


async def _close(worker: EngineWorker) -> None:
    await worker.stop_checking()
    await worker.engine.aclose()

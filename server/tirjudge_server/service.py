"""One judge, shared by all requests: each is looked up, coalesced, queued, judged in time, and stored, in this order."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from dataclasses import replace
from typing import Protocol

from tirjudge.concurrency import map_concurrently
from tirjudge.deadline import Deadline, until
from tirjudge.errors import DeadlineExceeded, logged
from tirjudge.http.protocol import invalid, shown
from tirjudge.http.trace_context import carrying
from tirjudge.http.workers import Worker
from tirjudge.judge import Judge, OnTurn
from tirjudge.request_context import coming_from
from tirjudge.types import JudgeRequest, Judgment
from tirjudge_server.admission import Admission, QueueTicket
from tirjudge_server.call import Call
from tirjudge_server.coalescing import InFlightJudgment, InFlightJudgments, Key, coalescing_key, content_hash
from tirjudge_server.cost import Cost, CostLimits, request_cost
from tirjudge_server.readiness import Readiness
from tirjudge_server.settings import MAX_DEADLINE_S
from tirjudge_web.draining import Draining
from tirjudge_web.errors import FAILURES, UNAVAILABLE, QueueFull, Refused
from tirjudge_web.tracebacks import frames_of

logger = logging.getLogger(__name__)

OnEnd = Callable[[JudgeRequest, Call, Judgment | BaseException], None]
"""Told of each judgment that was made, failed, was turned away, or was cancelled (`CancelledError`), once, however many
waited for it."""

Around = Callable[[JudgeRequest, Call], AbstractContextManager[object]]
"""Opened before a judgment is made, and closed after its `OnEnd`; sees what is raised."""


class JudgmentRecords(Protocol):
    """What the service needs of its records; see `tirjudge_server.records.store.Records`."""

    async def recall(self, request: JudgeRequest, *, call: Call) -> Judgment | None:
        """The judgment that was made before for this idempotency key, or for the same content; None: there is none.

        Raises:
            Refused: 422, the key came with another request before; 409, its judgment was erased since.
            RecordsUnavailable: the records cannot be read.
        """
        ...

    async def store(self, request: JudgeRequest, judgment: Judgment, *, call: Call) -> Judgment:
        """Keep a judgment. Returns once it is safe, and gives the one to answer with: another than the one given when
        the same idempotency key was answered meanwhile.

        Raises:
            Refused: 422, as above.
            RecordsUnavailable: it was not kept, and must not be told.
        """
        ...


class JudgeService:
    """What the application answers from.

    Args:
        judge: makes the judgments.
        max_concurrency: how many it makes side by side.
        max_queue: how many requests may wait for that.
        cost_limits: what one request may cost.
        max_deadline_s: the most that a judgment may take, and what it may take if the request says nothing; None: any
            time.
        max_running_of: how many judgments of one caller are made side by side; None: as many as there is room for.
        records: stores judgments and finds those made before; None: nothing is stored.
        isolation: the level at which the sandbox runs, shown at `/health`; None if there is no sandbox.
        engine_ended: says why the engine will never work again, None while it may; asked for `/health`.
        workers: `engine` and `sandbox` -> those behind URLs, for `/health` and `/metrics`.

    Attributes:
        on_end: whom to tell of each judgment.
        around: what is open while one is made.
        num_recalled: how many requests were answered from `records`.
    """

    def __init__(
        self,
        judge: Judge,
        *,
        max_concurrency: int = 16,
        max_queue: int = 256,
        cost_limits: CostLimits = CostLimits(),  # noqa: B008 (it is frozen)
        max_deadline_s: float | None = MAX_DEADLINE_S,
        max_running_of: Callable[[str | None], int | None] = lambda caller: None,
        records: JudgmentRecords | None = None,
        isolation: str | None = None,
        engine_ended: Callable[[], str | None] = lambda: None,
        workers: Callable[[], Mapping[str, Sequence[Worker]]] = dict,
    ) -> None:
        self.judge = judge
        self.admission = Admission(max_running=max_concurrency, max_waiting=max_queue, max_running_of=max_running_of)
        self.in_flight = InFlightJudgments()
        self._hashing = asyncio.Lock()
        self.readiness = Readiness()
        self.draining = Draining()
        self.cost_limits = cost_limits
        self.max_deadline_s = max_deadline_s
        self.records = records
        self.isolation = isolation
        self.engine_ended = engine_ended
        self.workers = workers
        self.on_end: list[OnEnd] = []
        self.around: list[Around] = []
        self.num_recalled = 0

    @property
    def fingerprint(self) -> str | None:
        """A hash of the model that judges now; None if it is not known."""
        return self.judge.weights.version

    async def answer(self, request: JudgeRequest, *, call: Call, on_turn: OnTurn | None = None) -> Judgment:
        """The judgment that answers a request: made before, in flight already, or made now. Its id is `call`'s only if
        it was made now.

        Raises:
            Refused: this judge cannot take the request.
            QueueFull: the queue is full.
            ShuttingDown: no more requests are taken, or finished.
            PromptTooLong, EngineUnavailable, CheckpointError, SandboxUnavailable: as `Judge.judge`.
            DeadlineExceeded: the time was up in the queue, or before the model had written anything.
            RecordsUnavailable: it was not stored, and must not be told.
        """
        async with self.join_or_begin(request, call=call) as in_flight:
            return await in_flight.judgment(on_turn)

    async def answer_all(self, requests: Iterable[JudgeRequest], *, call: Call) -> list[Judgment | Exception]:
        """Answers side by side, in order; one that fails is its exception and does not stop the others. What all of them
        cost together is for the caller to check.

        As many are taken and asked for at a time as are judged side by side; those that find the queue full are tried
        again until the time is up, because the others have been taken already.

        Raises:
            QueueFull, ShuttingDown: none of them is judged.
            Exception: what `requests` raises; those under way are cancelled.
        """
        self.draining.check()
        self.admission.check()
        works = (self._answer_one(request, call=_part(call, number)) for number, request in enumerate(requests))
        return await map_concurrently(works, num_at_once=self.admission.max_running, one_by_one=True)

    async def _answer_one(self, request: JudgeRequest, *, call: Call) -> Judgment | Exception:
        ends_at = Deadline.after(self.deadline_s(request, call=call)).ends_at
        while True:
            try:
                return await self.answer(request, call=call)
            except QueueFull as error:
                retry_at = asyncio.get_running_loop().time() + error.retry_after_s
                if ends_at is not None and retry_at >= ends_at:
                    return error
                await asyncio.sleep(error.retry_after_s)
            except Exception as error:
                if not isinstance(error, FAILURES):
                    logger.error("%s failed: a bug\n%s", call.judgment_id, frames_of(error))
                return error

    @asynccontextmanager
    async def join_or_begin(self, request: JudgeRequest, *, call: Call) -> AsyncIterator[InFlightJudgment]:
        """The judgment that answers a request, found or begun; it goes on at least until the end of the block.

        Raises:
            Refused, QueueFull, ShuttingDown, RecordsUnavailable: nothing is begun.
            EngineUnavailable, SandboxUnavailable: it is known not to work, and nothing is begun.
        """
        self.check(request)
        deadline = Deadline.after(self.deadline_s(request, call=call))
        # Hashing a large request takes a while: they take turns, and the loop goes round before each.
        async with self._hashing:
            await asyncio.sleep(0)
            content = content_hash(request)
        key = coalescing_key(content, call=call)
        in_flight = self.in_flight.find(key, content=content, deadline=deadline)
        if in_flight is None and self.records is not None:
            recorded = await self.records.recall(request, call=call)
            if recorded is not None:
                self.num_recalled += 1
                yield InFlightJudgment.completed(recorded, content=content)
                return
            in_flight = self.in_flight.find(key, content=content, deadline=deadline)
        if in_flight is None:
            in_flight = self._begin(request, call=call, key=key, content=content, deadline=deadline)
        elif in_flight.ticket is not None:
            self.admission.hurry(in_flight.ticket, priority=call.priority)
        async with self.in_flight.waiting(in_flight, key=key):
            yield in_flight

    def check(self, request: JudgeRequest) -> None:
        """Whether this judge can take the request at all.

        Raises:
            Refused: it asks for another model, for tools where there are none, or for more than `cost_limits`.
            ShuttingDown: no more requests are taken.
        """
        self.draining.check()
        self.cost_limits.check(self.cost_of(request))
        name = self.judge.profile.name
        if request.model not in (None, name):
            message = f"model: {shown(request.model)} given, this server has {shown(name)}"
            raise Refused(invalid(message, param="model", code="model_not_found"), status=404)
        if not self.judge.tools and request.tools != "off":
            message = f'tools: "{request.tools}" given, but this server runs without a sandbox; use "off"'
            raise Refused(invalid(message, param="tools", code="no_sandbox"))

    def cost_of(self, request: JudgeRequest) -> Cost:
        """What one judgment costs this judge."""
        return request_cost(request, group_size=self.judge.profile.group_size)

    def deadline_s(self, request: JudgeRequest, *, call: Call) -> float | None:
        """The least of what the request, its call and this server allow; None: any time."""
        limits = (request.deadline_s, call.deadline_s, self.max_deadline_s)
        return min((limit for limit in limits if limit is not None), default=None)

    def _begin(
        self, request: JudgeRequest, *, call: Call, key: Key, content: str, deadline: Deadline
    ) -> InFlightJudgment:
        """A judgment with a place in the queue."""
        try:
            self.readiness.check(request)
            ticket = self.admission.take(caller=call.caller, priority=call.priority)
        except FAILURES as error:
            self._tell_end(request, call, error)
            raise
        in_flight = InFlightJudgment(judgment_id=call.judgment_id, content=content, deadline=deadline, ticket=ticket)
        work = self._make(request, call=call, ticket=ticket, deadline=deadline, on_turn=in_flight.add_turn)
        self.in_flight.start(key, in_flight=in_flight, work=work, on_end=lambda: self.admission.leave(ticket))
        return in_flight

    async def _make(
        self, request: JudgeRequest, *, call: Call, ticket: QueueTicket, deadline: Deadline, on_turn: OnTurn
    ) -> Judgment:
        """The judgment, made and stored."""
        with carrying(call.traceparent), coming_from(call.caller, urgency=call.priority), ExitStack() as opened:
            for around in self.around:
                opened.enter_context(around(request, call))
            try:
                async with self.draining.limit():
                    judgment = await self._judge(request, call=call, ticket=ticket, deadline=deadline, on_turn=on_turn)
                    self.admission.leave(ticket)
                    if self.records is not None:
                        judgment = await self.records.store(request, judgment, call=call)
            except (Exception, asyncio.CancelledError) as error:
                self._tell_end(request, call, error)
                raise
            self._tell_end(request, call, judgment)
            return judgment

    async def _judge(
        self, request: JudgeRequest, *, call: Call, ticket: QueueTicket, deadline: Deadline, on_turn: OnTurn
    ) -> Judgment:
        """Wait for the turn of `ticket`, then judge. What could only be forced is not begun."""
        queue_s = await until(deadline.forces_at, ticket.turn())
        if queue_s is None:
            raise DeadlineExceeded("the time for this judgment was up before its turn came; nothing was judged")
        self.readiness.check(request)
        try:
            judgment = await self.judge.judge(request, on_turn=on_turn, deadline=deadline)
        except (*UNAVAILABLE, DeadlineExceeded) as error:
            logger.error("%s failed: %s", call.judgment_id, logged(error))
            self.readiness.doubt(error)
            raise
        self.readiness.confirm(judgment)
        timing = judgment.timing.model_copy(update={"queue_s": queue_s})
        return judgment.model_copy(update={"id": call.judgment_id, "timing": timing})

    def _tell_end(self, request: JudgeRequest, call: Call, outcome: Judgment | BaseException) -> None:
        for tell in self.on_end:
            tell(request, call, outcome)


def _part(call: Call, number: int) -> Call:
    """The call of one of many requests that came together; a caller's name for all of them becomes one for each."""
    key = None if call.idempotency_key is None else f"{call.idempotency_key}#{number}"
    return replace(call, judgment_id=f"jdg_{uuid.uuid4().hex}", idempotency_key=key)

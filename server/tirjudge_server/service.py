"""The judge service. For each request: look it up in the records, coalesce, queue, judge with a deadline, and store."""

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
from tirjudge.tools.functions import chosen_functions
from tirjudge.types import JudgeRequest, Judgment
from tirjudge_server.accounts import CallerAccounts
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
"""Called once for each judgment that was made, failed, was refused by the queue, or was cancelled (`CancelledError`), no
matter how many requests shared it."""

Around = Callable[[JudgeRequest, Call], AbstractContextManager[object]]
"""Returns a context manager around the making of a judgment. It is closed after `OnEnd` and receives the exception."""


class JudgmentRecords(Protocol):
    """The interface of the records, as far as the service uses it; see `tirjudge_server.records.store.Records`."""

    async def recall(self, request: JudgeRequest, *, call: Call) -> Judgment | None:
        """The stored judgment for the idempotency key, or for the same content; None: no such judgment.

        Raises:
            Refused: 422, the idempotency key was used with a different request; 409, its judgment was erased.
            RecordsUnavailable: the records cannot be read.
        """
        ...

    async def store(self, request: JudgeRequest, judgment: Judgment, *, call: Call) -> Judgment:
        """Store a judgment durably, then return the judgment to respond with.

        The result differs from `judgment` if another request with the same idempotency key was judged in the meantime.

        Raises:
            Refused: 422, as above.
            RecordsUnavailable: the judgment was not stored and must not be sent to the caller.
        """
        ...


class JudgeService:
    """Answers judge requests with one judge that all requests share.

    Args:
        judge: makes the judgments.
        max_concurrency: maximum number of concurrent judgments.
        max_queue: maximum number of waiting requests.
        cost_limits: maximum cost of one request.
        max_deadline_s: maximum seconds of a judgment, and the deadline of requests without one; None: no limit.
        max_running_of: caller -> maximum number of that caller's concurrent judgments; None: no limit per caller.
        records: stores judgments and finds stored ones; None: nothing is stored.
        isolation: isolation level of the sandbox, for `/health`; None: no sandbox.
        engine_ended: returns why the engine has ended for good, or None while it works, for `/health`.
        workers: returns the workers behind URLs as a dict with the keys `engine` and `sandbox`, for `/health` and
            `/metrics`.
        calls_per_minute: maximum number of function calls of one caller's programs per minute; None: no limit.

    Attributes:
        on_end: callbacks that are called for each judgment.
        around: context managers that are open while a judgment is made.
        num_recalled: number of requests that were answered from `records`.
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
        calls_per_minute: int | None = None,
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
        self.accounts = CallerAccounts(calls_per_minute=calls_per_minute)
        self.on_end: list[OnEnd] = []
        self.around: list[Around] = []
        self.num_recalled = 0

    @property
    def fingerprint(self) -> str | None:
        """Hash of the current weights; None: unknown."""
        return self.judge.weights.version

    async def answer(self, request: JudgeRequest, *, call: Call, on_turn: OnTurn | None = None) -> Judgment:
        """Return the judgment of a request: a stored one, one in flight, or a new one. Only a new one has the id of `call`.

        Args:
            request: what to judge.
            call: caller, priority and deadline of the request.
            on_turn: receives each turn; None: turns are not reported.

        Raises:
            Refused: this judge cannot judge the request.
            QueueFull: the queue is full.
            ShuttingDown: the server is shutting down.
            PromptTooLong, EngineUnavailable, CheckpointError, SandboxUnavailable: as for `Judge.judge`.
            DeadlineExceeded: the deadline passed in the queue, or before the model had written anything.
            RecordsUnavailable: the judgment was not stored and must not be sent to the caller.
        """
        async with self.join_or_begin(request, call=call) as in_flight:
            return await in_flight.judgment(on_turn)

    async def answer_all(self, requests: Iterable[JudgeRequest], *, call: Call) -> list[Judgment | Exception]:
        """Judge requests concurrently; return the judgments in order, or the exception in place of a failed one.

        At most `max_concurrency` requests are taken from `requests` at a time. If the queue is full, a request is retried
        until its deadline, because the other requests have already been accepted. The caller checks the total cost.

        Raises:
            QueueFull, ShuttingDown: no request is judged.
            Exception: any exception that `requests` raises. Running judgments are cancelled.
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
        """Find or start the judgment of a request. It runs at least until the end of the block.

        Raises:
            Refused, QueueFull, ShuttingDown, RecordsUnavailable: no judgment is started.
            EngineUnavailable, SandboxUnavailable: the component is known to be broken; no judgment is started.
        """
        self.check(request)
        deadline = Deadline.after(self.deadline_s(request, call=call))
        # Hashing a large request takes CPU time: hash one at a time, and yield to the event loop before each.
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
        """Check that this judge can judge a request.

        Raises:
            Refused: the request names a different model or an unknown function, needs tools that the judge does not have,
                comes with evidence that it cannot query, cannot be shown by the format, or exceeds `cost_limits`.
            EvidenceRefused: a store of the request is valid on no day, or has the name of a registered one.
            ShuttingDown: the server is shutting down.
        """
        self.draining.check()
        self.cost_limits.check(self.cost_of(request))
        name = self.judge.profile.name
        if request.model not in (None, name):
            message = f"model: {shown(request.model)} given, this server has {shown(name)}"
            raise Refused(invalid(message, param="model", code="model_not_found"), status=404)
        self.judge.check_evidence(request)
        try:
            if self.judge.uses_rules(request):
                return
        except ValueError as error:
            message = f"{error}; this server runs without --checks"
            raise Refused(invalid(message, param="mode", code="no_checks")) from error
        try:
            if self.judge.uses_raw_scores(request):
                return
        except ValueError as error:
            raise Refused(invalid(str(error), param="tools", code="no_programs")) from error
        self.judge.check_shown(request)
        takes_tools = self.judge.format.traits.takes_tools
        if not self.judge.tools and request.tools != "off" and takes_tools:
            message = f'tools: "{request.tools}" given, but this server runs without a sandbox; use "off"'
            raise Refused(invalid(message, param="tools", code="no_sandbox"))
        self.check_functions(request.functions if request.offers_tools else None)
        if request.evidence and not self.judge.takes_evidence:
            message = (
                "evidence: given, but this server cannot query evidence; the operator enables it with --tool evidence"
            )
            raise Refused(invalid(message, param="evidence", code="no_evidence"))

    def check_functions(self, names: Sequence[str] | None) -> None:
        """Check that all functions that a request names are offered.

        Raises:
            Refused: 400, a function is not offered. The message lists the offered functions.
        """
        try:
            chosen_functions(self.judge.functions, names=names)
        except ValueError as error:
            raise Refused(invalid(str(error), param="functions", code="unknown_function")) from error

    def cost_of(self, request: JudgeRequest) -> Cost:
        """The cost of one judgment."""
        return request_cost(request, group_size=self.judge.profile.group_size)

    def deadline_s(self, request: JudgeRequest, *, call: Call) -> float | None:
        """The deadline in seconds: the minimum of the limits of the request, its call and the server; None: no limit."""
        limits = (request.deadline_s, call.deadline_s, self.max_deadline_s)
        return min((limit for limit in limits if limit is not None), default=None)

    def _begin(
        self, request: JudgeRequest, *, call: Call, key: Key, content: str, deadline: Deadline
    ) -> InFlightJudgment:
        """Queue and start a new judgment."""
        try:
            if not self.judge.uses_rules(request):
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
        """Make a judgment and store it."""
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
        """Wait in the queue, then judge. If only time for a forced verdict is left, the judgment is not started."""
        queue_s = await until(deadline.forces_at, ticket.turn())
        if queue_s is None:
            raise DeadlineExceeded("the deadline passed while the request was waiting in the queue; nothing was judged")
        if not self.judge.uses_rules(request):
            self.readiness.check(request)
        try:
            account = self.accounts.of(call.caller)
            judgment = await self.judge.judge(request, on_turn=on_turn, deadline=deadline, account=account)
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
    """The call of one request of a batch, with a new judgment id. An idempotency key gets the request's number."""
    key = None if call.idempotency_key is None else f"{call.idempotency_key}#{number}"
    return replace(call, judgment_id=f"jdg_{uuid.uuid4().hex}", idempotency_key=key)

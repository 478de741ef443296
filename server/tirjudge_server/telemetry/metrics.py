"""Prometheus metrics of judgments, requests, engine and sandbox, and `GET /metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

from fastapi import APIRouter, Response
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from tirjudge.types import (
    Completion,
    ExecResult,
    JudgeRequest,
    Judgment,
    Outcome,
    RolloutRecord,
    Sampling,
    StopReason,
)
from tirjudge_sandbox.pool import PoolStats
from tirjudge_server.call import Call
from tirjudge_server.failure import Fallbacks
from tirjudge_server.service import JudgeService
from tirjudge_server.telemetry.gauges import Gauges
from tirjudge_server.telemetry.outcomes import code_of, status_of
from tirjudge_server.telemetry.requests import AnsweredRequest
from tirjudge_web.errors import UNAVAILABLE

METRICS_PATH = "/metrics"

_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 180.0, 600.0)
_WAIT_SECONDS = (0.0001, 0.001, *_SECONDS)
_TURNS = (1, 2, 3, 4, 5, 6, 8, 12, 17)


class ServerMetrics:
    """The metrics of one server.

    Args:
        service: Its queue, circuits and readiness are read at each scrape.
        pool: Returns the state of the sandbox pool. None: no sandbox, or a remote one.
        fallbacks: Counts of missing scores. None: not counted.
    """

    def __init__(
        self, service: JudgeService, *, pool: Callable[[], PoolStats] | None = None, fallbacks: Fallbacks | None = None
    ) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._registry.register(Gauges(service, pool=pool, fallbacks=fallbacks))

        def counter(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(f"tirjudge_{name}", meaning, labels, registry=self._registry)

        def histogram(name: str, meaning: str, *labels: str, buckets: Sequence[float] = _SECONDS) -> Histogram:
            return Histogram(f"tirjudge_{name}", meaning, labels, buckets=buckets, registry=self._registry)

        self._judgments = counter("judgments", "Judgments by outcome.", "mode", "status", "dialect")
        self._failures = counter("failures", "Failed judgments by error code.", "code")
        self._judgment_s = histogram(
            "judgment_seconds", "Seconds from the arrival of a request to its judgment, queueing included.", "mode"
        )
        self._queue_s = histogram(
            "queue_seconds", "Seconds that a judgment waited in the queue.", buckets=_WAIT_SECONDS
        )
        self._rollouts = counter("rollouts", "Rollouts by stop reason.", "stop_reason", "forced")
        self._turns = histogram("turns", "Turns per rollout.", buckets=_TURNS)
        self._tool_calls = counter("tool_calls", "Programs by outcome.", "outcome")
        self._function_calls = counter("function_calls", "Function calls of programs.", "function", "outcome")
        self._function_s = histogram("function_seconds", "Seconds per function call of programs.", "function")
        self._in_process = counter(
            "candidate_in_process", "Judgments whose programs ran the code of a response in their own process."
        )
        self._parse_failures = counter("parse_failures", "Outputs of the model that could not be parsed.", "stage")
        self._ties = counter("ties", "Ties by reason.", "reason")
        self._abstentions = counter("abstain", "Abstentions by reason.", "reason")
        self._verdicts = counter("verdicts", "Verdicts by what they rest on.", "basis")
        self._both_orders = counter("both_orders", "Comparisons in both orders that did not abstain.")
        self._flips = counter("position_flips", "Comparisons in both orders whose two verdicts disagree.")
        self._tokens = counter("tokens", "Tokens of judgments.", "kind")
        self._cost_usd = counter("cost_usd", "Price of judgments by a chat endpoint, in US dollars.")
        self._engine_s = histogram("engine_seconds", "Seconds per completion of the engine.", "kind")
        self._engine_errors = counter("engine_errors", "Failed completions of the engine, by error.", "error")
        self._sandbox_wait_s = histogram(
            "sandbox_wait_seconds", "Seconds that a program waited for a sandbox slot.", buckets=_WAIT_SECONDS
        )
        self._sandbox_errors = counter("sandbox_errors", "Programs that the sandbox failed to run, by error.", "error")
        self._http_requests = counter("http_requests", "HTTP requests.", "method", "route", "status")
        self._http_s = histogram("http_seconds", "Seconds from a request to the last byte of its response.", "route")

    def on_end(self, request: JudgeRequest, call: Call, outcome: Judgment | BaseException) -> None:
        """Count a judgment, or a failure to make one."""
        self._judgments.labels(request.mode, status_of(outcome), call.dialect).inc()
        if isinstance(outcome, Judgment):
            self._add_verdict(request, outcome)
            self._add_cost(outcome)
        elif (code := code_of(outcome)) is not None:
            self._failures.labels(code).inc()

    def _add_verdict(self, request: JudgeRequest, judgment: Judgment) -> None:
        verdict = judgment.verdict
        if verdict.basis is not None:
            self._verdicts.labels(verdict.basis).inc()
        if verdict.status == "tie":
            self._ties.labels(verdict.reason or "").inc()
        if verdict.status == "abstained":
            self._abstentions.labels(verdict.reason or "").inc()
        elif request.orders == "both" and not request.mode.scores_each:
            self._both_orders.inc()
            self._flips.inc(verdict.reason == "orders_disagree")

    def _add_cost(self, judgment: Judgment) -> None:
        usage, timing = judgment.usage, judgment.timing
        self._judgment_s.labels(judgment.mode).observe(timing.queue_s + timing.total_s)
        self._queue_s.observe(timing.queue_s)
        for kind in ("input", "cached", "output"):
            self._tokens.labels(kind).inc(getattr(usage, f"{kind}_tokens") or 0)
        if usage.cost_usd is not None:
            self._cost_usd.inc(usage.cost_usd)
        self._in_process.inc(judgment.ran_candidate_in_process)
        for rollout in judgment.rollouts:
            self._add_rollout(rollout)

    def _add_rollout(self, rollout: RolloutRecord) -> None:
        is_forced = rollout.verdict is not None and rollout.verdict.forced
        self._rollouts.labels(rollout.stop_reason, "yes" if is_forced else "no").inc()
        if rollout.stop_reason in (StopReason.MALFORMED, StopReason.NO_VERDICT):
            self._parse_failures.labels(rollout.stop_reason).inc()
        self._turns.observe(len(rollout.turns))
        for turn in rollout.turns:
            if turn.outcome is not None:
                self._tool_calls.labels(turn.outcome).inc()
            if turn.outcome is Outcome.REFUSED and turn.code is None:  # a call of the tool without a program
                self._parse_failures.labels("program").inc()
            for called in turn.calls:
                self._function_calls.labels(called.function, "ok" if called.error is None else "error").inc()
                self._function_s.labels(called.function).observe(called.ms / 1000)

    def on_request(self, answered: AnsweredRequest) -> None:
        """Count an HTTP request."""
        self._http_requests.labels(answered.method, answered.route, str(answered.status)).inc()
        self._http_s.labels(answered.route).observe(answered.seconds)

    @contextmanager
    def generating(
        self, token_ids: Sequence[int], *, sampling: Sampling, session: str
    ) -> Iterator[Callable[[Completion], None]]:
        """Measure a completion of the engine."""
        started = perf_counter()
        kind = "turn" if sampling.allowed_token_ids is None else "verdict"
        try:
            yield lambda completion: self._engine_s.labels(kind).observe(perf_counter() - started)
        except UNAVAILABLE as error:
            self._engine_errors.labels(type(error).__name__).inc()
            raise

    @contextmanager
    def running(self, code: str) -> Iterator[Callable[[ExecResult], None]]:
        """Measure a program's wait for a sandbox slot."""
        try:
            yield lambda result: self._sandbox_wait_s.observe(result.queue_s)
        except UNAVAILABLE as error:
            self._sandbox_errors.labels(type(error).__name__).inc()
            raise

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self._registry)


def router(metrics: ServerMetrics) -> APIRouter:
    """Return the endpoint `GET /metrics`."""
    routes = APIRouter()

    @routes.get(METRICS_PATH, response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def read() -> Response:
        """Return the metrics of the server in Prometheus' text format."""
        return Response(metrics.text(), headers={"content-type": CONTENT_TYPE_LATEST})

    return routes

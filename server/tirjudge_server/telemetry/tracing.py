"""OpenTelemetry traces: a span per request, judgment, turn and program, and an event per verdict.

    POST /v1/judge > invoke_agent tir-judge > chat {model}, execute_tool python, chat {model}, ...

An incoming traceparent is continued, and passed on to the engine. Spans and events contain texts of requests and of the model
only if `has_content` is set. Requires the extra `otel`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version
from typing import Any

from opentelemetry import trace
from opentelemetry._logs import Logger, LoggerProvider, LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.datastructures import Headers
from starlette.types import Scope

from tirjudge.http.trace_context import carrying
from tirjudge.types import Completion, ExecResult, JudgeRequest, Judgment, Sampling, Verdict, prompt_text
from tirjudge_server.call import Call
from tirjudge_server.telemetry import conventions as names
from tirjudge_server.telemetry.requests import METHODS, OTHER_METHOD, QUIET_ROUTES, AnsweredRequest

SERVICE = "tirjudge"
"""Name of the service in spans and events. The environment variable `OTEL_SERVICE_NAME` overrides it."""

AGENT = "tir-judge"
TOOL = "python"

FLUSH_S = 5.0
"""Maximum seconds to wait at shutdown for pending spans and events to be sent."""

_W3C = TraceContextTextMapPropagator()

Attributes = Mapping[str, Any]


class Tracing:
    """Records the spans and events of one server.

    Args:
        tracers: Creates the spans.
        loggers: Creates the events.
        model: Name of the model.
        provider: Software that runs the model, such as `vllm`.
        has_content: Whether spans and events contain texts of requests and of the model.
    """

    def __init__(
        self, *, tracers: TracerProvider, loggers: LoggerProvider, model: str, provider: str, has_content: bool = False
    ) -> None:
        self._tracer: Tracer = tracers.get_tracer(SERVICE, version("tirjudge"))
        self._logger: Logger = loggers.get_logger(SERVICE, version("tirjudge"))
        self._model = model
        self._provider = provider
        self._has_content = has_content

    @contextmanager
    def around_request(self, scope: Scope) -> Iterator[None]:
        """Open the span of a request. It continues the caller's trace."""
        if scope["path"] in QUIET_ROUTES:
            yield
            return
        method = scope["method"] if scope["method"] in METHODS else OTHER_METHOD
        attributes = {names.HTTP_METHOD: method, names.REQUEST_ID: scope.get("tirjudge.request_id", "")}
        caller = _W3C.extract({"traceparent": Headers(scope=scope).get("traceparent", "")}, context=Context())
        with self._span(method, kind=SpanKind.SERVER, attributes=attributes, context=caller):
            yield

    def on_request(self, answered: AnsweredRequest) -> None:
        """Add the response to the span of a request. Called inside `around_request`."""
        span = trace.get_current_span()
        if answered.is_quiet or not span.is_recording():
            return
        span.update_name(f"{answered.method} {answered.route}")
        span.set_attributes({names.HTTP_ROUTE: answered.route, names.HTTP_STATUS: answered.status})
        if answered.status >= 500:
            span.set_attribute(names.ERROR_TYPE, str(answered.status))
            span.set_status(StatusCode.ERROR)

    @contextmanager
    def around_judgment(self, request: JudgeRequest, call: Call) -> Iterator[None]:
        """Open the span of a judgment."""
        attributes = {
            names.OPERATION: "invoke_agent",
            names.PROVIDER: SERVICE,
            names.AGENT_NAME: AGENT,
            names.REQUEST_MODEL: self._model,
            names.RESPONSE_ID: call.judgment_id,
            names.MODE: request.mode.value,
            names.DIALECT: call.dialect,
        }
        if self._has_content:
            attributes[names.INPUT_MESSAGES] = _messages("user", [prompt_text(request.prompt), *request.responses])
        spanning = self._span(f"invoke_agent {AGENT}", kind=SpanKind.INTERNAL, attributes=attributes)
        with spanning as span, carrying(_traceparent(span)):
            yield

    def on_end(self, request: JudgeRequest, call: Call, outcome: Judgment | BaseException) -> None:
        """Add the outcome to the span of a judgment, and emit its events. Called inside `around_judgment`.

        A failed judgment is marked by `around_judgment`, which sees the exception.
        """
        if not isinstance(outcome, Judgment):
            return
        span = trace.get_current_span()
        if span.is_recording():
            span.set_attributes(_cost(outcome))
            if self._has_content:
                span.set_attribute(names.OUTPUT_MESSAGES, _messages("assistant", _texts(outcome)))
        named = {names.EVALUATION_NAME: f"{SERVICE}.{outcome.mode}", names.RESPONSE_ID: outcome.id}
        if self._has_content and (texts := _texts(outcome)):
            named[names.EXPLANATION] = texts[-1]
        for attributes in _evaluations(outcome.verdict):
            event = LogRecord(event_name=names.EVALUATION_EVENT, attributes={**named, **attributes})  # pyrefly: ignore[direct-abstract-base-instantiation]
            event.severity_number = SeverityNumber.INFO
            self._logger.emit(event)

    @contextmanager
    def generating(
        self, token_ids: Sequence[int], *, sampling: Sampling, session: str
    ) -> Iterator[Callable[[Completion], None]]:
        """Open the span of a completion of the engine."""
        if not trace.get_current_span().is_recording():
            yield lambda completion: None
            return
        attributes = {
            names.OPERATION: "chat",
            names.PROVIDER: self._provider,
            names.REQUEST_MODEL: self._model,
            names.CONVERSATION_ID: session,
            names.INPUT_TOKENS: len(token_ids),
            **_sampling(sampling),
        }
        with self._span(f"chat {self._model}", kind=SpanKind.CLIENT, attributes=attributes) as span:

            def report(completion: Completion) -> None:
                span.set_attributes(
                    {
                        names.RESPONSE_MODEL: self._model,
                        names.OUTPUT_TOKENS: len(completion.token_ids),
                        names.CACHED_TOKENS: completion.num_cached,
                        names.FINISH_REASONS: [completion.finish_reason],
                    }
                )
                if self._has_content:
                    span.set_attribute(names.OUTPUT_MESSAGES, _messages("assistant", [completion.text]))

            with carrying(_traceparent(span)):
                yield report

    @contextmanager
    def running(self, code: str) -> Iterator[Callable[[ExecResult], None]]:
        """Open the span of a program."""
        if not trace.get_current_span().is_recording():
            yield lambda result: None
            return
        attributes = {names.OPERATION: "execute_tool", names.TOOL_NAME: TOOL, names.TOOL_TYPE: "function"}
        if self._has_content:
            attributes[names.TOOL_ARGUMENTS] = json.dumps({"code": code})
        with self._span(f"execute_tool {TOOL}", kind=SpanKind.INTERNAL, attributes=attributes) as span:

            def report(result: ExecResult) -> None:
                span.set_attributes({names.OUTCOME: result.outcome.value, names.SANDBOX_WAIT_S: result.queue_s})
                if result.calls:
                    span.set_attribute(names.FUNCTION_CALLS, len(result.calls))
                if not result.outcome.is_ok:
                    span.set_attribute(names.ERROR_TYPE, result.outcome.value)
                if self._has_content:
                    span.set_attribute(names.TOOL_RESULT, result.stdout)

            yield report

    @contextmanager
    def _span(
        self, name: str, *, kind: SpanKind, attributes: Attributes, context: Context | None = None
    ) -> Iterator[Span]:
        """Open a span. An exception is recorded with its type only, because its message may quote a text."""
        with self._tracer.start_as_current_span(
            name, context, kind=kind, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield span
            except BaseException as error:
                span.set_attribute(names.ERROR_TYPE, type(error).__name__)
                span.set_status(StatusCode.ERROR)
                raise


def _traceparent(span: Span) -> str | None:
    """Return the value of the `traceparent` header that continues a span's trace in another process."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, context=trace.set_span_in_context(span, Context()))
    return carrier.get("traceparent")


def _messages(role: str, texts: Sequence[str]) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]} for text in texts])


def _texts(judgment: Judgment) -> list[str]:
    return [turn.text for rollout in judgment.rollouts for turn in rollout.turns]


def _sampling(sampling: Sampling) -> Attributes:
    attributes: dict[str, Any] = {
        names.REQUEST_MAX_TOKENS: sampling.max_tokens,
        names.REQUEST_TEMPERATURE: sampling.temperature,
        names.REQUEST_TOP_P: sampling.top_p,
        names.REQUEST_STOP: list(sampling.stop),
    }
    return attributes if sampling.seed is None else attributes | {names.REQUEST_SEED: sampling.seed}


def _cost(judgment: Judgment) -> Attributes:
    usage, verdict = judgment.usage, judgment.verdict
    attributes = {
        names.RESPONSE_MODEL: judgment.model,
        names.INPUT_TOKENS: usage.input_tokens,
        names.CACHED_TOKENS: usage.cached_tokens,
        names.OUTPUT_TOKENS: usage.output_tokens,
        names.TOOL_CALLS: usage.tool_calls,
        names.ROLLOUTS: usage.rollouts,
        names.QUEUE_S: judgment.timing.queue_s,
        names.STATUS: verdict.status,
        names.FORCED: verdict.forced,
    }
    return attributes if verdict.reason is None else attributes | {names.REASON: verdict.reason}


def _evaluations(verdict: Verdict) -> Iterator[Attributes]:
    """Yield the attributes of a verdict's events: one event per score, or one event for a preference.

    The score value of a preference is the probability of the preferred response.
    """
    if verdict.status == "abstained":
        yield {names.ERROR_TYPE: verdict.reason or verdict.status}
    elif verdict.scores is not None:
        for index, score in enumerate(verdict.scores):
            label = {names.SCORE_LABEL: verdict.label} if len(verdict.scores) == 1 and verdict.label else {}
            yield {names.RESPONSE_INDEX: index, names.SCORE_VALUE: score, **label}
    elif verdict.best is None or verdict.probabilities is None:
        yield {names.SCORE_LABEL: verdict.status}
    else:
        yield {names.SCORE_LABEL: verdict.label, names.SCORE_VALUE: verdict.probabilities[verdict.best]}


@asynccontextmanager
async def open_tracing(url: str, *, model: str, provider: str, has_content: bool) -> AsyncIterator[Tracing]:
    """Send spans and events to a collector in the background. An unreachable collector delays no request.

    Args:
        url: URL of an OTLP/HTTP collector, such as `http://localhost:4318`. Other options of the exporter are set with
            OpenTelemetry's environment variables, such as `OTEL_EXPORTER_OTLP_HEADERS`.
        model, provider, has_content: See `Tracing`.
    """
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk import _logs as sdk_logs
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider as SDKTracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    base = url.rstrip("/")
    resource = Resource.create()
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: SERVICE}))
    spans, events = OTLPSpanExporter(f"{base}/v1/traces"), OTLPLogExporter(f"{base}/v1/logs")
    tracers = SDKTracerProvider(resource=resource, shutdown_on_exit=False)
    tracers.add_span_processor(BatchSpanProcessor(spans))
    loggers = sdk_logs.LoggerProvider(resource=resource, shutdown_on_exit=False)
    loggers.add_log_record_processor(BatchLogRecordProcessor(events))
    try:
        yield Tracing(tracers=tracers, loggers=loggers, model=model, provider=provider, has_content=has_content)
    finally:
        # Shutting down an exporter ends its retries, so that the shutdown of its provider returns.
        closing = [asyncio.get_running_loop().call_later(FLUSH_S, exporter.shutdown) for exporter in (spans, events)]
        await asyncio.gather(asyncio.to_thread(tracers.shutdown), asyncio.to_thread(loggers.shutdown))
        for timer in closing:
            timer.cancel()

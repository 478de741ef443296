"""OpenTelemetry traces: spans, their attributes and parents, events, and the export to a collector."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from typing import Any

import httpx2
import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.servers import ServerProcess, SharedSandbox, mint_key, scripted_service
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.engines.vllm import VLLMEngine
from tirjudge.judge import Judge
from tirjudge.profile import load_profile
from tirjudge_server import serving
from tirjudge_server.app import create_app
from tirjudge_server.service import JudgeService
from tirjudge_server.settings import ServerSettings
from tirjudge_server.telemetry import tracing
from tirjudge_server.telemetry.instrumenting import TracingUnavailable, instrument
from tirjudge_server.telemetry.tracing import Tracing, open_tracing
from tirjudge_server.worker import create_worker
from tirjudge_web.process import bind

A, B = "<preference>A</preference>", "<preference>B</preference>"
PRINTS = "```python\nprint('swordfish')\n```\n```output"
ASKED: dict[str, Any] = {"mode": "pairwise", "prompt": "Say swordfish.", "responses": ["swordfish", "b"]}
PLAIN = ASKED | {"tools": "off"}
TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"


@dataclass(frozen=True)
class Seen:
    """A `Tracing`, and the exporters that collect its spans and events in memory."""

    tracing: Tracing
    spans: InMemorySpanExporter
    events: InMemoryLogRecordExporter

    def named(self, start: str) -> list[ReadableSpan]:
        return [span for span in self.spans.get_finished_spans() if span.name.startswith(start)]

    def one(self, start: str) -> ReadableSpan:
        (span,) = self.named(start)
        return span

    def evaluations(self) -> list[dict[str, Any]]:
        records = [data.log_record for data in self.events.get_finished_logs()]
        assert all(record.event_name == "gen_ai.evaluation.result" for record in records)
        return [dict(record.attributes or {}) for record in records]


@pytest.fixture
def see() -> Callable[..., Seen]:
    def make(*, has_content: bool = False) -> Seen:
        spans, events = InMemorySpanExporter(), InMemoryLogRecordExporter()
        tracers, loggers = TracerProvider(shutdown_on_exit=False), LoggerProvider(shutdown_on_exit=False)
        tracers.add_span_processor(SimpleSpanProcessor(spans))
        loggers.add_log_record_processor(SimpleLogRecordProcessor(events))
        tracing = Tracing(tracers=tracers, loggers=loggers, model="judge", provider="scripted", has_content=has_content)
        return Seen(tracing, spans, events)

    return make


@pytest.fixture
def serve(sandbox: SharedSandbox, connect) -> Callable[..., httpx2.AsyncClient]:
    """Connects a client to a server with the same tracing as `tirjudge serve`."""

    def make(seen: Seen, texts: Iterable[str]) -> httpx2.AsyncClient:
        service = scripted_service(texts, sandbox=sandbox)
        service.judge = instrument(service.judge, seen.tracing)
        return connect(create_app(service, tracing=seen.tracing))

    return make


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


async def test_a_request_contains_a_judgment_with_turns_and_programs(see, serve) -> None:
    seen = see()
    async with serve(seen, [PRINTS, A]) as client:
        answer = (await client.post("/v1/judge", json=ASKED)).json()
    request, judgment, program = seen.one("POST"), seen.one("invoke_agent"), seen.one("execute_tool")
    turns = seen.named("chat")
    assert [span.name for span in (request, judgment, program)] == [
        "POST /v1/judge",
        "invoke_agent tir-judge",
        "execute_tool python",
    ]
    assert {turn.name for turn in turns} == {"chat judge"}
    assert len(turns) == 3  # two turns, and the reading of the verdict
    assert request.parent is None
    assert parent_of(judgment) == id_of(request)
    assert {parent_of(span) for span in (program, *turns)} == {id_of(judgment)}
    assert (request.kind, turns[0].kind) == (trace.SpanKind.SERVER, trace.SpanKind.CLIENT)
    assert (request.attributes or {}).items() >= {
        "http.request.method": "POST",
        "http.route": "/v1/judge",
        "http.response.status_code": 200,
    }.items()
    assert (judgment.attributes or {}).items() >= {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "tir-judge",
        "gen_ai.response.id": answer["id"],
        "gen_ai.usage.input_tokens": answer["usage"]["input_tokens"],
        "gen_ai.usage.output_tokens": answer["usage"]["output_tokens"],
        "tirjudge.status": "decided",
        "tirjudge.dialect": "judge",
    }.items()
    assert (turns[0].attributes or {}).items() >= {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "judge",
        "gen_ai.request.temperature": 0.0,
        "gen_ai.response.finish_reasons": ("stop",),
    }.items()
    assert (program.attributes or {}).items() >= {"gen_ai.tool.name": "python", "tirjudge.outcome": "ok"}.items()


async def test_a_preference_is_an_event_with_its_label_and_probability(see, serve) -> None:
    seen = see()
    async with serve(seen, [A]) as client:
        answer = (await client.post("/v1/judge", json=PLAIN)).json()
    (evaluation,) = seen.evaluations()
    assert evaluation["gen_ai.evaluation.name"] == "tirjudge.pairwise"
    assert evaluation["gen_ai.response.id"] == answer["id"]
    assert evaluation["gen_ai.evaluation.score.label"] == answer["verdict"]["label"]
    assert evaluation["gen_ai.evaluation.score.value"] == pytest.approx(0.8)


async def test_each_score_is_an_event_and_an_abstention_has_no_event(see, serve) -> None:
    seen = see()
    async with serve(seen, ["<score>7</score>", "<score>7</score>", "I cannot say."]) as client:
        scored = (await client.post("/v1/judge", json=PLAIN | {"mode": "pointwise"})).json()
        await client.post("/v1/judge", json=PLAIN | {"force_verdict": False})
    first, second, abstained = seen.evaluations()
    values = [evaluation["gen_ai.evaluation.score.value"] for evaluation in (first, second)]
    assert values == scored["verdict"]["scores"]
    assert abstained["error.type"] == "no_verdict"
    assert "gen_ai.evaluation.score.value" not in abstained


async def test_spans_contain_no_texts_by_default(see, serve) -> None:
    seen = see()
    async with serve(seen, [PRINTS, f"swordfish {A}"]) as client:
        await client.post("/v1/judge", json=ASKED)
        await client.post("/v1/judge", json=ASKED | {"seed": 1})
        await client.post("/v1/judge", json=ASKED | {"model": "swordfish"})
    exported = [span.to_json() for span in seen.spans.get_finished_spans()] + [
        json.dumps(e) for e in seen.evaluations()
    ]
    assert len(exported) > 8
    assert "swordfish" not in "".join(exported)


async def test_spans_contain_texts_if_enabled(see, serve) -> None:
    seen = see(has_content=True)
    async with serve(seen, [PRINTS, f"It is one. {A}"]) as client:
        await client.post("/v1/judge", json=ASKED)
    program, judgment = seen.one("execute_tool").attributes or {}, seen.one("invoke_agent").attributes or {}
    assert "swordfish" in json.loads(str(program["gen_ai.tool.call.arguments"]))["code"]
    assert program["gen_ai.tool.call.result"] == "swordfish\n"
    shown = json.loads(str(judgment["gen_ai.input.messages"]))
    assert shown[0] == {"role": "user", "parts": [{"type": "text", "content": "Say swordfish."}]}
    assert len(json.loads(str(judgment["gen_ai.output.messages"]))) == 2
    assert seen.evaluations()[0]["gen_ai.evaluation.explanation"] == f"It is one. {A}"


async def test_a_failure_has_its_error_type_in_each_enclosing_span(see, serve) -> None:
    seen = see()
    async with serve(seen, []) as client:
        await client.post("/v1/judge", json=PLAIN)
    kinds = {span.name: (span.attributes or {})["error.type"] for span in seen.spans.get_finished_spans()}
    assert kinds == {
        "chat judge": "EngineUnavailable",
        "invoke_agent tir-judge": "EngineUnavailable",
        "POST /v1/judge": "503",
    }
    assert all(not span.status.is_ok for span in seen.spans.get_finished_spans())


async def test_only_the_span_of_a_failing_program_has_an_error(see, serve) -> None:
    seen = see()
    async with serve(seen, ["```python\n1 / 0\n```\n```output", A]) as client:
        await client.post("/v1/judge", json=ASKED)
    assert (seen.one("execute_tool").attributes or {})["error.type"] == "error"
    assert "error.type" not in (seen.one("invoke_agent").attributes or {})


async def test_health_checks_and_scrapes_are_not_traced(see, serve) -> None:
    seen = see()
    async with serve(seen, []) as client:
        for path in ("/health", "/ready", "/metrics"):
            await client.get(path)
    assert seen.spans.get_finished_spans() == ()


async def test_span_names_do_not_contain_unknown_methods_and_paths(see, serve) -> None:
    seen = see()
    async with serve(seen, []) as client:
        await client.request("BREW", "/coffee")
    assert seen.one("_OTHER").name == "_OTHER unknown"


async def test_the_trace_of_a_caller_is_continued(see, serve) -> None:
    seen = see()
    async with serve(seen, [A]) as client:
        await client.post("/v1/judge", json=PLAIN, headers={"traceparent": TRACEPARENT})
    spans = seen.spans.get_finished_spans()
    assert {f"{span.context.trace_id:032x}" for span in spans} == {TRACE_ID}
    assert parent_of(seen.one("POST")) == int(SPAN_ID, 16)


async def test_the_sampling_flag_of_a_caller_is_respected(see, serve) -> None:
    seen = see()
    async with serve(seen, [A]) as client:
        answer = await client.post("/v1/judge", json=PLAIN, headers={"traceparent": TRACEPARENT[:-2] + "00"})
    assert answer.status_code == 200
    assert seen.spans.get_finished_spans() == ()


async def test_concurrent_judgments_have_separate_spans(see, serve) -> None:
    seen = see()
    async with serve(seen, [A] * 6) as client:
        await asyncio.gather(*(client.post("/v1/judge", json=PLAIN | {"seed": n}) for n in range(6)))
    requests, judgments = seen.named("POST"), seen.named("invoke_agent")
    assert {parent_of(span) for span in judgments} == {id_of(span) for span in requests}
    assert {parent_of(span) for span in seen.named("chat")} == {id_of(span) for span in judgments}
    assert len({span.context.trace_id for span in seen.spans.get_finished_spans() if span.context}) == 6


class Recording:
    """ASGI middleware that records the `traceparent` of each request, by path."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.seen: dict[str, list[str | None]] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            self.seen.setdefault(scope["path"], []).append(headers.get("traceparent"))
        await self.app(scope, receive, send)


@pytest.fixture
def worker(random_checkpoint: Path) -> Iterator[Recording]:
    engine = EmbeddedEngine.load(random_checkpoint)
    yield Recording(create_worker(engine, name="random"))
    engine.close()


@pytest.mark.slow
async def test_the_engine_receives_the_span_of_its_completion(
    see, worker: Recording, random_checkpoint: Path, listen, connect
) -> None:
    seen = see()
    async with listen(worker) as url:
        engine = VLLMEngine(url)
        service = JudgeService(
            instrument(Judge(engine=engine, tools=(), profile=load_profile(random_checkpoint)), seen.tracing)
        )
        async with connect(create_app(service, tracing=seen.tracing)) as client:
            answer = await client.post("/v1/judge", json=PLAIN, headers={"traceparent": TRACEPARENT})
        await engine.aclose()
    assert answer.status_code == 200
    sent = worker.seen["/v1/completions"]
    assert sorted(map(str, sent)) == sorted(f"00-{TRACE_ID}-{id_of(span):016x}-01" for span in seen.named("chat"))
    assert sent


@pytest.mark.parametrize(("given", "sent"), [(TRACEPARENT, TRACEPARENT), ("mine", None), (None, None)])
async def test_without_tracing_the_engine_receives_the_traceparent_of_the_caller(
    given: str | None, sent: str | None, worker: Recording, random_checkpoint: Path, listen, connect
) -> None:
    async with listen(worker) as url:
        engine = VLLMEngine(url)
        async with connect(
            create_app(JudgeService(Judge(engine=engine, tools=(), profile=load_profile(random_checkpoint))))
        ) as client:
            headers = {} if given is None else {"traceparent": given}
            assert (await client.post("/v1/judge", json=PLAIN, headers=headers)).status_code == 200
        await engine.aclose()
    assert set(worker.seen["/v1/completions"]) == {sent}


class Collector(ThreadingHTTPServer):
    """A collector: stores the requests of OpenTelemetry's exporters."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taking)
        self.taken: dict[str, list[bytes]] = {}
        self.headers: list[Any] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def spans(self) -> list[Any]:
        batches = [ExportTraceServiceRequest.FromString(body) for body in self.taken.get("/v1/traces", [])]
        return [s for b in batches for r in b.resource_spans for scope in r.scope_spans for s in scope.spans]

    def services(self) -> set[str]:
        batches = [ExportTraceServiceRequest.FromString(body) for body in self.taken.get("/v1/traces", [])]
        attributes = [a for b in batches for r in b.resource_spans for a in r.resource.attributes]
        return {attribute.value.string_value for attribute in attributes if attribute.key == "service.name"}

    def events(self) -> list[Any]:
        batches = [ExportLogsServiceRequest.FromString(body) for body in self.taken.get("/v1/logs", [])]
        return [e for b in batches for r in b.resource_logs for scope in r.scope_logs for e in scope.log_records]


class _Taking(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.taken.setdefault(self.path, []).append(body)
        self.server.headers.append(self.headers)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.slow
def test_a_real_server_exports_telemetry_without_its_key(
    start: Callable[..., ServerProcess], collector: Collector, random_checkpoint: Path, tmp_path: Path
) -> None:
    key = mint_key(tmp_path / "records.db", name="ann")
    options = ["--model", str(random_checkpoint), "--records", str(tmp_path / "records.db")]
    server = start(
        "serve",
        *options,
        "--log-level",
        "debug",
        "--log-format",
        "json",
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
        OTEL_SERVICE_NAME="judges",
        OTEL_EXPORTER_OTLP_HEADERS="x-tenant=us",
    )
    bearer = {"authorization": f"Bearer {key}"}
    answer = httpx2.post(f"{server.url}/v1/judge", json=ASKED, headers=bearer, timeout=60)
    assert httpx2.post(f"{server.url}/v1/judge", json=ASKED, timeout=60).status_code == 401
    metrics = httpx2.get(f"{server.url}/metrics", timeout=60).text
    _, err = server.stop()
    assert answer.status_code == 200
    lines = [json.loads(line) for line in err.splitlines()]
    judged = [line for line in lines if line.get("judgment_id") == answer.json()["id"]]
    assert judged
    assert {line["caller"] for line in judged} == {"ann"}
    assert key not in err
    assert "swordfish" not in err
    assert re.search(r'^tirjudge_sandbox_pool\{state="idle"\} [1-9]', metrics, re.MULTILINE)
    assert re.search(
        r"^tirjudge_sandbox_wait_seconds_count [1-9]", metrics, re.MULTILINE
    )  # at least the program of the trial judgment
    assert "ann" not in re.findall(r'"([^"]*)"', metrics)
    names = {span.name for span in collector.spans()}
    assert names >= {"POST /v1/judge", "invoke_agent tir-judge", "chat random"}
    assert [event.event_name for event in collector.events()] == ["gen_ai.evaluation.result"]
    assert collector.services() == {"judges"}
    assert {headers["x-tenant"] for headers in collector.headers} == {"us"}
    for body in chain(*collector.taken.values()):
        assert b"swordfish" not in body
        assert key.encode() not in body


async def test_the_service_of_spans_is_named_tirjudge(collector: Collector, serve) -> None:
    opening = open_tracing(collector.url, model="judge", provider="scripted", has_content=False)
    async with (
        opening as opened,
        serve(Seen(opened, InMemorySpanExporter(), InMemoryLogRecordExporter()), [A]) as client,
    ):
        await client.post("/v1/judge", json=PLAIN)
    assert collector.services() == {"tirjudge"}


async def test_an_unreachable_collector_delays_nothing(serve, monkeypatch) -> None:
    monkeypatch.setattr(tracing, "FLUSH_S", 0.1)
    with bind("127.0.0.1", port=0) as unanswered:
        url = f"http://127.0.0.1:{unanswered.getsockname()[1]}"
        opening = open_tracing(url, model="judge", provider="scripted", has_content=False)
        async with asyncio.timeout(60), opening as opened:
            seen = Seen(opened, InMemorySpanExporter(), InMemoryLogRecordExporter())
            async with serve(seen, [A]) as client:
                assert (await client.post("/v1/judge", json=PLAIN)).status_code == 200


async def test_the_error_without_opentelemetry_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, random_checkpoint: Path
) -> None:
    monkeypatch.setitem(sys.modules, "tirjudge_server.telemetry.tracing", None)
    settings = ServerSettings(model=random_checkpoint, otlp="http://127.0.0.1:1", records="none", files="none", slots=1)
    with pytest.raises(TracingUnavailable, match=r"pip install 'tirjudge\[otel\]'"):
        async with serving.open_application(settings):
            pass

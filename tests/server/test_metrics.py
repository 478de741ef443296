"""`GET /metrics`: which events are counted, and with which labels."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families

from tests.held_engine import HeldEngine
from tests.servers import LABEL_PROBS, SharedSandbox, scripted_service
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.judge import Judge
from tirjudge_sandbox.candidates import FUNCTIONS
from tirjudge_server.app import create_app
from tirjudge_server.dialects import DialectSettings
from tirjudge_server.records.record import versions_of
from tirjudge_server.records.store import open_records
from tirjudge_server.service import JudgeService
from tirjudge_server.telemetry.instrumenting import instrument
from tirjudge_server.telemetry.metrics import ServerMetrics

A, B = "<preference>A</preference>", "<preference>B</preference>"
PRINTS = "```python\nprint(1)\n```\n```output"
RAISES = "```python\n1 / 0\n```\n```output"
NO_PROGRAM = "Let me see.\n```output"
ASKED: dict[str, Any] = {"mode": "pairwise", "prompt": "Which is longer?", "responses": ["one", "three"]}
PLAIN = ASKED | {"tools": "off"}
JUDGE = {"method": "POST", "route": "/v1/judge"}

Connect = Callable[[FastAPI], httpx2.AsyncClient]


@pytest.fixture
def serve(sandbox: SharedSandbox) -> Callable[..., tuple[JudgeService, FastAPI]]:
    """Makes a scripted service and an application with metrics like those of `tirjudge serve`."""

    def make(texts: Iterable[str], **options: Any) -> tuple[JudgeService, FastAPI]:
        service = scripted_service(texts, sandbox=sandbox, **options)
        metrics = ServerMetrics(service, pool=sandbox.stats)
        service.judge = instrument(service.judge, metrics)
        return service, create_app(service, metrics=metrics)

    return make


async def read(client: httpx2.AsyncClient) -> Callable[..., float]:
    """Scrape the metrics. Return a function that maps a name and labels to the value; 0 if there is no sample."""
    answer = await client.get("/metrics")
    assert answer.status_code == 200
    found = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    return lambda name, **labels: found.get((f"tirjudge_{name}", frozenset(labels.items())), 0.0)


async def test_a_judgment_is_counted_over_a_socket(serve, listen) -> None:
    _, app = serve([PRINTS, RAISES, A])
    async with listen(app) as url, httpx2.AsyncClient(base_url=url) as client:
        usage = (await client.post("/v1/judge", json=ASKED)).json()["usage"]
        async with asyncio.timeout(60):
            # The slot of the failed program starts again.
            while (metric := await read(client))("sandbox_pool", state="idle") < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    assert metric("judgments_total", mode="pairwise", status="decided", dialect="judge") == 1
    assert metric("judgment_seconds_count", mode="pairwise") == metric("queue_seconds_count") == 1
    assert metric("rollouts_total", stop_reason="verdict", forced="no") == 1
    assert metric("verdicts_total", basis="reasoned") == 1
    assert (metric("turns_count"), metric("turns_sum")) == (1, 3)
    assert (metric("tool_calls_total", outcome="ok"), metric("tool_calls_total", outcome="error")) == (1, 1)
    assert metric("tokens_total", kind="input") == usage["input_tokens"]
    assert metric("tokens_total", kind="output") == usage["output_tokens"]
    assert (metric("engine_seconds_count", kind="turn"), metric("engine_seconds_count", kind="verdict")) == (3, 1)
    assert metric("sandbox_wait_seconds_count") == 2
    assert metric("http_requests_total", **JUDGE, status="200") == 1
    assert metric("http_seconds_count", route="/v1/judge") == 1


async def test_function_calls_and_candidate_code_in_process_are_counted(serve, connect: Connect) -> None:
    program = "for call in (None, 7):\n    try:\n        run('1', call=call)\n    except ToolError:\n        pass"
    calls = f"```python\n{program}\n```\n```output"
    executes = "```python\nexec('def f():\\n    pass\\n' + response_a)\n```\n```output"
    _, app = serve([calls, A, executes, A], functions=FUNCTIONS)
    async with connect(app) as client:
        for seed in (0, 1):
            assert (await client.post("/v1/judge", json=ASKED | {"seed": seed})).status_code == 200
        metric = await read(client)
    for outcome in ("ok", "error"):
        assert metric("function_calls_total", function="run", outcome=outcome) == 1
    assert metric("function_seconds_count", function="run") == 2
    assert metric("candidate_in_process_total") == 1


async def test_disagreeing_orders_are_a_flip_and_a_tie(serve, connect: Connect) -> None:
    _, app = serve([A, A, A, B])
    async with connect(app) as client:
        for number in range(2):
            await client.post("/v1/judge", json=PLAIN | {"orders": "both", "seed": number})
        metric = await read(client)
    assert metric("both_orders_total") == 2
    assert metric("position_flips_total") == metric("ties_total", reason="orders_disagree") == 1


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        ("<preference>C</preference>", "malformed_verdict"),
        ("I cannot say.", "no_verdict"),
    ],
)
async def test_an_unreadable_verdict_is_a_parse_failure_and_an_abstention(
    serve, connect: Connect, text: str, stage: str
) -> None:
    _, app = serve([text])
    async with connect(app) as client:
        await client.post("/v1/judge", json=PLAIN | {"force_verdict": False})
        metric = await read(client)
    assert metric("parse_failures_total", stage=stage) == metric("abstain_total", reason=stage) == 1
    assert metric("judgments_total", mode="pairwise", status="abstained", dialect="judge") == 1


async def test_a_tool_call_without_a_program_is_a_parse_failure_and_no_abstention(serve, connect: Connect) -> None:
    _, app = serve([NO_PROGRAM, A])
    async with connect(app) as client:
        await client.post("/v1/judge", json=ASKED)
        metric = await read(client)
    assert metric("parse_failures_total", stage="program") == metric("tool_calls_total", outcome="refused") == 1
    assert metric("judgments_total", mode="pairwise", status="decided", dialect="judge") == 1


async def test_an_engine_failure_is_an_engine_error_and_a_failed_judgment(serve, connect: Connect) -> None:
    _, app = serve([])
    async with connect(app) as client:
        await client.post("/v1/judge", json=PLAIN)
        metric = await read(client)
    assert metric("engine_errors_total", error="EngineUnavailable") == 1
    assert metric("failures_total", code="engine_unavailable") == 1
    assert metric("judgments_total", mode="pairwise", status="failed", dialect="judge") == 1
    assert metric("judgment_seconds_count", mode="pairwise") == 0


@asynccontextmanager
async def judging(client: httpx2.AsyncClient, **fields: Any) -> AsyncIterator[asyncio.Task[httpx2.Response]]:
    """Send a request, and cancel it at the end of the block."""
    task = asyncio.create_task(client.post("/v1/judge", json=PLAIN | fields))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_running_queued_and_turned_away_judgments_are_counted(serve, connect: Connect, until) -> None:
    service, app = serve([A] * 3, delay_s=60.0, max_concurrency=1, max_queue=1)
    async with connect(app) as client:
        async with judging(client, seed=1):
            await until(lambda: service.admission.num_running == 1)
            async with judging(client, seed=2):
                await until(lambda: service.admission.num_waiting == 1)
                assert (await client.post("/v1/judge", json=PLAIN | {"seed": 3})).status_code == 429
                metric = await read(client)
        await until(lambda: service.admission.num_running == 0)
        after = await read(client)
    assert (metric("inflight"), metric("queue_depth")) == (1, 1)
    assert metric("judgments_total", mode="pairwise", status="turned_away", dialect="judge") == 1
    assert metric("failures_total", code="queue_full") == 1
    assert (after("inflight"), after("queue_depth")) == (0, 0)


async def test_a_judgment_without_callers_is_cancelled_and_not_failed(serve, listen, until) -> None:
    service, app = serve([A], delay_s=60.0)
    async with listen(app) as url, httpx2.AsyncClient(base_url=url) as client:
        async with judging(client):
            await until(lambda: service.admission.num_running == 1)
        async with asyncio.timeout(60):
            while not (metric := await read(client))("http_requests_total", **JUDGE, status="499"):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    assert metric("judgments_total", mode="pairwise", status="cancelled", dialect="judge") == 1
    assert metric("failures_total", code="internal") == 0


async def test_coalesced_and_recorded_answers_are_counted_separately(
    serve, connect: Connect, until, tmp_path: Path
) -> None:
    service, app = serve([])
    engine = HeldEngine([A], label_probs=LABEL_PROBS)
    service.judge = replace(service.judge, engine=engine)
    versions = versions_of(service.judge, fingerprint="f", isolation=None)
    async with open_records(str(tmp_path / "records.sqlite"), versions=versions) as records:
        service.records = records
        async with connect(app) as client:
            asking = [asyncio.create_task(client.post("/v1/judge", json=PLAIN)) for _ in range(3)]
            await until(lambda: engine.num_held == 1 and service.in_flight.num_joined == 2)
            engine.allow(1)
            await asyncio.gather(*asking)
            await client.post("/v1/judge", json=PLAIN)
            metric = await read(client)
    assert metric("joined_total") == 2
    assert metric("cache_hits_total") == 1
    assert metric("judgments_total", mode="pairwise", status="decided", dialect="judge") == 1


async def test_unknown_paths_and_methods_share_one_label(serve, connect: Connect) -> None:
    _, app = serve([])
    async with connect(app) as client:
        for path in ("/a", "/b", "/v1/judge/secret"):
            await client.get(path)
        await client.request("BREW", "/v1/judge")
        metric = await read(client)
    assert metric("http_requests_total", method="GET", route="unknown", status="404") == 3
    assert metric("http_requests_total", method="_OTHER", route="/v1/judge", status="405") == 1


async def test_ids_in_a_path_are_not_in_a_label(serve, connect: Connect, tmp_path: Path) -> None:
    service, _ = serve([])
    app = create_app(service, files=tmp_path)
    async with connect(app) as client:
        await client.get("/v1/files/file-1")
        await client.get("/v1/files/file-2")
        metric = await read(client)
    assert metric("http_requests_total", method="GET", route="/v1/files/{file_id}", status="404") == 2


async def test_an_internal_error_is_a_500_and_counted_as_a_failure(serve, connect: Connect) -> None:
    service, app = serve([])

    class Broken(ScriptedEngine):
        async def generate(self, *arguments: Any, **more: Any) -> Any:
            raise ZeroDivisionError

    service.judge = Judge(engine=Broken(()), tools=())
    async with connect(app) as client:
        assert (await client.post("/v1/judge", json=PLAIN)).status_code == 500
        metric = await read(client)
    assert metric("http_requests_total", **JUDGE, status="500") == 1
    assert metric("failures_total", code="internal") == 1


async def test_fallback_scores_are_counted(serve, connect: Connect) -> None:
    service, _ = serve([])
    async with connect(create_app(service, settings=DialectSettings(patience_s=0.0))) as client:
        body = {"query": ["a question and an answer"], "prompts": ["a question"]}
        await client.post("/get_reward", json=body)
        metric = await read(client)
    assert metric("fallbacks_total", dialect="openrlhf", reason="unavailable") == 1


async def test_two_servers_in_one_process_count_separately(serve, connect: Connect) -> None:
    (_, first), (_, second) = serve([A]), serve([A])
    async with connect(first) as client, connect(second) as other:
        await client.post("/v1/judge", json=PLAIN)
        metric, nothing = await read(client), await read(other)
    counted = {"mode": "pairwise", "status": "decided", "dialect": "judge"}
    assert (metric("judgments_total", **counted), nothing("judgments_total", **counted)) == (1, 0)

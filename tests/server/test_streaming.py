"""Judgments as streams of server-sent events."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace

import httpx2
import pytest

from tirjudge.client import AsyncClient
from tirjudge.http.protocol import JudgmentCreated, JudgmentTurn
from tirjudge.types import JudgeRequest, Judgment, Mode
from tirjudge_server.app import create_app
from tirjudge_server.call import Call
from tirjudge_server.openai import chunks
from tirjudge_server.streaming import judgment_events

PRINTS = "```python\nprint(1)\n```\n```output"
SLEEPS = "```python\nimport time\ntime.sleep(8)\n```\n```output"


def names(text: str) -> list[str]:
    return [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event: ")]


async def test_events_come_in_order_and_end_with_the_judgment(make_service, listen, pairwise) -> None:
    service = make_service([PRINTS, "<preference>A</preference>"])
    request = JudgeRequest.model_validate(pairwise | {"tools": "auto"})
    async with listen(create_app(service)) as url, AsyncClient(url) as client:
        created, first, second, judgment = [event async for event in client.stream(request)]
    assert isinstance(created, JudgmentCreated)
    assert isinstance(first, JudgmentTurn)
    assert isinstance(second, JudgmentTurn)
    assert isinstance(judgment, Judgment)
    assert created.id == judgment.id
    assert first.turn.output == "1"
    assert [first.turn, second.turn] == judgment.rollouts[0].turns
    assert first.order == judgment.rollouts[0].order


async def test_stream_has_event_stream_content_type(make_service, connect, pairwise) -> None:
    async with connect(create_app(make_service(["<preference>A</preference>"]))) as client:
        response = await client.post("/v1/judge", json=pairwise | {"stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-judgment-id"].startswith("jdg_")
    assert names(response.text) == ["judgment.created", "judgment.turn", "judgment.completed"]


async def test_failure_after_first_event_is_last_event(make_service, connect, pairwise) -> None:
    service = make_service([])
    profile = service.judge.profile.model_copy(update={"context_tokens": 100})
    service.judge = replace(service.judge, profile=profile)
    async with connect(create_app(service)) as client:
        response = await client.post("/v1/judge", json=pairwise | {"stream": True})
    assert response.status_code == 200
    assert names(response.text) == ["judgment.created", "error"]
    assert '"param":"prompt"' in response.text


@pytest.mark.parametrize("path", ["/v1/judge", "/v1/chat/completions"])
async def test_internal_error_is_sent_logged_and_ends_the_stream(
    make_service, listen, pairwise, caplog, monkeypatch, path
) -> None:
    monkeypatch.setattr(chunks, "OPENING_S", 0.0)

    def fail(sequence: str) -> str:
        raise RuntimeError("secret/path.py")

    body = pairwise | {"stream": True}
    if path != "/v1/judge":
        body = {"model": "judge", "messages": [{"role": "user", "content": "q"}], "stream": True, "judge": pairwise}
    async with listen(create_app(make_service(fail))) as url, httpx2.AsyncClient(base_url=url) as client:
        response = await client.post(path, json=body)  # a cut body is an exception
    assert response.status_code == 200
    assert '"code":"internal"' in response.text.rstrip().split("\n\n")[-1]
    assert "secret" not in response.text
    assert sum("failed: a bug" in record.getMessage() for record in caplog.records) == 1
    assert "in fail" in caplog.text


async def test_invalid_request_is_http_error(connect, make_service, pairwise) -> None:
    async with connect(create_app(make_service([]))) as client:
        response = await client.post("/v1/judge", json=pairwise | {"stream": True, "responses": []})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "responses"


async def test_heartbeats_are_sent_while_a_stream_is_idle(make_service) -> None:
    service = make_service(["```python\nimport time\ntime.sleep(0.3)\n```\n```output", "<preference>A</preference>"])
    request = JudgeRequest(mode=Mode.PAIRWISE, prompt="p", responses=["a", "b"])
    events = [event async for event in judgment_events(service, request, call=Call(), heartbeat_s=0.05)]
    assert events.count(None) >= 2
    assert isinstance(events[-1], Judgment)


@pytest.mark.parametrize("stream", [False, True])
async def test_disconnect_frees_the_slot_and_kills_the_program(
    pool, make_service, listen, until, pairwise, stream
) -> None:
    service = make_service([SLEEPS], sandbox=pool)
    async with listen(create_app(service)) as url, httpx2.AsyncClient(base_url=url) as client:
        asking = asyncio.create_task(client.post("/v1/judge", json=pairwise | {"tools": "auto", "stream": stream}))
        await until(lambda: pool.stats().num_idle == 1)
        asking.cancel()
        await until(lambda: service.admission.num_running == 0 and pool.stats().num_idle == 2)


async def test_leaving_a_stream_early_frees_the_slot(make_service, listen, until, pairwise) -> None:
    service = make_service([SLEEPS])
    request = JudgeRequest.model_validate(pairwise | {"tools": "auto"})
    async with listen(create_app(service)) as url, AsyncClient(url) as client:
        async with aclosing(client.stream(request)) as events:
            assert isinstance(await anext(events), JudgmentCreated)
        await until(lambda: service.admission.num_running == 0)

"""The same tests for both clients: requests, retries, deadlines, and the parsing of responses."""

from __future__ import annotations

import json
import pickle
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import httpx2
import pytest

import tirjudge
from tests.judgments import build_judgment, build_verdict
from tirjudge.client import AsyncClient, Client, RequestRefused, ServerUnavailable
from tirjudge.errors import DeadlineExceeded
from tirjudge.http.protocol import ErrorBody, JudgmentCreated, JudgmentRecord, Problem, encode_event
from tirjudge.http.retry_events import on_retry
from tirjudge.http.rewards import (
    JudgmentBatchAnswer,
    JudgmentBatchItem,
    RerankAnswer,
    RerankRequest,
    RewardRequest,
    RewardUsage,
)
from tirjudge.types import JudgeRequest, Mode

REQUEST = JudgeRequest(mode=Mode.PAIRWISE, prompt="p", responses=["a", "b"], stream=True)
JUDGMENT = build_judgment(build_verdict(best=0, label="A", probabilities=[0.8, 0.2], confidence=0.8, label_mass=1.0))
CREATED = JudgmentCreated(id="jdg_1", mode=Mode.PAIRWISE, model="judge")

Call = Callable[..., Awaitable[Any]]
"""Calls a method of one of the clients by name. A stream is returned as the list of its events."""


class Server:
    """Transport that returns scripted responses in order and records the requests."""

    def __init__(self) -> None:
        self.answers: list[httpx2.Response | Exception] = []
        self.seen: list[httpx2.Request] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.seen.append(request)
        answer = self.answers[len(self.seen) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture(params=["Client", "AsyncClient"])
def call(request: pytest.FixtureRequest, server: Server) -> Call:
    async def asynchronous(method: str, *arguments: Any, options: Any = None, **keywords: Any) -> Any:
        transport = httpx2.MockTransport(server)
        async with AsyncClient("http://judge/", max_attempts=3, transport=transport, **(options or {})) as client:
            if method == "stream":
                return [event async for event in client.stream(*arguments, **keywords)]
            return await getattr(client, method)(*arguments, **keywords)

    async def synchronous(method: str, *arguments: Any, options: Any = None, **keywords: Any) -> Any:
        transport = httpx2.MockTransport(server)
        with Client("http://judge/", max_attempts=3, transport=transport, **(options or {})) as client:
            answer = getattr(client, method)(*arguments, **keywords)
            return list(answer) if method == "stream" else answer

    return asynchronous if request.param == "AsyncClient" else synchronous


def success(body: Any = JUDGMENT) -> httpx2.Response:
    return httpx2.Response(200, content=body.model_dump_json())


def problem(status: int, *, kind: str = "server_error", code: str | None = None, **headers: str) -> httpx2.Response:
    body = ErrorBody(error=Problem(message="it is so", type=kind, code=code)).model_dump_json()
    return httpx2.Response(status, content=body, headers={name.replace("_", "-"): v for name, v in headers.items()})


EVENT_STREAM = {"content-type": "text/event-stream"}


def streamed(events: Iterable[Any]) -> httpx2.Response:
    content = b"".join(encode_event(event) for event in events)
    return httpx2.Response(200, content=content, headers=EVENT_STREAM)


async def test_judge_sends_the_request_and_returns_the_judgment(call: Call, server: Server) -> None:
    server.answers = [success()]
    assert await call("judge", REQUEST) == JUDGMENT
    assert JudgeRequest.model_validate_json(server.seen[0].content) == REQUEST.model_copy(update={"stream": False})
    assert str(server.seen[0].url) == "http://judge/v1/judge"


async def test_the_api_key_is_sent_and_not_part_of_errors(call: Call, server: Server) -> None:
    server.answers = [problem(401, kind="invalid_request_error", code="invalid_api_key")]
    with pytest.raises(RequestRefused) as refused:
        await call("judge", REQUEST, options={"api_key": "tj-secret"})
    assert server.seen[0].headers["authorization"] == "Bearer tj-secret"
    assert "tj-secret" not in repr(refused.value)


async def test_without_an_api_key_no_header_is_sent(call: Call, server: Server) -> None:
    server.answers = [success()]
    await call("judge", REQUEST)
    assert "authorization" not in server.seen[0].headers


@pytest.mark.parametrize("status", [429, 502, 503])
async def test_a_busy_server_is_retried_after_the_requested_pause(call: Call, server: Server, status: int) -> None:
    pauses: list[float] = []
    server.answers = [problem(status, retry_after="7", retry_after_ms="40"), success()]
    with on_retry(pauses.append):
        assert await call("judge", REQUEST) == JUDGMENT
    assert pauses == [pytest.approx(0.045, abs=0.0051)]  # 40 ms and up to 25 % of jitter


async def test_retries_share_one_idempotency_key_and_requests_have_different_keys(call: Call, server: Server) -> None:
    busy = problem(429, retry_after_ms="1")
    server.answers = [busy, busy, success(), success()]
    await call("judge", REQUEST)
    await call("judge", REQUEST)
    keys = [request.headers["idempotency-key"] for request in server.seen]
    assert keys[0] == keys[1] == keys[2] != keys[3]


@pytest.mark.parametrize("error", [httpx2.ConnectError("refused"), httpx2.ReadError("reset")])
async def test_a_broken_connection_is_retried(
    call: Call, server: Server, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tirjudge.http.exchange.FIRST_PAUSE_S", 0.01)
    server.answers = [error, success()]
    assert await call("judge", REQUEST) == JUDGMENT


async def test_retries_of_a_broken_connection_are_limited(
    call: Call, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tirjudge.http.exchange.FIRST_PAUSE_S", 0.01)
    server.answers = [httpx2.ReadError("reset") for _ in range(3)]
    with pytest.raises(ServerUnavailable, match="http://judge closed the connection: reset"):
        await call("judge", REQUEST)
    assert len(server.seen) == 3


@pytest.mark.parametrize("failure", [500, 504, httpx2.ReadTimeout("late"), httpx2.UnsupportedProtocol("judge://")])
async def test_permanent_failures_are_not_retried(call: Call, server: Server, failure: int | Exception) -> None:
    server.answers = [problem(failure) if isinstance(failure, int) else failure]
    with pytest.raises(ServerUnavailable):
        await call("judge", REQUEST)
    assert len(server.seen) == 1


async def test_an_error_has_the_code_of_the_server(call: Call, server: Server) -> None:
    server.answers = [problem(500, code="internal")]
    with pytest.raises(ServerUnavailable) as failed:
        await call("judge", REQUEST)
    assert failed.value.problem is not None
    assert failed.value.problem.code == "internal"


async def test_each_attempt_sends_the_remaining_time(call: Call, server: Server) -> None:
    server.answers = [problem(503, retry_after_ms="100"), success()]
    await call("judge", REQUEST, deadline_s=60)
    first, second = [int(request.headers["x-judge-deadline-ms"]) for request in server.seen]
    assert 50_000 < second <= first - 100 <= 59_900


async def test_the_client_does_not_pause_past_the_deadline(call: Call, server: Server) -> None:
    pauses: list[float] = []
    server.answers = [problem(503, retry_after="30")]
    with on_retry(pauses.append), pytest.raises(ServerUnavailable, match="it is so"):
        await call("judge", REQUEST, deadline_s=20)
    assert pauses == []


async def test_a_missed_deadline_raises_deadline_exceeded(call: Call, server: Server) -> None:
    server.answers = [problem(504, code="deadline_exceeded")]
    with pytest.raises(DeadlineExceeded, match="it is so"):
        await call("judge", REQUEST, deadline_s=60)


async def test_no_request_is_sent_after_the_deadline(call: Call, server: Server) -> None:
    with pytest.raises(DeadlineExceeded):
        await call("judge", REQUEST, deadline_s=0)
    assert server.seen == []


async def test_a_stream_ends_with_the_judgment(call: Call, server: Server) -> None:
    server.answers = [problem(429, retry_after_ms="1"), streamed([CREATED, JUDGMENT])]
    assert await call("stream", REQUEST) == [CREATED, JUDGMENT]
    assert JudgeRequest.model_validate_json(server.seen[0].content).stream


@pytest.mark.parametrize(
    ("events", "error"),
    [
        ([CREATED], ServerUnavailable),
        ([CREATED, ErrorBody(error=Problem(message="m", type="server_error"))], ServerUnavailable),
        ([ErrorBody(error=Problem(message="m", type="invalid_request_error"))], RequestRefused),
        ([ErrorBody(error=Problem(message="m", type="x", code="deadline_exceeded"))], DeadlineExceeded),
    ],
)
async def test_a_stream_without_a_judgment_is_an_error_and_is_not_retried(
    call: Call, server: Server, events: list[Any], error: type[Exception]
) -> None:
    server.answers = [streamed(events)]
    with pytest.raises(error):
        await call("stream", REQUEST)
    assert len(server.seen) == 1


async def test_a_batch_returns_judgments_and_errors_in_order(call: Call, server: Server) -> None:
    wrong = Problem(message="too long", type="invalid_request_error")
    items = [
        JudgmentBatchItem(index=1, judgment=None, error=wrong),
        JudgmentBatchItem(index=0, judgment=JUDGMENT, error=None),
    ]
    server.answers = [success(JudgmentBatchAnswer(data=items))]
    assert await call("judge_batch", [REQUEST, REQUEST]) == [JUDGMENT, wrong]
    assert server.seen[0].url.path == "/v1/judge/batch"
    assert b'"stream":true' not in server.seen[0].content


async def test_rerank_sends_only_given_fields(call: Call, server: Server) -> None:
    usage = RewardUsage(input_tokens=1, output_tokens=1, judgments=1)
    answer = RerankAnswer(model="judge", method="listwise", best=1, results=[], usage=usage)
    server.answers = [success(answer)]
    assert await call("rerank", RerankRequest(prompt="p", responses=["a", "b"])) == answer
    assert server.seen[0].content == b'{"prompt":"p","responses":["a","b"]}'


async def test_a_record_is_requested_by_its_quoted_id(call: Call, server: Server) -> None:
    record = JudgmentRecord(
        id="jdg_1",
        created_ms=1,
        sequence=1,
        hash="h",
        previous_hash="p",
        intact=True,
        dialect="judge",
        caller=None,
        request_id=None,
        request={},
        judgment=JUDGMENT,
        versions={},
        erased=[],
    )
    server.answers = [success(record)]
    assert await call("judgment", "jdg_1/../x") == record
    assert server.seen[0].url.raw_path == b"/v1/judgments/jdg_1%2F..%2Fx"
    assert "idempotency-key" not in server.seen[0].headers


@pytest.mark.parametrize("method", ["judge", "reward"])
async def test_a_response_of_another_server_is_reported(call: Call, server: Server, method: str) -> None:
    server.answers = [httpx2.Response(200, content=b"<html>")]
    asked = REQUEST if method == "judge" else RewardRequest(prompt="p", response="r")
    with pytest.raises(ServerUnavailable, match="http://judge is not a tirjudge server"):
        await call(method, asked)


@pytest.mark.parametrize("block", [b"data: hello\n\n", b"event: judgment.completed\ndata: {}\n\n"])
async def test_a_stream_of_another_server_is_reported(call: Call, server: Server, block: bytes) -> None:
    server.answers = [httpx2.Response(200, content=block, headers=EVENT_STREAM)]
    with pytest.raises(ServerUnavailable, match="http://judge is not a tirjudge server"):
        await call("stream", REQUEST)


async def test_an_error_page_of_another_server_is_shown_in_one_line(call: Call, server: Server) -> None:
    server.answers = [httpx2.Response(404, content=b"<html>\n<h1>File not found\n")]
    with pytest.raises(ServerUnavailable, match=r"http://judge/v1/models answered 404: <html> <h1>File not found$"):
        await call("models")


@pytest.mark.parametrize("client", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://judge:port", "http://judge:port is not a URL"),
        ("localhost:8400", "localhost:8400 is not a URL of a server; give one such as http://"),
        ("", "is not a URL of a server"),
    ],
)
def test_an_invalid_url_raises_server_unavailable(
    client: type[Client] | type[AsyncClient], url: str, says: str
) -> None:
    with pytest.raises(ServerUnavailable, match=says):
        client(url)


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_the_default_server_is_the_one_that_serve_starts(client: type[Client] | type[AsyncClient]) -> None:
    assert client().base_url == "http://127.0.0.1:8400"


async def test_the_fields_of_a_request_are_a_request(call: Call, server: Server) -> None:
    server.answers = [httpx2.Response(200, content=JUDGMENT.model_dump_json()) for _ in range(2)]
    fields = {"mode": "pairwise", "prompt": "p", "responses": ["a", "b"]}
    assert await call("judge", fields) == await call("judge", JudgeRequest.model_validate(fields))
    one, other = (json.loads(request.content) for request in server.seen)
    assert one == other
    with pytest.raises(ValueError, match="responses"):
        await call("judge", {"mode": "pairwise", "prompt": "p"})


def test_request_refused_can_be_pickled() -> None:
    refused = RequestRefused(Problem(message="m", type="invalid_request_error"))
    again = pickle.loads(pickle.dumps(refused))
    assert (str(again), again.problem) == ("m", refused.problem)


@pytest.mark.parametrize("name", tirjudge.__all__)
def test_the_package_exports_its_public_names(name: str) -> None:
    assert getattr(tirjudge, name).__name__ == name


def test_an_unknown_attribute_of_the_package_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="tirjudge"):
        _ = tirjudge.nothing  # type: ignore[attr-defined]

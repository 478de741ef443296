from __future__ import annotations

import time

import httpx2
import pytest

from tirjudge.client import JudgeClient, RequestRefused, ServerUnavailable
from tirjudge.protocol import ErrorBody, JudgmentCreated, Problem, encode_event
from tirjudge.types import JudgeRequest, Judgment, Mode, Timing, Usage, Verdict

REQUEST = JudgeRequest(mode=Mode.PAIRWISE, prompt="p", responses=["a", "b"], stream=True)
JUDGMENT = Judgment(
    id="jdg_1",
    created=0,
    mode=Mode.PAIRWISE,
    model="judge",
    verdict=Verdict(
        status="decided",
        best=0,
        label="A",
        scores=None,
        probabilities=[0.8, 0.2],
        confidence=0.8,
        label_mass=1.0,
        forced=False,
    ),
    rollouts=[],
    usage=Usage(input_tokens=1, cached_tokens=0, output_tokens=1, tool_calls=0, rollouts=1),
    timing=Timing(total_s=0.1, engine_s=0.1, sandbox_s=0.0),
)


def answer_of(status: int, *, kind: str = "server_error", headers: dict[str, str] | None = None) -> httpx2.Response:
    body = ErrorBody(error=Problem(message="responses: too few", type=kind)).model_dump_json()
    return httpx2.Response(status, content=body, headers=headers)


def client_of(*answers: httpx2.Response | Exception, max_attempts: int = 3) -> tuple[JudgeClient, list[httpx2.Request]]:
    """A client of a server that gives these answers in turn, and the requests that it saw."""
    seen: list[httpx2.Request] = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        answer = answers[len(seen) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    client = JudgeClient("http://judge/", max_attempts=max_attempts, transport=httpx2.MockTransport(respond))
    return client, seen


def success() -> httpx2.Response:
    return httpx2.Response(200, content=JUDGMENT.model_dump_json())


async def test_a_judgment_comes_back_as_it_was_sent() -> None:
    client, seen = client_of(success())
    async with client:
        assert await client.judge(REQUEST) == JUDGMENT
    assert JudgeRequest.model_validate_json(seen[0].content) == REQUEST.model_copy(update={"stream": False})


@pytest.mark.parametrize("status", [429, 503])
async def test_a_busy_server_is_asked_again_when_it_said_to(status: int) -> None:
    client, seen = client_of(answer_of(status, headers={"retry-after": "5", "retry-after-ms": "40"}), success())
    started = time.perf_counter()
    async with client:
        assert await client.judge(REQUEST) == JUDGMENT
    assert 0.04 <= time.perf_counter() - started < 2
    assert len(seen) == 2


async def test_a_server_that_stays_busy_is_given_up() -> None:
    busy = [answer_of(429, kind="rate_limit_error", headers={"retry-after-ms": "1"}) for _ in range(3)]
    client, seen = client_of(*busy)
    async with client:
        with pytest.raises(ServerUnavailable, match="too few"):
            await client.judge(REQUEST)
    assert len(seen) == 3


async def test_a_refused_request_is_not_sent_again() -> None:
    client, seen = client_of(answer_of(400, kind="invalid_request_error"))
    async with client:
        with pytest.raises(RequestRefused, match="responses: too few"):
            await client.judge(REQUEST)
    assert len(seen) == 1


async def test_a_failed_server_is_not_asked_again() -> None:
    client, seen = client_of(httpx2.Response(500, content=b"<html>oops"))
    async with client:
        with pytest.raises(ServerUnavailable, match="oops"):
            await client.judge(REQUEST)
    assert len(seen) == 1


@pytest.mark.parametrize("error", [httpx2.ConnectError("refused"), httpx2.ReadError("reset")])
async def test_a_server_that_cannot_be_reached_is_an_error_of_ours(error: Exception) -> None:
    client, _ = client_of(error, max_attempts=1)
    async with client:
        with pytest.raises(ServerUnavailable, match="http://judge"):
            await client.judge(REQUEST)


@pytest.mark.parametrize("content", [b"<html>hello</html>", b'{"data": []}', b"[]", b"\xff", b""])
async def test_what_is_no_tirjudge_server_is_named_as_that(content: bytes) -> None:
    client, _ = client_of(*(httpx2.Response(200, content=content) for _ in range(4)))
    async with client:
        with pytest.raises(ServerUnavailable, match="http://judge is no tirjudge server"):
            await client.judge(REQUEST)
        with pytest.raises(ServerUnavailable, match="http://judge is no tirjudge server"):
            await client.models()
        with pytest.raises(ServerUnavailable, match="http://judge is no tirjudge server"):
            _ = [event async for event in client.stream(REQUEST)]


@pytest.mark.parametrize("block", [b"data: hello\n\n", b"event: judgment.completed\ndata: {}\n\n"])
async def test_a_stream_of_something_else_is_named_as_that(block: bytes) -> None:
    client, _ = client_of(streamed(block))
    async with client:
        with pytest.raises(ServerUnavailable, match="http://judge is no tirjudge server"):
            _ = [event async for event in client.stream(REQUEST)]


async def test_the_page_of_another_server_is_shown_in_one_line() -> None:
    client, _ = client_of(httpx2.Response(404, content=b"<html>\n<h1>File not found\n"))
    async with client:
        with pytest.raises(ServerUnavailable, match=r"http://judge/v1/models answered 404: <html> <h1>File not found$"):
            await client.models()


def test_what_is_no_url_is_an_error_of_ours() -> None:
    with pytest.raises(ServerUnavailable, match="http://judge:port is no URL"):
        JudgeClient("http://judge:port")


def streamed(*blocks: bytes) -> httpx2.Response:
    return httpx2.Response(200, content=b"".join(blocks), headers={"content-type": "text/event-stream"})


CREATED = JudgmentCreated(id="jdg_1", mode=Mode.PAIRWISE, model="judge")


async def test_a_stream_ends_with_the_judgment() -> None:
    client, _ = client_of(streamed(encode_event(CREATED), b": heartbeat\n\n", encode_event(JUDGMENT)))
    async with client:
        assert [event async for event in client.stream(REQUEST)] == [CREATED, JUDGMENT]


@pytest.mark.parametrize(
    ("last", "error"),
    [
        (ErrorBody(error=Problem(message="no GPU", type="server_error")), ServerUnavailable),
        (ErrorBody(error=Problem(message="prompt: long", type="invalid_request_error")), RequestRefused),
        (CREATED, ServerUnavailable),
    ],
)
async def test_a_stream_without_a_judgment_is_an_error(
    last: ErrorBody | JudgmentCreated, error: type[Exception]
) -> None:
    client, _ = client_of(streamed(encode_event(CREATED), encode_event(last)))
    async with client:
        with pytest.raises(error):
            _ = [event async for event in client.stream(REQUEST)]

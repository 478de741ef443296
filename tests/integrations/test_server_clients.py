"""Both clients against a server on a socket: every method, and the server's error codes."""

from __future__ import annotations

import asyncio
import socket
import traceback

import pytest

from tests.integrations.conftest import Serve
from tests.judgments import build_request
from tirjudge.client import AsyncClient, Client, RequestRefused, ServerUnavailable
from tirjudge.errors import DeadlineExceeded
from tirjudge.http.exchange import ServerNotListening
from tirjudge.http.protocol import JudgmentCreated, JudgmentTurn, Problem
from tirjudge.http.retry_events import on_retry
from tirjudge.http.rewards import RerankRequest, RewardRequest
from tirjudge.types import Judgment, Mode

PAIR = build_request("Which is longer?", ["one", "three"], tools="off")
ONE = build_request("What is 2 + 2?", ["4"], mode=Mode.POINTWISE, tools="off")
PREFERENCE, PROBABILITIES = "<preference>A</preference>", {"A": 0.8, "B": 0.2}


def test_every_method_of_the_client_works(serve: Serve) -> None:
    with serve("<score>9</score>") as served, Client(served.url) as client:
        assert client.judge(ONE).verdict.scores == [pytest.approx(9, abs=0.01)]
        events = list(client.stream(ONE.model_copy(update={"seed": 1})))
        assert [type(event) for event in events] == [JudgmentCreated, JudgmentTurn, Judgment]
        rewards = client.reward(RewardRequest(prompt="p", responses=["a", "b"], tools="off"))
        assert [reward.status for reward in rewards.data[0].rewards] == ["scored", "scored"]
        assert client.models()[0].id == "judge"


async def test_every_method_of_the_async_client_works(serve: Serve) -> None:
    with serve(PREFERENCE, label_probs=PROBABILITIES) as served:
        async with AsyncClient(served.url) as client:
            assert (await client.judge(PAIR)).verdict.status == "decided"
            events = [event async for event in client.stream(PAIR.model_copy(update={"seed": 1}))]
            assert isinstance(events[-1], Judgment)
            ranked = await client.rerank(
                RerankRequest(prompt="p", responses=["a", "b"], method="all_pairs", tools="off")
            )
            assert {result.index for result in ranked.results} == {0, 1}
            assert (await client.models())[0].id == "judge"


def test_an_invalid_request_of_a_batch_does_not_affect_the_others(serve: Serve) -> None:
    with serve("<score>9</score>") as served, Client(served.url) as client:
        judgment, problem = client.judge_batch([ONE, ONE.model_copy(update={"model": "unknown"})])
    assert isinstance(judgment, Judgment)
    assert isinstance(problem, Problem)
    assert problem.code == "model_not_found"


async def test_concurrent_requests_are_retried_until_a_busy_server_answers_all(serve: Serve) -> None:
    with serve("<score>9</score>", max_concurrency=2, max_queue=2) as served:
        async with AsyncClient(served.url, max_attempts=100, max_wait_s=0.2) as client:
            requests = [ONE.model_copy(update={"seed": seed}) for seed in range(40)]
            judgments = await asyncio.gather(*[client.judge(request) for request in requests])
    assert len({judgment.id for judgment in judgments}) == 40


def test_a_missed_deadline_raises_an_error(serve: Serve) -> None:
    with serve("<score>9</score>", delay_s=30) as served, Client(served.url) as client, pytest.raises(DeadlineExceeded):
        client.judge(ONE, deadline_s=0.5)


@pytest.mark.parametrize("connect_retry_s", [0.0, 0.1])
def test_a_refused_connection_is_an_exception_of_its_own(connect_retry_s: float) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # no process listens on this port
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        pauses: list[float] = []
        refused = pytest.raises(ServerNotListening, match=f"{url} cannot be reached: connection refused")
        with (
            Client(url, max_attempts=1, connect_retry_s=connect_retry_s) as client,
            on_retry(pauses.append),
            refused as raised,
        ):
            client.judge(ONE)
    assert "httpx" not in "".join(traceback.format_exception(raised.value)).replace(__file__, "")
    assert bool(pauses) == bool(connect_retry_s)
    assert sum(pauses) <= connect_retry_s


async def test_a_server_that_starts_again_within_the_retry_time_is_found() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        servers: list[asyncio.Task[asyncio.Server]] = []

        def start(pause_s: float) -> None:
            """Listen at the first retry."""
            if not servers:
                servers.append(asyncio.create_task(asyncio.start_server(answer, sock=bound)))

        async with AsyncClient(f"http://127.0.0.1:{bound.getsockname()[1]}", connect_retry_s=30.0) as client:
            with on_retry(start), pytest.raises(ServerUnavailable, match="answered 404"):
                await client.models()
        (server,) = servers
        (await server).close()


def test_an_unknown_model_is_refused_with_its_code(serve: Serve) -> None:
    with serve("<score>9</score>") as served, Client(served.url) as client, pytest.raises(RequestRefused) as refused:
        client.judge(ONE.model_copy(update={"model": "unknown"}))
    assert refused.value.problem.code == "model_not_found"


def test_a_failing_engine_is_reported_with_its_code(serve: Serve) -> None:
    with serve([]) as served, Client(served.url, max_attempts=1) as client, pytest.raises(ServerUnavailable) as failed:
        client.judge(ONE)
    assert failed.value.problem is not None
    assert failed.value.problem.code == "engine_unavailable"

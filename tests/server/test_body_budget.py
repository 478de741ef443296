"""The total size of all bodies in memory is limited, and a slow body does not block others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from tests.waiting import until
from tirjudge_web.body import read_body
from tirjudge_web.body_budget import BodyBudget
from tirjudge_web.errors import answer_errors


class Held:
    """A server that reads a body and responds once `answering` is set."""

    def __init__(self) -> None:
        self.num_read = 0
        self.answering = asyncio.Event()

    async def read(self, request: Request) -> PlainTextResponse:
        body = await read_body(request, max_bytes=1000)
        self.num_read += 1
        await self.answering.wait()
        return PlainTextResponse(str(len(body)))


@pytest.fixture
async def held() -> Held:
    return Held()


@pytest.fixture
async def client(held: Held) -> AsyncIterator[httpx2.AsyncClient]:
    app = Starlette(routes=[Route("/", held.read, methods=["POST"])])
    app.add_middleware(BodyBudget, max_bytes=1000)
    answer_errors(app)
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client


async def slow(begun: asyncio.Event, gate: asyncio.Event) -> AsyncIterator[bytes]:
    yield b"x" * 900
    begun.set()
    await gate.wait()
    yield b"x"


async def test_slow_body_is_dropped_to_make_room_for_other_bodies(client: httpx2.AsyncClient, held: Held) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()
    first = asyncio.create_task(client.post("/", content=slow(begun, gate)))
    await until(begun.is_set)
    held.answering.set()
    answers = [await client.post("/", content=b"y" * 800) for _ in range(3)]
    assert [answer.text for answer in answers] == ["800"] * 3
    refused = await first
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "too_many_bytes")
    assert refused.headers["retry-after"] == "1"


async def test_bodies_count_until_their_requests_are_answered(client: httpx2.AsyncClient, held: Held) -> None:
    working = asyncio.create_task(client.post("/", content=b"x" * 900))
    await until(lambda: held.num_read == 1)
    refused = await client.post("/", content=b"y" * 200)
    assert refused.status_code == 503
    held.answering.set()
    assert (await working).text == "900"
    assert (await client.post("/", content=b"y" * 200)).text == "200"


async def test_refused_body_frees_its_budget(client: httpx2.AsyncClient, held: Held) -> None:
    held.answering.set()

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 100

    assert (await client.post("/", content=endless())).status_code in (413, 503)
    assert (await client.post("/", content=b"y" * 1000)).text == "1000"

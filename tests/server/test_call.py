"""Headers of a request: deadline and idempotency key."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tirjudge_server.app import create_app


@pytest.mark.parametrize("header", ["0", "-5", "1.5", "soon", "", "9" * 10, "٣"])
async def test_malformed_deadline_header_is_refused(client: Any, pairwise: dict[str, Any], header: str) -> None:
    response = await client.post("/v1/judge", json=pairwise, headers={"x-judge-deadline-ms": header.encode()})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "x-judge-deadline-ms"


@pytest.mark.parametrize("key", ["", "k" * 256])
async def test_empty_or_too_long_idempotency_key_is_refused(client: Any, pairwise: dict[str, Any], key: str) -> None:
    response = await client.post("/v1/judge", json=pairwise, headers={"idempotency-key": key})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "idempotency-key"


async def test_smallest_deadline_applies(make_service, connect, pairwise) -> None:
    service = make_service(["<preference>A</preference>"] * 9, max_deadline_s=50.0)
    seen: list[float] = []
    judge = service.judge.judge

    async def spy(request, *, deadline, **kw):
        seen.append(round(deadline.ends_at - asyncio.get_running_loop().time()))
        return await judge(request, deadline=deadline, **kw)

    service.judge = Wrapped(service.judge, judge=spy)
    async with connect(create_app(service)) as client:
        for body, headers in [
            ({}, {}),
            ({"deadline_s": 20}, {}),
            ({"deadline_s": 20}, {"x-judge-deadline-ms": "10000"}),
            ({"deadline_s": 5}, {"x-judge-deadline-ms": "10000"}),
            ({"deadline_s": 999}, {}),
        ]:
            assert (await client.post("/v1/judge", json=pairwise | body, headers=headers)).status_code == 200
    assert seen == [50, 20, 10, 5, 50]


class Wrapped:
    """A proxy of an object with some attributes replaced."""

    def __init__(self, other: Any, **given: Any) -> None:
        self.__dict__.update(given)
        self._other = other

    def __getattr__(self, name: str) -> Any:
        return getattr(self._other, name)

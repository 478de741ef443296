"""SIGKILL of a server under load, and a restart: no returned judgment is lost, and no key is judged twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.servers import ServerProcess
from tirjudge.types import Judgment
from tirjudge_server.records.audit import verify
from tirjudge_server.records.database import open_database

pytestmark = pytest.mark.slow

NUM_CALLERS = 16


def body_of(number: int) -> dict[str, Any]:
    return {"mode": "pairwise", "prompt": f"Question {number}?", "responses": ["a", "b"], "tools": "off"}


async def ask(client: httpx2.AsyncClient, number: int) -> Judgment:
    response = await client.post("/v1/judge", json=body_of(number), headers={"idempotency-key": f"key {number}"})
    assert response.status_code == 200, response.text
    return Judgment.model_validate_json(response.content)


async def ask_until_killed(server: ServerProcess, *, num_before_kill: int) -> tuple[dict[int, str], int]:
    """Return number -> id of the judgments that were returned, and the number of requests that were sent."""
    returned: dict[int, str] = {}
    num_asked = 0

    async def caller(client: httpx2.AsyncClient) -> None:
        nonlocal num_asked
        while True:
            number, num_asked = num_asked, num_asked + 1
            try:
                returned[number] = (await ask(client, number)).id
            except httpx2.HTTPError:
                return
            if len(returned) == num_before_kill:
                server.process.kill()

    limits = httpx2.Limits(max_connections=NUM_CALLERS)
    async with httpx2.AsyncClient(base_url=server.url, limits=limits, timeout=60) as client:
        await asyncio.gather(*(caller(client) for _ in range(NUM_CALLERS)))
    server.kill()
    return returned, num_asked


@pytest.mark.parametrize("num_before_kill", [5, 60])
async def test_a_killed_server_loses_no_judgment_and_judges_no_key_twice(
    start: Callable[..., ServerProcess], database_url: str, random_checkpoint: Path, num_before_kill: int
) -> None:
    options = ["--model", str(random_checkpoint), "--records", database_url, "--files", "none"]
    first = start("serve", *options)
    returned, num_asked = await ask_until_killed(first, num_before_kill=num_before_kill)
    assert len(returned) >= num_before_kill
    server = start("serve", *options)
    try:
        async with httpx2.AsyncClient(base_url=server.url, timeout=60) as client:
            for judgment_id in returned.values():
                record = (await client.get(f"/v1/judgments/{judgment_id}")).json()
                assert (record["id"], record["intact"]) == (judgment_id, True)
            # Clients send all requests again: those without an answer, and those that were answered.
            again = {number: (await ask(client, number)).id for number in range(num_asked)}
    finally:
        server.kill()
    assert {number: again[number] for number in returned} == returned
    assert len(set(again.values())) == num_asked
    database = open_database(database_url)
    report = verify(database)
    database.close()
    assert (report.broken, report.length) == (None, num_asked)

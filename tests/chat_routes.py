"""Every route of a judge server that has a real chat endpoint as its model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.server.bodies import BODIES
from tirjudge.model import bundled_checkpoint
from tirjudge.types import Judgment
from tirjudge_server.call import DEADLINE_HEADER
from tirjudge_server.serving import open_application
from tirjudge_server.settings import ServerSettings

REFUSED = {"completions": 400, "batches": 404, "system one": 400}
"""Bodies that every server refuses: without a judge prompt, with an unknown file, with a number as a description."""

AT_A_TIME = 8
"""Number of concurrent requests: an endpoint that batches them needs little more time than for one."""

ITEMS = [
    {"mode": "pairwise", "prompt": "Write one sentence. Use no commas.", "responses": ["Yes, it rains.", "It rains."]},
    {"mode": "pairwise", "prompt": "Write exactly 3 words.", "responses": ["one two three", "one two"]},
    {"mode": "pairwise", "prompt": "Write at least 5 words.", "responses": ["no", "one two three four five six"]},
    {"mode": "pointwise", "prompt": "Write at least 5 words.", "responses": ["no"], "tools": "off"},
]
"""Requests for which the bundled judge writes a program, and one without tools. The output of a program is a user message,
as for every chat endpoint. The bundled judge was not trained on that, so its verdict after a program can be missing."""


@asynccontextmanager
async def judge_server_with(folder: Path, **settings: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a judge server with these settings, whose prompts are those that the bundled judge was trained on.

    Its requests have the server's longest deadline: some routes have one of seconds, which a loaded machine may exceed.
    """
    places = {"records": str(folder / "records.db"), "files": str(folder / "files")}
    given = ServerSettings(
        **places, profile=bundled_checkpoint(), allow_unsafe_sandbox=True, allowed_host=["test"], slots=1, **settings
    )
    async with open_application(given) as opened:
        transport = httpx2.ASGITransport(app=opened.app, raise_app_exceptions=False)
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://test", headers={DEADLINE_HEADER: "600000"}, timeout=600
        ) as client:
            yield client


async def unexpected_answers(client: httpx2.AsyncClient, *, model: str) -> dict[str, str]:
    """Post the body of every route, some at a time; return the answers with an unexpected status, by the name of the body."""
    turn = asyncio.Semaphore(AT_A_TIME)

    async def answer_to(path: str, body: Any) -> httpx2.Response:
        async with turn:
            return await client.post(path, json=_asking(body, model))

    responses = await asyncio.gather(*(answer_to(path, body) for path, body in BODIES.values()))
    return {
        name: f"{response.status_code}: {response.text[:300]}"
        for name, response in zip(BODIES, responses, strict=True)
        if response.status_code != REFUSED.get(name, 200)
    }


async def judgments_of_items(client: httpx2.AsyncClient) -> list[Judgment]:
    """Judge `ITEMS`."""
    answers = [await client.post("/v1/judge", json=body) for body in ITEMS]
    return [Judgment.model_validate(answer.raise_for_status().json()) for answer in answers]


def _asking(body: Any, model: str) -> Any:
    """Return a body whose fields `model` have that name instead of `judge`."""
    if isinstance(body, dict):
        return {
            name: model if (name, value) == ("model", "judge") else _asking(value, model)
            for name, value in body.items()
        }
    return [_asking(part, model) for part in body] if isinstance(body, list) else body

"""Log lines as JSON: their fields, and texts that they must not contain."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.judge import Judge
from tirjudge.tools.python import PythonTool
from tirjudge_server.app import create_app
from tirjudge_server.telemetry.logs import FIELDS, JsonLines
from tirjudge_web.process import is_ours_or_a_warning

A = "<preference>A</preference>"
OWN = {"time", "level", "logger", "message"}
SECRET = "swordfish"
"""Contained in all texts of requests and of the model in these tests."""

Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """Returns a function that parses all lines logged so far."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.setLevel(level)
    root.removeHandler(handler)


def ours(lines: list[dict[str, Any]], level: str = "info") -> list[dict[str, Any]]:
    return [line for line in lines if line["logger"].startswith("tirjudge") and line["level"] == level]


async def test_a_judgment_and_its_request_are_logged_in_one_line_each(
    make_service, connect: Callable[[FastAPI], httpx2.AsyncClient], pairwise, lines: Lines
) -> None:
    async with connect(create_app(make_service([A]))) as client:
        answer = await client.post("/v1/judge", json=pairwise, headers={"x-request-id": "mine"})
    judged, answered = ours(lines())
    known = {"request_id": "mine", "judgment_id": answer.json()["id"]}
    assert judged.items() >= (known | {"dialect": "judge", "mode": "pairwise", "status": "decided"}).items()
    assert answered.items() >= (known | {"method": "POST", "route": "/v1/judge", "http_status": 200}).items()
    assert judged["seconds"] >= 0
    assert answered["seconds"] >= judged["seconds"]
    assert set(judged) | set(answered) <= OWN | set(FIELDS)


async def test_a_failure_is_logged_with_the_id_of_its_judgment(make_service, connect, pairwise, lines: Lines) -> None:
    async with connect(create_app(make_service([]))) as client:
        await client.post("/v1/judge", json=pairwise, headers={"x-request-id": "mine"})
    (cause,) = ours(lines(), "error")
    judged, answered = ours(lines())
    assert judged.items() >= {"status": "failed", "code": "engine_unavailable"}.items()
    assert cause["judgment_id"] == judged["judgment_id"]
    assert {cause["request_id"], judged["request_id"], answered["request_id"]} == {"mine"}


async def test_health_checks_are_logged_at_debug_only(make_service, connect, lines: Lines) -> None:
    async with connect(create_app(make_service([]))) as client:
        for path in ("/health", "/ready", "/metrics"):
            await client.get(path)
    assert ours(lines()) == []
    assert [line["route"] for line in ours(lines(), "debug") if "route" in line] == ["/health", "/ready", "/metrics"]


async def test_concurrent_requests_keep_their_ids(make_service, connect, pairwise, lines: Lines) -> None:
    async with connect(create_app(make_service([A] * 8))) as client:
        await asyncio.gather(
            *(
                client.post("/v1/judge", json=pairwise | {"seed": n}, headers={"x-request-id": f"r{n}"})
                for n in range(8)
            )
        )
    by_request: dict[str, set[str]] = {}
    for line in ours(lines()):
        by_request.setdefault(line["request_id"], set()).add(line["judgment_id"])
    assert len(by_request) == len(set().union(*by_request.values())) == 8


class Broken(ScriptedEngine):
    async def generate(self, *arguments: Any, **more: Any) -> Any:
        raise ZeroDivisionError


async def test_lines_contain_no_texts_of_requests_or_the_model(make_service, connect, pairwise, lines: Lines) -> None:
    asked = pairwise | {"prompt": f"{SECRET}?", "responses": [SECRET, "b"], "reference": SECRET, "tools": "auto"}
    program = f'```python\nraise SystemExit("{SECRET}")\n```\n```output'
    service = make_service([program, f"{SECRET} {A}"])
    service.judge = Judge(
        engine=ScriptedEngine([program, f"{SECRET} {A}"], label_probs={"A": 1.0}),
        tools=[PythonTool(service.judge.sandbox)],
    )
    async with connect(create_app(service)) as client:
        assert (await client.post("/v1/judge", json=asked)).status_code == 200
        assert (await client.post("/v1/judge", json=asked | {"seed": 1})).status_code == 503
        assert (await client.post("/v1/judge", json=asked | {"mode": SECRET})).status_code == 400
        assert (await client.post("/v1/judge", json=asked | {"model": SECRET})).status_code == 404
        service.judge = Judge(engine=Broken(()), tools=[PythonTool(service.judge.sandbox)])
        bearer = {"authorization": f"Bearer {SECRET}"}
        assert (await client.post("/v1/judge", json=asked | {"seed": 2}, headers=bearer)).status_code == 500
        assert (await client.get(f"/{SECRET}?key={SECRET}")).status_code == 404
    # The HTTP client of this test logs its requests; only lines of the server count.
    said = [line for line in lines() if not line["logger"].startswith(("httpx2", "httpcore2"))]
    assert len(ours(said)) > 6
    assert SECRET not in json.dumps(said)


def test_a_message_with_line_breaks_is_logged_in_one_line() -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError as error:
        record = logging.LogRecord("n", logging.ERROR, "f", 1, "a\nb", (), (type(error), error, error.__traceback__))
    line = JsonLines().format(record)
    assert "\n" not in line
    read = json.loads(line)
    assert read["message"] == "a\nb"
    assert read["traceback"].endswith("builtins.ValueError")  # without the message, which may quote a caller


@pytest.mark.parametrize(
    ("logger", "level", "is_logged"),
    [
        ("alembic.runtime.migration", logging.INFO, False),
        ("uvicorn.error", logging.INFO, False),
        ("uvicorn.error", logging.WARNING, True),
        ("tirjudge_server.telemetry.logs", logging.INFO, True),
        ("tirjudge.engines.fleet", logging.INFO, True),
    ],
)
def test_libraries_log_only_warnings_and_errors(logger: str, level: int, is_logged: bool) -> None:
    record = logging.LogRecord(logger, level, __file__, 1, "text", None, None)
    assert is_ours_or_a_warning(record) is is_logged

"""Requests that bring stores of evidence to a server with registered stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.server.conftest import MakeService
from tirjudge_sandbox import SandboxPool
from tirjudge_server.app import create_app

pytest.importorskip("duckdb")

from tirjudge_evidence.functions import EvidenceSettings, functions_of, open_stores

READS = "```python\nprint(sql('mine', 'SELECT a FROM t'))\n```\n```output"


@asynccontextmanager
async def serving(
    make_service: MakeService, connect: Any, pool: SandboxPool, tmp_path: Path
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a server with the registered store `bank`."""
    (tmp_path / "t.csv").write_text("a\n1\n")
    settings = EvidenceSettings.model_validate({"store": [{"name": "bank", "kind": "table", "files": ["t.csv"]}]})
    async with open_stores(settings, folder=tmp_path) as stores:
        service = make_service([READS, "<score>7</score>"], functions=functions_of(stores), sandbox=pool)
        async with connect(create_app(service, max_body_bytes=100_000)) as connected:
            yield connected


def request(name: str, **fields: Any) -> dict[str, Any]:
    store = {"name": name, "kind": "table", "files": [{"name": "t", "format": "csv", "text": "a\n2\n"}], **fields}
    return {"mode": "pointwise", "prompt": "p", "responses": ["r"], "evidence": [store]}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (request("bank"), "evidence: bank: a registered store has this name; give it another name"),
        (
            request("mine", valid_from="2024-02-01", valid_until="2024-01-31"),
            "evidence: mine: valid_from: 2024-02-01 is after valid_until: 2024-01-31",
        ),
    ],
)
async def test_a_store_that_no_program_can_use_is_refused(
    make_service: MakeService,
    connect: Any,
    pool: SandboxPool,
    tmp_path: Path,
    body: dict[str, Any],
    problem: str,
    stream: bool,
) -> None:
    async with serving(make_service, connect, pool, tmp_path) as client:
        response = await client.post("/v1/judge", json=body | {"stream": stream})
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["param"], error["code"], error["message"]) == ("evidence", "evidence_refused", problem)


async def test_a_store_with_a_name_of_its_own_is_queried(
    make_service: MakeService, connect: Any, pool: SandboxPool, tmp_path: Path
) -> None:
    body = request("mine", valid_from="2024-01-01", valid_until="2024-01-01")
    async with serving(make_service, connect, pool, tmp_path) as client:
        response = await client.post("/v1/judge", json=body)
    assert response.status_code == 200, response.text
    assert response.json()["rollouts"][0]["turns"][0]["output"] == "[{'a': 2}]"

"""The server matches its OpenAPI schema for requests that schemathesis generates."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.server.bodies import BODIES, openapi
from tests.server.speaking import service_of
from tests.tiers import sampled
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.judge import Judge
from tirjudge.tools.python import PythonTool
from tirjudge.types import Completion, Sampling
from tirjudge_sandbox import SandboxPool
from tirjudge_server.app import create_app
from tirjudge_server.records.record import versions_of
from tirjudge_server.records.store import open_records
from tirjudge_server.service import JudgeService

WHAT_NO_SCHEMA_SAYS = {
    "POST /get_reward": "as many labels as queries",
    "POST /score": "as many texts on both sides, or one on the first; and both sides under names that belong together",
    "POST /v1/score": "the same",
    "POST /v1/reward": "one item or many, and what the mode wants of each",
    "POST /v1/rerank": "tools that must be used, and none that may be",
    "GET /v1/batches": "an id of the list in `after`",
    "GET /v1/files": "the same",
    "GET /v1/evals": "the same",
    "POST /v1/evals": "schemas of rows, models that this server has, templates and formulas",
    "GET /v1/evals/{eval_id}/runs": "an id of the list in `after`",
    "GET /v1/evals/{eval_id}/runs/{run_id}/output_items": "the same",
    "POST /v1/evals/{eval_id}/runs": "files and models that this server has, rows that fit the eval, and no tools",
    "POST /v1/batches": "endpoints that this server has, windows, lifetimes",
    "POST /v1/files": "a form that says that it is one in its header",
    "POST /v1/chat/completions": "a judge's prompt in the messages",
    "POST /v1/completions": "a judge's prompt",
    "POST /v1/decisions": "values and names that are unique, scales in order",
    "POST /v1/fine_tuning/alpha/graders/run": "templates and formulas, and names that they may use",
    "POST /v1/fine_tuning/alpha/graders/validate": "the same",
}
"""Operation -> rules that JSON Schema cannot express. A body that matches the schema may get a 400 that names the field, so
`positive_data_acceptance` is not checked for these operations."""

CONFIG = """
# One body may hold 4,096 items. That is 5 s of judgments on an idle core, and more beside other tests.
request-timeout = 120
# A generated deadline may be too short for a judgment; the 504 is documented.
[checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 504]
# A body that is too large gets a 413 instead of the error for its content.
negative_data_rejection.expected-statuses = [400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 428, 429]
""" + "\n".join(
    f"""
[[operations]]
include-name = "{name}"
checks.positive_data_acceptance.enabled = false"""
    for name in WHAT_NO_SCHEMA_SAYS
)


class Engine(ScriptedEngine):
    """Returns a verdict of the requested kind immediately, and does not record its calls."""

    def __init__(self) -> None:
        super().__init__(_verdict, label_probs={"A": 0.8, "B": 0.2, "7": 0.9})

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        self.calls.clear()
        return await super().generate(token_ids, sampling=sampling, session=session)


def _verdict(sequence: str) -> str:
    is_score = re.findall("<(score|preference)>", sequence)[-1:] == ["score"]
    return "<score>7</score>" if is_score else "<preference>A</preference>"


@pytest.fixture
async def url(pool: SandboxPool, tmp_path: Path, listen: Callable[..., Any]) -> AsyncIterator[str]:
    judge = Judge(engine=Engine(), tools=[PythonTool(pool)])
    versions = versions_of(judge, fingerprint="scripted", isolation=pool.level)
    async with open_records(str(tmp_path / "records.db"), versions=versions) as records:
        service = JudgeService(judge, records=records, isolation=pool.level)
        app = create_app(service, records=records, files=tmp_path / "files")
        async with app.router.lifespan_context(app), listen(app) as where:
            await service.readiness.wait()
            yield where


async def contradictions(url: str, *, folder: Path, options: Sequence[str]) -> tuple[int, str]:
    """Run schemathesis; return the number of requests, and its output if a response contradicts the schema, or ""."""
    config, report = folder / "schemathesis.toml", folder / "report.json"
    config.write_text(CONFIG)
    command = ["--no-color", "--config-file", str(config), "run", f"{url}/openapi.json"]
    command += ["--continue-on-failure", "--seed", "1", "--report-json-path", str(report), *options]
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()", *command),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=folder,
    )
    said, _ = await running.communicate()
    assert report.exists(), said.decode()
    result = json.loads(report.read_text())
    assert result["operations"]["tested"] == result["operations"]["total"], said.decode()
    return result["test_cases"]["generated"], "" if running.returncode == 0 else said.decode()


@pytest.mark.parametrize("name", sampled(BODIES))
async def test_statuses_of_responses_are_declared(
    connect: Callable[[Any], httpx2.AsyncClient], tmp_path: Path, name: str
) -> None:
    """The quick version of the test below: a valid and an invalid body for each endpoint."""
    path, body = BODIES[name]
    app = create_app(service_of(_verdict), files=tmp_path)
    declared = openapi()["paths"][path.partition("?")[0]]["post"]["responses"]
    async with connect(app) as client:
        valid, invalid = await client.post(path, json=body), await client.post(path, content=b"{")
    assert str(valid.status_code) in declared, valid.text
    assert valid.status_code < 500
    assert invalid.status_code == 400
    assert "400" in declared
    assert set(invalid.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.slow
async def test_server_matches_its_openapi_schema_for_five_thousand_requests(url: str, tmp_path: Path) -> None:
    num_cases, found = await contradictions(url, folder=tmp_path, options=["--max-examples", "10"])
    assert not found, found
    assert num_cases >= 5000


@pytest.mark.parametrize(
    ("path", "methods"), [("/health", "GET, HEAD"), ("/v1/judge", "POST"), ("/v1/files", "GET, POST")]
)
async def test_refused_method_gets_allow_header(
    make_service: Callable[..., JudgeService],
    connect: Callable[[Any], httpx2.AsyncClient],
    tmp_path: Path,
    path: str,
    methods: str,
) -> None:
    async with connect(create_app(make_service([]), files=tmp_path)) as client:
        answer = await client.request("TRACE", path)
    assert (answer.status_code, answer.headers["allow"]) == (405, methods)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [("votes", True), ("votes", "3"), ("temperature", False), ("deadline_s", True), ("stream", 1), ("votes", 2.5)],
)
async def test_wrong_number_type_is_refused(
    client: httpx2.AsyncClient, pairwise: dict[str, Any], field: str, wrong: object
) -> None:
    answer = await client.post("/v1/judge", json=pairwise | {field: wrong})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == field


async def test_integer_with_decimal_point_is_accepted(client: httpx2.AsyncClient, pairwise: dict[str, Any]) -> None:
    answer = await client.post("/v1/judge", content=json.dumps(pairwise | {"votes": 1.0, "seed": 7.0}))
    assert answer.status_code == 200


async def test_operations_with_keys_declare_their_errors(
    make_service: Callable[..., JudgeService], tmp_path: Path
) -> None:
    paths = create_app(make_service([]), files=tmp_path).openapi()["paths"]
    guarded = [
        op for path, ops in paths.items() for op in ops.values() if path not in ("/health", "/ready", "/metrics")
    ]
    assert guarded
    for operation in guarded:
        assert {"200", "400", "401", "403", "404", "429", "503"} <= set(operation["responses"])
        assert "HTTPValidationError" not in str(operation)


async def test_file_expiry_must_be_anchored_at_creation(
    make_service: Callable[..., JudgeService], connect: Callable[[Any], httpx2.AsyncClient], tmp_path: Path
) -> None:
    form = {"purpose": "batch", "expires_after[anchor]": "last_active_at", "expires_after[seconds]": "3600"}
    async with connect(create_app(make_service([]), files=tmp_path)) as client:
        answer = await client.post("/v1/files", data=form, files={"file": ("a.jsonl", b"{}")})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "expires_after.anchor"

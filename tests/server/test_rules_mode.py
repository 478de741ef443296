"""Judging by rules over HTTP: the mode `rules` beside a model, and a server without a model behind every route."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.server.conftest import MakeService
from tirjudge.judge import Judge
from tirjudge.opening import open_judge
from tirjudge.types import JudgeRequest, Mode
from tirjudge_server.app import create_app
from tirjudge_server.dialects import DIALECTS
from tirjudge_server.readiness import Readiness
from tirjudge_server.records.record import versions_of
from tirjudge_server.records.store import open_records
from tirjudge_server.service import JudgeService

pytest.importorskip("duckdb")

APPLICANTS = {f"A-{number}": (3000 + 100 * number, 400 * number) for number in range(20)}
"""Applicant -> income and debt."""

RULES = """
[[store]]
name = "bank"
kind = "table"
files = ["applicants.csv"]

[[check]]
name = "known"
kind = "sql"
store = "bank"
query = "SELECT 1 FROM applicants WHERE id = $id"
params = {id = "/applicant"}
expect = "rows"

[[check]]
name = "debt"
kind = "sql"
store = "bank"
query = "SELECT * FROM applicants WHERE id = $id AND $decision = 'approve' AND debt > 0.4 * income"
params = {id = "/applicant", decision = "/decision"}
weight = 2

[[check]]
name = "form"
kind = "json_schema"
schema = {required = ["reason"], properties = {decision = {enum = ["approve", "reject"]}}}
gate = {cap = 4}
"""


def text(applicant: str, decision: str, **fields: Any) -> str:
    return json.dumps({"applicant": applicant, "decision": decision, **fields})


GOOD = text("A-1", "approve", reason="little debt")
BAD = text("A-19", "approve", reason="why not")  # debt 7600, income 4900
GOOD_SCORE, BAD_SCORE = 10.0, 5.5  # 1 + 9 x 2/4


@pytest.fixture
async def rules(tmp_path: Path) -> AsyncIterator[Judge]:
    rows = [f"{name},{income},{debt}" for name, (income, debt) in APPLICANTS.items()]
    (tmp_path / "applicants.csv").write_text("\n".join(["id,income,debt", *rows]))
    (tmp_path / "loans.toml").write_text(RULES)
    async with open_judge(f"rules:{tmp_path / 'loans.toml'}", tools=[]) as judge:
        yield judge


@pytest.fixture
async def client(rules: Judge, connect: Any) -> AsyncIterator[httpx2.AsyncClient]:
    app = create_app(JudgeService(rules), max_body_bytes=100_000, names=tuple(DIALECTS))
    async with connect(app) as connected:
        yield connected


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["pairwise", "listwise", "pointwise"])
async def test_a_judgment_without_a_model_is_recorded(rules: Judge, connect: Any, tmp_path: Path, mode: str) -> None:
    versions = versions_of(rules, fingerprint="rules", isolation=None)
    async with open_records(str(tmp_path / "records.db"), versions=versions) as records:
        app = create_app(JudgeService(rules, records=records), records=records)
        async with connect(app) as client:
            asked = {"mode": mode, "prompt": "p", "responses": [BAD, GOOD]}
            answer = await client.post("/v1/judge", json=asked)
            assert answer.status_code == 200, answer.text
            judgment = answer.json()
            assert (judgment["rollouts"], judgment["verdict"]["best"]) == ([], 1)
            found = await client.get(f"/v1/judgments/{judgment['id']}")
    assert found.json()["judgment"]["verdict"] == judgment["verdict"]


async def post(client: httpx2.AsyncClient, path: str, body: Any) -> Any:
    response = await client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def request(mode: str, *responses: str, **fields: Any) -> dict[str, Any]:
    return {"mode": mode, "prompt": "May they get a loan?", "responses": list(responses), **fields}


@pytest.mark.parametrize("mode", ["rules", "pointwise", "pairwise", "listwise"])
async def test_server_of_rules_answers_every_mode(client: httpx2.AsyncClient, mode: str) -> None:
    answer = await post(client, "/v1/judge", request(mode, BAD, GOOD))
    assert (answer["verdict"]["best"], answer["verdict"]["basis"], answer["model"]) == (1, "checked", "rules-loans")
    assert answer["verdict"]["scores"] == ([BAD_SCORE, GOOD_SCORE] if mode in ("rules", "pointwise") else None)
    [failed] = [each for each in answer["checks"][0] if not each["passed"]]
    assert (failed["check"], failed["reasons"][0]["row"]["id"]) == ("debt", "A-19")


@pytest.mark.slow
async def test_server_of_rules_lists_its_model_and_refuses_chats(client: httpx2.AsyncClient) -> None:
    models = (await client.get("/v1/models")).json()
    assert models["data"][0]["id"] == "rules-loans"
    assert (await client.get("/health")).status_code == 200
    body = {"model": "rules-loans", "messages": [{"role": "user", "content": "Hello!"}]}
    assert (await client.post("/v1/chat/completions", json=body)).status_code == 400


CHAT = "<|im_start|>user\nMay they get a loan?<|im_end|>\n<|im_start|>assistant\n{}<|im_end|>\n"


@pytest.mark.slow
async def test_openrlhf_gets_the_score(client: httpx2.AsyncClient) -> None:
    prompt = CHAT.partition("{}")[0]
    queries = [CHAT.format(answer) for answer in (GOOD, BAD)]
    answer = await post(client, "/get_reward", {"query": queries, "prompts": [prompt] * 2, "labels": ["", ""]})
    assert answer["scores"] == [1.0, 0.5]
    assert answer["extra_logs"]["judge_failed"] == [0.0, 0.0]


@pytest.mark.slow
async def test_vllm_scoring_gets_the_score(client: httpx2.AsyncClient) -> None:
    answer = await post(client, "/v1/score", {"text_1": "May they get a loan?", "text_2": [GOOD, BAD]})
    assert [row["score"] for row in answer["data"]] == [1.0, 0.5]


@pytest.mark.slow
async def test_slime_and_llamafactory_and_rewardanything_get_the_score(client: httpx2.AsyncClient) -> None:
    assert await post(client, "/rm", {"prompt": "May they get a loan?", "response": GOOD}) == 1.0
    answer = await post(client, "/v1/score/evaluation", {"messages": [CHAT.format(GOOD), CHAT.format(BAD)]})
    assert answer["scores"] == [1.0, 0.5]
    body = {"principle": "Be right.", "prompt": "Loan?", "responses": {"good": GOOD, "bad": BAD}}
    found = (await post(client, "/api/rewardanything", body))["results"]
    assert found == {"scores": {"good": 5.0, "bad": 3.0}, "best-to-worst": ["good", "bad"]}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["pointwise", "listwise", "all_pairs"])
async def test_rules_rerank(client: httpx2.AsyncClient, method: str) -> None:
    responses = [BAD, GOOD, text("A-99", "approve")]
    answer = await post(client, "/v1/rerank", {"prompt": "Loan?", "responses": responses, "method": method})
    assert [result["index"] for result in answer["results"]] == [1, 0, 2]


async def test_rules_mode_beside_a_model_asks_the_checks_alone(
    rules: Judge, make_service: MakeService, connect: Any
) -> None:
    service = make_service([])
    service.judge = Judge(engine=service.judge.engine, checks=rules.checks)
    async with connect(create_app(service, max_body_bytes=100_000)) as client:
        answer = await post(client, "/v1/judge", request("rules", GOOD))
    assert (answer["verdict"]["scores"], answer["rollouts"]) == ([GOOD_SCORE], [])


FORM = """
[[check]]
name = "form"
kind = "json_schema"
schema = {properties = {amount = {multipleOf = 0.01}, decision = {enum = ["approve", "reject"]}}}
gate = {cap = 3}
"""


@pytest.mark.parametrize(
    "response",
    [
        '{"amount": 0.001}',
        f'{{"decision": 1{"0" * 400}}}',
        '{"decision": 1e999}',
        r'{"decision": "\ud800"}',
        r'{"\ud800": 1e999}',
    ],
)
async def test_no_response_escapes_its_check(connect: Any, tmp_path: Path, response: str) -> None:
    (tmp_path / "form.toml").write_text(FORM)
    async with open_judge(f"rules:{tmp_path / 'form.toml'}", tools=[]) as judge:
        versions = versions_of(judge, fingerprint="rules", isolation=None)
        async with open_records(str(tmp_path / "records.db"), versions=versions) as records:
            app = create_app(JudgeService(judge, records=records), records=records, names=tuple(DIALECTS))
            async with connect(app) as client:
                requests = [request("rules", "{}"), request("rules", response)]
                results = (await post(client, "/v1/judge/batch", {"requests": requests}))["data"]
                good, bad = (result["judgment"] for result in results)
                found = await client.get(f"/v1/judgments/{bad['id']}")
                reward = await post(client, "/rm", {"prompt": "Loan?", "response": response})
    assert (good["verdict"]["scores"], bad["verdict"]["scores"], reward) == ([10.0], [1.0], 0.0)
    assert found.json()["judgment"]["checks"] == bad["checks"]


async def test_rules_mode_without_checks_is_refused(make_service: MakeService, connect: Any) -> None:
    async with connect(create_app(make_service([]), max_body_bytes=100_000)) as client:
        response = await client.post("/v1/judge", json=request("rules", GOOD))
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "no_checks"


ATTACHED = """
[[check]]
name = "debt"
kind = "sql"
store = "bank"
attached = true
query = "SELECT * FROM applicants WHERE id = $id AND $decision = 'approve' AND debt > 0.4 * income"
params = {id = "/applicant", decision = "/decision"}
"""
EVIDENCE = [
    {
        "name": "bank",
        "kind": "table",
        "files": [
            {"name": "applicants.csv", "format": "csv", "text": "id,income,debt\nA-1,3100,400\nA-19,4900,7600\n"}
        ],
    }
]


@pytest.fixture
async def attached(tmp_path: Path) -> AsyncIterator[Judge]:
    """Rules over a store that comes with the request."""
    (tmp_path / "attached.toml").write_text(ATTACHED)
    async with open_judge(f"rules:{tmp_path / 'attached.toml'}", tools=[]) as judge:
        yield judge


@pytest.mark.slow
async def test_rules_over_the_evidence_of_a_request(attached: Judge, connect: Any) -> None:
    async with connect(create_app(JudgeService(attached), max_body_bytes=100_000, names=tuple(DIALECTS))) as client:
        answer = await post(client, "/v1/judge", request("rules", BAD, GOOD, evidence=EVIDENCE))
        assert (answer["verdict"]["best"], answer["verdict"]["scores"]) == (1, [1.0, 10.0])
        refused = await client.post("/v1/judge", json=request("rules", BAD, GOOD))
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "evidence_refused")
        assert "needs the store 'bank' of kind table; attach it" in refused.json()["error"]["message"]
        scored = await client.post("/v1/score", json={"text_1": "Loan?", "text_2": [GOOD]})
        assert scored.status_code < 500
        assert scored.headers["x-judge-failed"] == "1"
        schema = (await client.get("/openapi.json")).json()["components"]["schemas"]["JudgeRequest"]
    [kind] = [kind for kind in schema["properties"]["evidence"]["anyOf"] if kind["type"] == "array"]
    assert kind["maxItems"] > 0


async def test_a_gate_beside_a_model_takes_the_evidence_of_a_request(
    attached: Judge, make_service: MakeService, connect: Any
) -> None:
    service = make_service(lambda sequence: "<score>9</score>")
    service.judge = Judge(engine=service.judge.engine, checks=attached.checks)
    async with connect(create_app(service, max_body_bytes=100_000)) as client:
        answer = await post(client, "/v1/judge", request("pointwise", BAD, tools="off", evidence=EVIDENCE))
    assert [result["passed"] for result in answer["checks"][0]] == [False]


def truth(applicant: str, decision: str, has_reason: bool) -> float:
    """The score, from the table and not from the checks."""
    is_known = applicant in APPLICANTS
    income, debt = APPLICANTS.get(applicant, (0, 0))
    violates_limit = is_known and decision == "approve" and debt * 10 > income * 4
    fits_form = has_reason and decision in ("approve", "reject")
    score = 1 + 9 * (1 * is_known + 2 * (not violates_limit) + 1 * fits_form) / 4
    return score if fits_form else min(score, 4.0)


@pytest.mark.slow  # 400 queries, each in a process of its own
async def test_scores_of_200_generated_responses_are_exact(rules: Judge) -> None:
    chance = random.Random(7)
    drawn = [
        (f"A-{chance.randrange(25)}", chance.choice(["approve", "reject", "maybe"]), chance.random() < 0.8)
        for _ in range(200)
    ]
    responses = [
        text(applicant, decision, **({"reason": f"r{number}"} if has_reason else {"number": number}))
        for number, (applicant, decision, has_reason) in enumerate(drawn)
    ]
    judgment = await rules.judge(JudgeRequest(mode=Mode.RULES, prompt="Loan?", responses=responses))
    assert judgment.verdict.scores == [truth(*each) for each in drawn]
    assert len(set(judgment.verdict.scores)) > 4


@pytest.mark.parametrize("has_model", [False, True])
async def test_a_server_with_checks_of_attached_stores_becomes_ready(
    attached: Judge, make_service: MakeService, has_model: bool
) -> None:
    engine = make_service(["<preference>A</preference>"]).judge.engine
    judge = Judge(engine=engine, checks=attached.checks) if has_model else attached
    readiness = Readiness()
    watching = asyncio.create_task(readiness.watch(judge))
    await asyncio.wait_for(readiness.wait(), 30)
    watching.cancel()
    assert readiness.problem is None

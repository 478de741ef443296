"""Records over HTTP: one record, lists, replays, and which keys may read them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from sqlalchemy import text

from tirjudge.tools.python import PythonTool
from tirjudge.types import Judgment
from tirjudge_server.access import Access
from tirjudge_server.access.keys import create_key
from tirjudge_server.app import create_app
from tirjudge_server.records.database import Database
from tirjudge_server.records.record import versions_of
from tirjudge_server.records.replay import is_same_output
from tirjudge_server.records.store import RecordPolicy, Records, open_records
from tirjudge_server.service import JudgeService

COUNTS = "```python\nprint(len(response_a), len(response_b), reference)\n```\n```output"
CLOCK = "```python\nimport time\nprint(time.monotonic_ns())\n```\n```output"
LONG = "```python\nfor n in range(20000):\n    print('`' * 5, n)\n```\n```output"
FAILS = "```python\nprint(1)\nopen('/nowhere')\n```\n```output"
SLEEPS = "```python\nimport time\ntime.sleep(60)\n```\n```output"
ENDS = "<preference>B</preference>"
BODY = {"mode": "pairwise", "prompt": "Which is longer?", "responses": ["one", "three"], "reference": "five"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server with records, its client and its parts."""

    client: httpx2.AsyncClient
    records: Records
    app: FastAPI
    service: JudgeService

    async def judge(self, **fields: Any) -> Judgment:
        response = await self.client.post("/v1/judge", json=BODY | fields)
        assert response.status_code == 200, response.text
        return Judgment.model_validate_json(response.content)


Serve = Callable[..., Any]


@pytest.fixture
def serve(make_service, connect, sqlite_path) -> Serve:
    @asynccontextmanager
    async def serving(texts: list[str], *, cache: bool = True) -> AsyncIterator[Server]:
        service = make_service(cycle(texts), fingerprint="f" * 16)
        versions = versions_of(service.judge, fingerprint=service.fingerprint, isolation=service.isolation)
        async with open_records(str(sqlite_path), versions=versions, policy=RecordPolicy(cache=cache)) as records:
            service.records = records
            app = create_app(service, records=records)
            async with connect(app) as client:
                yield Server(client=client, records=records, app=app, service=service)

    return serving


async def test_a_returned_judgment_is_recorded(serve: Serve) -> None:
    async with serve([COUNTS, ENDS]) as server:
        judgment = await server.judge()
        record = (await server.client.get(f"/v1/judgments/{judgment.id}")).json()
    assert Judgment.model_validate(record["judgment"]) == judgment
    assert record["judgment"]["rollouts"][0]["turns"][0]["output"] in ("3 5 five", "5 3 five")
    assert record["request"].items() >= BODY.items()
    assert record["versions"]["fingerprint"] == "f" * 16
    assert record["versions"]["sandbox"]
    assert (record["sequence"], record["intact"], record["erased"]) == (1, True, [])


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("POST", "/replay")])
async def test_an_unknown_judgment_is_a_404(serve: Serve, method: str, path: str) -> None:
    async with serve([ENDS]) as server:
        for judgment_id in ("jdg_none", "jdg_" + "0" * 32, "x" * 200, "a%00b", "%2e%2e", "..%2fx"):
            response = await server.client.request(method, f"/v1/judgments/{judgment_id}{path}")
            assert response.status_code == 404, judgment_id
            assert response.json()["error"]["type"] == "invalid_request_error"


async def test_judgments_are_listed_in_pages(serve: Serve) -> None:
    async with serve([ENDS]) as server:
        ids = [(await server.judge(seed=seed)).id for seed in range(5)]
        listed, after = [], {}
        while True:
            page = (await server.client.get("/v1/judgments", params={"limit": 2, **after})).json()
            listed += [judgment["id"] for judgment in page["data"]]
            if not page["has_more"]:
                break
            after = {"after": page["last_id"]}
        assert listed == ids[::-1]
        for wrong in ("0", "101", "-1", "1.5", "x", "", "9" * 50, "²"):
            response = await server.client.get("/v1/judgments", params={"limit": wrong})
            assert response.status_code == 400, wrong
            assert response.json()["error"]["param"] == "limit"
        assert (await server.client.get("/v1/judgments", params={"after": "a\x00"})).status_code == 404


async def test_a_repeated_request_returns_the_recorded_judgment(serve: Serve) -> None:
    async with serve([COUNTS, ENDS]) as server:
        first = await server.judge()
        assert await server.judge() == first
        assert len((await server.client.get("/v1/judgments")).json()["data"]) == 1


async def test_requests_with_one_idempotency_key_get_one_judgment(serve: Serve) -> None:
    async with serve([ENDS]) as server:
        headers = {"idempotency-key": "k"}
        answers = [await server.client.post("/v1/judge", json=BODY, headers=headers) for _ in range(2)]
        assert answers[0].content == answers[1].content
        other = await server.client.post("/v1/judge", json=BODY | {"seed": 1}, headers=headers)
        assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_key_reused")


async def test_a_key_that_is_answered_by_content_is_recorded(serve: Serve) -> None:
    async with serve([ENDS]) as server:
        first = await server.judge()

        async def judge(**fields: Any) -> httpx2.Response:
            return await server.client.post("/v1/judge", json=BODY | fields, headers={"idempotency-key": "k"})

        assert (await judge()).json()["id"] == first.id
        other = await judge(seed=1)
        assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_key_reused")
        assert (await judge()).json()["id"] == first.id


def batch_of(prompt: str) -> dict[str, Any]:
    return {"requests": [BODY | {"prompt": prompt}]}


def reward_of(prompt: str) -> dict[str, Any]:
    return {"prompt": prompt, "responses": ["one", "three"], "mode": "cohort"}


def reranking_of(prompt: str) -> dict[str, Any]:
    return {"query": prompt, "documents": ["one", "three"]}


def decision_of(prompt: str) -> dict[str, Any]:
    return {"model": "judge", "input": prompt, "questions": [{"type": "predicate", "instructions": "It is dry."}]}


def chat_of(prompt: str) -> dict[str, Any]:
    judge = {"mode": "pairwise", "responses": ["one", "three"]}
    return {"model": "judge", "n": 2, "messages": [{"role": "user", "content": prompt}], "judge": judge}


@pytest.mark.parametrize(
    ("path", "body_of", "other_status", "num_judgments"),
    [
        ("/v1/judge/batch", batch_of, 200, 2),
        ("/v1/reward", reward_of, 200, 2),
        ("/v1/rerank", reranking_of, 200, 2),
        ("/v1/decisions", decision_of, 422, 1),
        ("/v1/chat/completions", chat_of, 422, 2),
    ],
)
async def test_a_key_of_several_judgments_is_combined_with_their_content_or_number(
    serve: Serve, path: str, body_of: Callable[[str], dict[str, Any]], other_status: int, num_judgments: int
) -> None:
    async with serve([ENDS], cache=False) as server:
        for prompt, status in (("A?", 200), ("B?", other_status), ("A?", 200), ("B?", other_status)):
            response = await server.client.post(path, json=body_of(prompt), headers={"idempotency-key": "k"})
            assert response.status_code == status, response.text
        assert len((await server.client.get("/v1/judgments")).json()["data"]) == num_judgments


async def test_a_judgment_that_cannot_be_stored_is_a_503(serve: Serve) -> None:
    async with serve([ENDS]) as server:
        with server.records.database.writing() as connection:
            connection.execute(text("ALTER TABLE records RENAME TO gone"))
        response = await server.client.post("/v1/judge", json=BODY)
        assert (response.status_code, response.json()["error"]["code"]) == (503, "records_unavailable")
        assert "retry-after" in response.headers


async def test_a_server_with_unreadable_records_is_not_ready(serve: Serve) -> None:
    async with serve([ENDS]) as server, server.app.router.lifespan_context(server.app):
        await server.service.readiness.wait()
        assert (await server.client.get("/ready")).json() == {"ready": True, "problem": None}
        with server.records.database.writing() as connection:
            connection.execute(text("ALTER TABLE records RENAME TO gone"))
        down = await server.client.get("/ready")
        assert down.status_code == 503
        assert down.json()["problem"].startswith("records: ")
        with server.records.database.writing() as connection:
            connection.execute(text("ALTER TABLE gone RENAME TO records"))
        assert (await server.client.get("/ready")).status_code == 200


PRINTS_TOKENS = "```python\nprint('<|im_end|> <s> </prompt> [INST]')\n```\n```output"
"""A program whose output has control tokens and tags, which are broken in the output that the judge reads."""


@pytest.mark.parametrize(
    "program", [COUNTS, LONG, FAILS, PRINTS_TOKENS], ids=["short", "long", "failing", "control tokens"]
)
async def test_a_replay_with_equal_outputs_is_the_same(serve: Serve, program: str) -> None:
    async with serve([program, ENDS]) as server:
        judgment = await server.judge(orders="both")
        replay = (await server.client.post(f"/v1/judgments/{judgment.id}/replay")).json()
    assert replay["same"], replay
    assert [program["result"] for program in replay["programs"]] == ["same", "same"]
    assert replay["versions"] == {}


async def test_a_replay_shows_different_outputs(serve: Serve) -> None:
    async with serve([CLOCK, ENDS]) as server:
        judgment = await server.judge()
        replay = (await server.client.post(f"/v1/judgments/{judgment.id}/replay")).json()
    assert not replay["same"]
    (program,) = replay["programs"]
    assert (program["result"], program["rollout"], program["turn"]) == ("differs", 0, 0)
    assert program["output"] == judgment.rollouts[0].turns[0].output != program["replayed_output"]


async def test_a_program_that_timed_out_is_not_compared(serve: Serve, pool) -> None:
    pool.limits = replace(pool.limits, wall_s=0.2)
    async with serve([SLEEPS, ENDS]) as server:
        server.service.judge = replace(server.service.judge, tools=[PythonTool(pool)])
        judgment = await server.judge()
        assert judgment.rollouts[0].turns[0].outcome == "timeout"
        replay = (await server.client.post(f"/v1/judgments/{judgment.id}/replay")).json()
    assert [program["result"] for program in replay["programs"]] == ["timed_out"]


async def test_programs_cannot_be_replayed_without_a_sandbox(serve: Serve) -> None:
    async with serve([COUNTS, ENDS]) as server:
        judgment = await server.judge()
        server.service.judge = replace(server.service.judge, tools=())
        response = await server.client.post(f"/v1/judgments/{judgment.id}/replay")
    assert (response.status_code, response.json()["error"]["code"]) == (400, "no_sandbox")


async def test_a_replay_lists_changed_versions(serve: Serve) -> None:
    async with serve([COUNTS, ENDS]) as server:
        judgment = await server.judge()
        server.records.versions = replace(server.records.versions, python="2.7", package="0.0")
        replay = (await server.client.post(f"/v1/judgments/{judgment.id}/replay")).json()
    assert replay["same"]
    assert {name: change["now"] for name, change in replay["versions"].items()} == {"python": "2.7", "package": "0.0"}


async def test_an_erased_judgment_cannot_be_replayed(serve: Serve) -> None:
    async with serve([COUNTS, ENDS]) as server:
        judgment = await server.judge()
        await server.records.erase(judgment.id, fields=["request.responses", "turns"])
        response = await server.client.post(f"/v1/judgments/{judgment.id}/replay")
        assert (response.status_code, response.json()["error"]["code"]) == (410, "judgment_erased")
        record = (await server.client.get(f"/v1/judgments/{judgment.id}")).json()
    assert record["erased"] == ["request.responses", "turns"]
    assert "responses" not in record["request"]
    assert record["judgment"]["verdict"] == judgment.verdict.model_dump(mode="json")


async def test_a_damaged_record_is_a_500(serve: Serve) -> None:
    async with serve([ENDS]) as server:
        judgment = await server.judge()
        with server.records.database.writing() as connection:
            connection.execute(text("UPDATE records SET content = substr(content, 1, 50)"))
        response = await server.client.get(f"/v1/judgments/{judgment.id}")
    assert (response.status_code, response.json()["error"]["code"]) == (500, "record_damaged")


async def test_a_key_sees_its_own_records_and_admin_sees_all(serve: Serve, keep) -> None:
    async with serve([ENDS]) as server:
        await server.judge()
        database: Database = server.records.database
        keys = {name: create_key(database, name=name, scopes=["read"]) for name in ("alice", "bob")}
        keys["root"] = create_key(database, name="root", scopes=["admin"])
        access = Access(database)
        await access.load()
        server.app.state.access = access
        own = await keep(server.records, caller="alice")

        async def status(name: str) -> int:
            headers = {"authorization": f"Bearer {keys[name]}"}
            return (await server.client.get(f"/v1/judgments/{own.id}", headers=headers)).status_code

        assert {name: await status(name) for name in keys} == {"alice": 200, "bob": 404, "root": 200}
        listed = {
            name: len(
                (await server.client.get("/v1/judgments", headers={"authorization": f"Bearer {key}"})).json()["data"]
            )
            for name, key in keys.items()
        }
        assert listed == {"alice": 1, "bob": 0, "root": 2}
        assert (await server.client.get("/v1/judgments")).status_code == 401


def test_truncated_outputs_are_compared_at_both_ends() -> None:
    whole = "".join(f"line {n}\n" for n in range(1000))
    shown = f"{whole[:3000]}\n[output cut]\n{whole[-1000:]}"
    assert is_same_output(shown, again=whole)
    assert not is_same_output(shown, again=whole.replace("line 5\n", "line x\n"))
    assert not is_same_output(shown, again=whole.replace("line 990\n", "line x\n"))
    assert not is_same_output(shown, again=whole[:2000])
    assert is_same_output("[output cut]", again="[output cut]")

"""The account of a judgment, and the replay of its queries: a scripted model, a real sandbox and real stores."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from tirjudge.types import Judgment
from tirjudge_evidence.functions import EvidenceSettings, functions_of, open_stores
from tirjudge_evidence.stores import StoreSettings
from tirjudge_sandbox import SandboxPool
from tirjudge_sandbox.candidates import FUNCTIONS
from tirjudge_server.app import create_app
from tirjudge_server.call import Call
from tirjudge_server.records.account import Account, account_of
from tirjudge_server.records.account_page import account_page
from tirjudge_server.records.cli import app
from tirjudge_server.records.record import versions_of
from tirjudge_server.records.store import RecordPolicy, Records, open_records
from tirjudge_server.service import JudgeService

MARKUP = "<script>alert(1)</script>"
RESPONSES = [f"Ada owes 40. {MARKUP}", "Ada owes 50."]
PROGRAM = """\
rows = sql("ledger", "SELECT * FROM loans WHERE name = ?", ["Ada"])
print(len(sql("ledger", "SELECT * FROM loans WHERE name = 'Zoe'")))
for label, text in responses.items():
    if "50" in text:
        claim(label, "50", "contradicted", calls=rows[0])
        claim(label, "owes 50", "violates_rule", calls=rows, rule="limit of 45 <b>")
    else:
        claim(label, "40", "supported", calls=rows)
    claim(label, "Ada owes", "not_in_evidence", calls=2)"""


@asynccontextmanager
async def serving(
    make_service: Any, connect: Any, database: Path, folder: Path, *, program: str = PROGRAM, **policy: Any
) -> AsyncIterator[tuple[JudgeService, Records, httpx2.AsyncClient]]:
    """A server with the store `ledger`, whose model writes a program and then its verdict, in both orders."""
    store = StoreSettings.model_validate(
        {"name": "ledger", "kind": "table", "files": ["loans.csv"], "authority": 3, "valid_until": "2020-01-01"}
    )
    if not (folder / "loans.csv").exists():
        (folder / "loans.csv").write_text("id,name,amount\n1,Ada,40\n", encoding="utf-8")
    async with (
        open_stores(EvidenceSettings(store=[store]), folder=folder) as stores,
        SandboxPool(slots=2) as sandbox,  # the shared one has another event loop than the stores
    ):
        turn = f"```python\n{program}\n```\n```output"

        def script(sequence: str) -> str:
            is_last = turn in sequence or "```output" not in sequence  # the prompt without tools names no output
            return "<preference>A</preference>" if is_last else turn

        functions = [*functions_of(stores), *FUNCTIONS]
        service = make_service(script, sandbox=sandbox, functions=functions, fingerprint="f" * 16)
        versions = versions_of(service.judge, fingerprint="f" * 16, isolation=service.isolation)
        async with open_records(str(database), versions=versions, policy=RecordPolicy(**policy)) as records:
            service.records = records
            async with connect(create_app(service, records=records)) as client:
                yield service, records, client


async def judged(client: httpx2.AsyncClient, **fields: Any) -> Judgment:
    body = {"mode": "pairwise", "prompt": "How much?", "responses": RESPONSES, "orders": "both", **fields}
    answer = await client.post("/v1/judge", json=body)
    assert answer.status_code == 200, answer.text
    return Judgment.model_validate_json(answer.content)


class Tags(HTMLParser):
    """The tags and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def assert_self_contained(page: str) -> None:
    tags = Tags(page).found
    assert not {"script", "img", "link", "iframe", "b"} & {tag for tag, _ in tags if tag != "b"}
    assert all(not (name.startswith("on") or name == "src") for _, attributes in tags for name in attributes)
    assert all((attributes.get("href") or "#").startswith("#") for _, attributes in tags)


def explained(database: Path, judgment_id: str, *options: str) -> str:
    result = CliRunner().invoke(app, ["explain", judgment_id, "--records", str(database), *options])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.slow
async def test_the_account_shows_claims_rows_rules_stores_and_hashes(
    make_service, connect, sqlite_path, tmp_path
) -> None:
    async with serving(make_service, connect, sqlite_path, tmp_path) as (_, records, client):
        judgment = await judged(client)
        record = await records.read(judgment.id)
        assert record is not None
        assert record.judgment == judgment
    account = account_of(record)
    assert [each.number for each in account.claims] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert {each.claim.response for each in account.claims if each.claim.rule} == {1}
    assert list(account.rules) == ["limit of 45 <b>"]
    (cited,) = next(each.calls for each in account.claims if each.claim.status == "contradicted")
    assert cited.rows == {0: '{"amount": 40, "id": 1, "name": "Ada"}'}
    assert [call.result for call in account.not_found] == ["[]", "[]"]
    assert all(each.outdated == ["ledger"] for each in account.claims)
    assert account.responses is not None
    for texts, response in zip(account.responses, RESPONSES, strict=True):
        assert "".join(part.text for part in texts) == response
    page = account_page(account)
    assert_self_contained(page)
    assert MARKUP not in page
    (store,) = judgment.stores
    texts = ("limit of 45 &lt;b&gt;", "not valid on the day", "&lt;script")
    for shown in (store.sha256, cited.result_sha256, record.hash, *texts):
        assert shown is not None
        assert shown in page
    assert explained(sqlite_path, judgment.id) == page + "\n"


@pytest.mark.slow
async def test_the_command_writes_a_private_file_or_json(make_service, connect, sqlite_path, tmp_path) -> None:
    async with serving(make_service, connect, sqlite_path, tmp_path) as (_, _, client):
        judgment = await judged(client)
    file = tmp_path / "account.html"
    assert explained(sqlite_path, judgment.id, "--output", str(file)) == ""
    assert file.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert file.stat().st_mode & 0o077 == 0
    account = Account.model_validate_json(explained(sqlite_path, judgment.id, "--json"))
    assert [each.claim for each in account.claims] == judgment.claims
    result = CliRunner().invoke(app, ["explain", "jdg_none", "--records", str(sqlite_path)])
    assert "jdg_none is not on record" in str(result.exception)


@pytest.mark.slow
async def test_claims_and_stores_are_withheld_with_the_responses(make_service, connect, sqlite_path, tmp_path) -> None:
    withheld = frozenset({"request.responses"})
    async with serving(make_service, connect, sqlite_path, tmp_path, withheld=withheld) as (_, records, client):
        record = await records.read((await judged(client)).id)
        assert record is not None
    assert record.content.withheld == ("calls", "claims", "request.responses", "stores")
    assert "owes 50" not in json.dumps({name: value for name, value in record.values.items() if name != "turns"})
    account = account_of(record)
    assert (account.claims, account.stores, account.responses) == ([], [], None)
    page = account_page(account)
    assert "claims was withheld or erased." in page
    assert "The programs made no claims." not in page


@pytest.mark.slow
@pytest.mark.parametrize("field", ["request.evidence", "turns", "calls"])
async def test_attached_stores_are_erased_with_what_was_read_in_them(
    make_service, connect, sqlite_path, tmp_path, field: str
) -> None:
    program = 'rows = sql("mine", "SELECT * FROM t")\nclaim("A", "Ada", "supported", calls=rows)'
    evidence = [
        {"name": "mine", "kind": "table", "files": [{"name": "t.csv", "format": "csv", "text": "a\nsecret-7\n"}]}
    ]
    async with serving(make_service, connect, sqlite_path, tmp_path, program=program) as (_, records, client):
        judgment = await judged(client, evidence=evidence)
        assert [claim.sources.keys() for claim in judgment.claims] == [{"mine"}, {"mine"}]
        await records.erase(judgment.id, fields=[field])
        record = await records.read(judgment.id)
        assert record is not None
    assert set(record.content.erased) == {field, "calls", "claims", "stores"}
    kept = {name: value for name, value in record.values.items() if name not in ("request.evidence", "turns")}
    assert "secret-7" not in json.dumps(kept)
    assert ("request.evidence" in record.values) == (field != "request.evidence")
    assert_self_contained(account_page(account_of(record)))


async def test_pruned_judgments_and_judgments_without_claims_have_an_account(store, request_of, judgment_of) -> None:
    judgment = await store.store(request_of(), judgment_of(Call()), call=Call())
    page = account_page(account_of(await store.read(judgment.id)))
    assert "The programs made no claims." in page
    assert "No store was queried." in page
    await store.prune(before_ms=1e15)
    page = account_page(account_of(await store.read(judgment.id)))
    assert_self_contained(page)
    assert "turns was withheld or erased." in page


# Replays.


@pytest.mark.slow
async def test_queries_run_again_on_the_same_stores(make_service, connect, sqlite_path, tmp_path) -> None:
    async with serving(make_service, connect, sqlite_path, tmp_path) as (_, _, client):
        judgment = await judged(client)
        replay = (await client.post(f"/v1/judgments/{judgment.id}/replay")).json()
    assert replay["same"], replay
    assert [each["calls_run_again"] for each in replay["programs"]] == [2, 2]
    assert [each["calls_fed_back"] for each in replay["programs"]] == [5, 5]


@pytest.mark.slow
async def test_attached_stores_are_queried_again(make_service, connect, sqlite_path, tmp_path) -> None:
    program = 'print(sql("mine", "SELECT * FROM t"))'
    evidence = [{"name": "mine", "kind": "table", "files": [{"name": "t.csv", "format": "csv", "text": "a\n7\n"}]}]
    async with serving(make_service, connect, sqlite_path, tmp_path, program=program) as (_, _, client):
        judgment = await judged(client, evidence=evidence)
        replay = (await client.post(f"/v1/judgments/{judgment.id}/replay")).json()
    assert (replay["same"], [each["calls_run_again"] for each in replay["programs"]]) == (True, [1, 1])


@pytest.mark.slow
async def test_a_changed_store_is_refused(make_service, connect, sqlite_path, tmp_path) -> None:
    async with serving(make_service, connect, sqlite_path, tmp_path) as (_, _, client):
        judgment = await judged(client)
    (tmp_path / "loans.csv").write_text("id,name,amount\n1,Ada,41\n", encoding="utf-8")
    async with serving(make_service, connect, sqlite_path, tmp_path) as (_, records, client):
        answer = await client.post(f"/v1/judgments/{judgment.id}/replay")
        now = records.versions.stores["ledger"]["sha256"]
        assert answer.status_code == 409
        problem = answer.json()["error"]
        assert problem["code"] == "store_changed"
        assert (
            f"the store ledger changed: the judgment queried SHA-256 {judgment.stores[0].sha256}" in problem["message"]
        )
        assert now in problem["message"]
        records.versions = replace(records.versions, stores={})
        answer = await client.post(f"/v1/judgments/{judgment.id}/replay")
        assert "which is not registered here" in answer.json()["error"]["message"]


# Answers from the records.


async def test_requests_with_other_evidence_or_stores_are_judged_again(
    make_service, connect, sqlite_path, tmp_path
) -> None:
    def evidence(text: str) -> list[dict[str, Any]]:
        return [{"name": "mine", "kind": "table", "files": [{"name": "t.csv", "format": "csv", "text": text}]}]

    async with serving(make_service, connect, sqlite_path, tmp_path) as (_, records, client):
        first = await judged(client, evidence=evidence("a\n1\n"), tools="off")
        assert (await judged(client, evidence=evidence("a\n1\n"), tools="off")).id == first.id
        assert (await judged(client, evidence=evidence("a\n2\n"), tools="off")).id != first.id
        changed = {"ledger": records.versions.stores["ledger"] | {"sha256": "0" * 64}}
        records.versions = replace(records.versions, stores=changed)
        assert (await judged(client, evidence=evidence("a\n1\n"), tools="off")).id != first.id

"""The list of judgments and the page of a judgment, in a real browser, with keys, filters, labels and hostile texts."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from playwright.async_api import expect

from tests.browser import SharedBrowser, check_accessible
from tests.servers import mint_key
from tirjudge.types import Judgment
from tirjudge_server.access import Access
from tirjudge_server.app import create_app
from tirjudge_server.records.audit import verify
from tirjudge_server.records.labels import labeled_rows
from tirjudge_server.records.record import versions_of
from tirjudge_server.records.store import Records, open_records

COUNTS = "I count.\n```python\nprint(len(response_a), len(response_b))\n```\n```output"
FAILS = "```python\nopen('/nowhere')\n```\n```output"
ENDS = "<preference>A</preference>"
BODY = {"mode": "pairwise", "prompt": "Which is longer?", "responses": ["one big dog", "one dog"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server with records, its parts and a client."""

    app: FastAPI
    client: httpx2.AsyncClient
    records: Records

    async def judge(self, key: str | None = None, **fields: Any) -> Judgment:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        response = await self.client.post("/v1/judge", json=BODY | fields, headers=headers)
        assert response.status_code == 200, response.text
        return Judgment.model_validate_json(response.content)

    async def log_in(self, key: str) -> None:
        self.client.cookies.clear()
        assert (await self.client.post("/ui/login", data={"key": key})).status_code == 303

    async def csrf(self, path: str) -> str:
        page = await self.client.get(path)
        assert page.status_code == 200, page.text
        return page.text.partition('name="csrf" value="')[2].partition('"')[0]


Serve = Callable[..., Any]


@pytest.fixture
def serve(make_service: Any, connect: Any, tmp_path: Path) -> Serve:
    @asynccontextmanager
    async def serving(
        texts: Any, *, keys: dict[str, list[str]] | None = None
    ) -> AsyncIterator[tuple[Server, dict[str, str]]]:
        service = make_service(texts if callable(texts) else cycle(texts), fingerprint="f" * 16)
        versions = versions_of(service.judge, fingerprint=service.fingerprint, isolation=service.isolation)
        async with open_records(str(tmp_path / "records.db"), versions=versions) as records:
            service.records = records
            made = {name: mint_key(records.database, name=name, scopes=scopes) for name, scopes in (keys or {}).items()}
            access = Access(records.database)
            await access.load()
            app = create_app(service, records=records, access=access)
            async with connect(app) as client:
                yield Server(app=app, client=client, records=records), made

    return serving


async def ids_of(server: Server, query: str = "") -> list[str]:
    """Ids of the list with a filter, newest first."""
    text = (await server.client.get(f"/ui/judgments.csv?{query}")).text
    return [row["id"] for row in csv.DictReader(io.StringIO(text))]


async def test_filters_select_judgments(serve: Serve) -> None:
    async with serve([COUNTS, ENDS, FAILS, ENDS, ENDS, ENDS]) as (server, _):
        counted = await server.judge(prompt="1", seed=1)
        failed = await server.judge(prompt="2", seed=1)
        flipped = await server.judge(prompt="3", orders="both")
        assert await ids_of(server) == [flipped.id, failed.id, counted.id]
        assert await ids_of(server, "flipped=yes") == [flipped.id]
        assert await ids_of(server, "flipped=no") == [failed.id, counted.id]
        assert await ids_of(server, "tool_error=yes") == [failed.id]
        assert await ids_of(server, "verdict=tie") == [flipped.id]
        assert await ids_of(server, f"verdict={counted.verdict.label}&tool_error=no") == [counted.id]
        assert await ids_of(server, "mode=listwise") == []
        assert await ids_of(server, f"id={failed.id[:12]}") == [failed.id]
        assert await ids_of(server, "model=nothing") == []
        assert await ids_of(server, "since=2020-01-01&until=2020-01-31") == []
        assert len(await ids_of(server, "since=2020-01-01")) == 3
        combined = f"human=none&basis={counted.verdict.basis}&forced=no&tool_error=no&flipped=no"
        assert await ids_of(server, combined) == [counted.id]
        for wrong in ("mode=x", "flipped=1", "since=1", "until=99999-01-01", "id=" + "x" * 201, "basis=%00"):
            refused = await server.client.get(f"/ui/judgments?{wrong}")
            assert refused.status_code == 400, wrong
            assert refused.headers["content-type"].startswith("text/html")


async def test_a_key_sees_its_own_judgments_unless_it_may_audit(serve: Serve) -> None:
    keys = {"alice": ["judge", "read"], "bob": ["judge", "read"], "eve": ["read", "audit"]}
    async with serve([ENDS], keys=keys) as (server, made):
        of = {name: await server.judge(made[name], prompt=name) for name in ("alice", "bob")}
        await server.log_in(made["alice"])
        assert await ids_of(server) == [of["alice"].id]
        assert await ids_of(server, "caller=bob") == []
        for ending in ("", ".json", ".html"):
            assert (await server.client.get(f"/ui/judgments/{of['bob'].id}{ending}")).status_code == 404
            assert (await server.client.get(f"/ui/judgments/{of['alice'].id}{ending}")).status_code == 200
        assert of["bob"].id not in (await server.client.get(f"/ui/judgments/{of['alice'].id}")).text
        await server.log_in(made["eve"])
        assert await ids_of(server) == [of["bob"].id, of["alice"].id]
        assert await ids_of(server, "caller=bob") == [of["bob"].id]


async def test_the_account_is_linked_and_needs_no_inline_style(serve: Serve) -> None:
    async with serve([COUNTS, ENDS], keys={"maker": ["judge", "read"], "other": ["read"]}) as (server, made):
        judgment = await server.judge(made["maker"], prompt="<script>alert(1)</script>")
        path = f"/ui/judgments/{judgment.id}"
        await server.log_in(made["maker"])
        assert f'<a href="{path}/account">' in (await server.client.get(path)).text
        page = await server.client.get(f"{path}/account")
        assert f"Account of {judgment.id}" in page.text
        assert "<script" not in page.text
        policy = page.headers["content-security-policy"]
        style = page.text.partition("<style>")[2].partition("</style>")[0]
        assert f"'sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}'" in policy
        assert "unsafe" not in policy + page.text
        await server.log_in(made["other"])
        assert (await server.client.get(f"{path}/account")).status_code == 404


async def test_labels_and_runs_need_their_scopes(serve: Serve) -> None:
    keys = {"maker": ["judge", "read"], "labeler": ["read", "audit", "label"], "blind": ["label", "judge"]}
    async with serve([COUNTS, ENDS], keys=keys) as (server, made):
        judgment = await server.judge(made["maker"])
        path = f"/ui/judgments/{judgment.id}"
        await server.log_in(made["maker"])
        token = await server.csrf(path)
        assert (await server.client.post(f"{path}/labels", data={"csrf": token, "label": "agree"})).status_code == 403
        ran = await server.client.post(f"{path}/programs/0/0", data={"csrf": token})
        assert "the same output" in ran.text
        assert (await server.client.post(f"{path}/programs/0/1", data={"csrf": token})).status_code == 404
        await server.log_in(made["labeler"])
        token = await server.csrf(path)
        assert (await server.client.post(f"{path}/programs/0/0", data={"csrf": token})).status_code == 403
        assert (await server.client.post(f"{path}/labels", data={"label": "agree"})).status_code == 403
        for wrong in ({"label": "x"}, {"label": "agree", "best": "1"}, {"label": "other", "best": "2"}):
            assert (await server.client.post(f"{path}/labels", data={"csrf": token, **wrong})).status_code == 400
        answer = await server.client.post(f"{path}/labels", data={"csrf": token, "label": "agree"})
        assert answer.status_code == 303
        await server.log_in(made["blind"])
        assert (await server.client.get(path)).status_code == 403


async def test_labels_are_records_and_become_rows_of_a_benchmark(serve: Serve) -> None:
    async with serve([ENDS]) as (server, _):
        judged = [await server.judge(prompt=str(number)) for number in range(4)]
        for judgment, label in zip(judged, ("agree", "other", "tie"), strict=False):
            path = f"/ui/judgments/{judgment.id}"
            token = await server.csrf(path)
            form = {"csrf": token, "label": label, "note": "n"}
            assert (await server.client.post(f"{path}/labels", data=form)).status_code == 303
        report = verify(server.records.database)
        assert (report.length, report.broken) == (7, None)
        assert await ids_of(server, "human=agree") == [judged[0].id]
        assert await ids_of(server, "human=none") == [judged[3].id]
        rows = {row["id"]: row["winner"] for row in labeled_rows(server.records.database)}
        best = [judgment.verdict.best for judgment in judged]
        letters = [["A", "B"][best[0] or 0], ["B", "A"][best[1] or 0], "tie"]
        assert rows == dict(zip((judgment.id for judgment in judged), letters, strict=False))
        assert await server.records.erase(f"{(await server.records.labels(judged[0].id))[0].id}", fields=["note"])
        assert (await server.records.labels(judged[0].id))[0].note is None
        assert verify(server.records.database).broken is None


@pytest.mark.slow
async def test_pages_work_by_keyboard(browser: SharedBrowser, serve: Serve, listen: Any) -> None:
    keys = {"reader": ["judge", "read", "label"]}
    async with serve([COUNTS, ENDS, COUNTS, ENDS, ENDS, ENDS], keys=keys) as (server, made):
        first = await server.judge(made["reader"], prompt="1")
        second = await server.judge(made["reader"], prompt="2")
        third = await server.judge(made["reader"], prompt="3", orders="both")
        async with listen(server.app) as url:

            async def visit(page: Any) -> None:
                await page.goto(f"{url}/ui/judgments")
                await expect(page.locator("#key")).to_be_focused()
                await page.keyboard.type(made["reader"])
                await page.keyboard.press("Enter")
                await page.wait_for_url("**/ui/judgments")
                await check_accessible(page)
                await page.get_by_label("Flipped").focus()
                await page.keyboard.press("y")
                await page.keyboard.press("Enter")
                await page.get_by_role("button", name="Filter").press("Enter")
                await page.wait_for_url("**flipped=yes**")
                assert await page.locator("tbody a").all_inner_texts() == [third.id]
                await page.goto(f"{url}/ui/judgments/{second.id}")
                await check_accessible(page)
                assert await page.locator("mark").all_inner_texts() == ["big "]
                await page.keyboard.press("j")
                await page.wait_for_url(f"**/{first.id}")
                await page.keyboard.press("k")
                await page.wait_for_url(f"**/{second.id}")
                await page.get_by_role("button", name="Run program 1.1 again").press("Enter")
                await page.get_by_role("status").wait_for()
                assert "the same output" in await page.get_by_role("status").inner_text()
                await check_accessible(page)
                await page.get_by_label("Note").fill("good <b>one</b>")
                await page.keyboard.press("Tab")
                await page.keyboard.press("Enter")
                await page.wait_for_url("**#labels")
                assert "good <b>one</b>" in await page.locator("#labels + div").inner_text()
                await page.keyboard.press("u")
                await page.wait_for_url("**/ui/judgments")

            await browser.visit(visit)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_pages_fit_a_phone(
    browser: SharedBrowser, serve: Serve, listen: Any, tmp_path: Path, scheme: str
) -> None:
    async with serve([COUNTS, ENDS]) as (server, _):
        judgment = await server.judge(responses=["x" * 2_000, "y " * 2_000])
        path = f"/ui/judgments/{judgment.id}"
        file = tmp_path / "page.html"
        file.write_text((await server.client.get(f"{path}.html")).text)
        async with listen(server.app) as url:

            async def visit(page: Any) -> None:
                for address in (f"{url}/", f"{url}{path}", file.as_uri()):
                    await page.goto(address)
                    await check_accessible(page)
                    assert await page.evaluate("document.documentElement.scrollWidth") <= 360
                    assert await page.locator("h1").count() == 1

            await browser.visit(visit, viewport={"width": 360, "height": 640}, color_scheme=scheme)


HOSTILE = (
    "</pre></script><script>alert(1)</script><img src=x onerror=alert(2)>\"'><a href='javascript:alert(3)'>x</a>"
    "{{ 7 * 7 }}{% raw %}\x1b[31mred\x1b]0;t\x07\u202eevil\u2066\u200b\x00\ud800 &lt;b&gt; <!-- ]]> \u2028"
    "<style>*{display:none}</style>"
)
"""Markup, templates, terminal escapes, characters that reorder or hide text, and a lone surrogate."""

STORABLE = HOSTILE.replace("\x00", "").replace("\ud800", "")
"""What a column of a database can hold."""


def hostile_judgment(judgment: Judgment) -> Judgment:
    """The judgment with hostile texts in every text field, a megabyte in one line, and 10,000 turns."""
    data = judgment.model_dump(mode="json")
    call = {
        "function": HOSTILE, "version": HOSTILE, "arguments": {HOSTILE: HOSTILE}, "arguments_sha256": HOSTILE,
        "result": [HOSTILE], "result_sha256": HOSTILE, "num_bytes": 1, "ms": 1.0, "sources": {HOSTILE: HOSTILE},
    }  # fmt: skip
    turn = {
        "text": HOSTILE, "code": HOSTILE + "\n" + "x" * 1_000_000, "output": HOSTILE + "y" * 1_000_000, "outcome": "error",
        "calls": [call, call | {"error": HOSTILE}], "in_process": [HOSTILE],
    }  # fmt: skip
    data["model"] = HOSTILE
    rollout = data["rollouts"][0]
    rollout["verdict"] |= {"label": HOSTILE, "written": HOSTILE, "probabilities": {HOSTILE: 0.5}}
    rollout["turns"] = [turn] * 2 + [{"text": HOSTILE, "code": None, "output": None, "outcome": None}] * 10_000
    data["verdict"] |= {"reason": HOSTILE}
    made = {"rollout": 0, "turn": 0, "call": 0, "rows": [0]}
    data["claims"] = [
        {"response": 0, "start": 0, "end": 1, "text": HOSTILE, "status": "violates_rule", "rule": HOSTILE, "made": made,
         "calls": [made], "sources": {HOSTILE: HOSTILE}}
    ]  # fmt: skip
    return Judgment.model_validate(data)


@pytest.mark.slow
async def test_hostile_texts_run_nothing_and_break_nothing(browser: SharedBrowser, serve: Serve, listen: Any) -> None:
    from tests.judgments import build_request
    from tirjudge_server.call import Call

    async with serve([ENDS]) as (server, _):
        judgment = hostile_judgment(await server.judge())
        texts = {"prompt": HOSTILE + "z" * 1_000_000, "rubric": HOSTILE, "reference": HOSTILE}
        request = build_request(**texts, responses=[HOSTILE + " a", HOSTILE + "b" * 1_000_000])
        call = Call(caller=STORABLE, request_id=HOSTILE)
        judgment = judgment.model_copy(update={"id": call.judgment_id, "model": STORABLE})
        await server.records.store(request, judgment, call=call)
        async with listen(server.app) as url:

            async def visit(page: Any) -> None:
                await page.goto(f"{url}/ui/judgments")
                assert await page.locator("tbody tr").count() == 2
                await page.goto(f"{url}/ui/judgments/{judgment.id}")
                assert await page.locator("script").count() == 1
                assert await page.locator("img, style, main a[href^='javascript']").count() == 0
                shown = await page.inner_text("main")
                assert "\\x1b[31mred" in shown
                assert "\u202e" not in shown
                assert "{{ 7 * 7 }}" in shown
                assert "more turns are not shown" in shown
                await check_accessible(page)
                file = await server.client.get(f"/ui/judgments/{judgment.id}.html")
                assert len(file.content) < 2_000_000
                await page.goto("about:blank")
                await page.set_content(file.text)
                assert await page.locator("img, main a[href^='javascript']").count() == 0
                assert "\\x1b[31mred" in await page.inner_text("main")

            await browser.visit(visit)

"""`/ui/evals`: lists, the pages of runs, access, runs that go on, deletion, and hostile texts in a real browser."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from openai import AsyncOpenAI

from tests.browser import SharedBrowser, check_accessible
from tests.runs import HOSTILE_TEXT
from tests.server.openai.evals import EQUAL, create, ended, inline, items_of, row, start
from tests.servers import mint_key, scripted_service, serve_async
from tirjudge_harness.evals.objects import EvalDefinition, EvalRun, OutputItem
from tirjudge_harness.evals.run_folder import write_eval_run
from tirjudge_harness.reports.pages.comparing import store_comparison
from tirjudge_harness.reports.pages.indexing import index_run
from tirjudge_server.access import Access
from tirjudge_server.app import create_app
from tirjudge_server.records.database import open_database
from tirjudge_server.ui import eval_folders

LENGTH = {**EQUAL, "name": "mentions", "operation": "ilike"}
ROWS = [row(1), row(2, right=False), row(3), {"item": row(4)["item"]}]
"""Rows of which two pass, one fails, and one has an error because it has no sample."""


def app_of(files: Path, *, access: Access | None = None) -> FastAPI:
    return create_app(scripted_service(lambda prompt: "<score>7</score>"), files=files, access=access)


@asynccontextmanager
async def opened(app: FastAPI, *, key: str = "none") -> AsyncIterator[tuple[AsyncOpenAI, httpx2.AsyncClient]]:
    """Yield a client of the API and a client of the pages, which has logged in if the key is one."""
    async with (
        serve_async(app, lifespan="on") as url,
        AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client,
        httpx2.AsyncClient(base_url=url) as pages,
    ):
        if key != "none":
            await pages.post("/ui/login", data={"key": key})
        yield client, pages


async def run_of(client: AsyncOpenAI, eval_id: str, rows: Sequence[Any] = ROWS, *, name: str = "first") -> Any:
    return await ended(client, await start(client, eval_id, inline(rows), name=name))


async def prepare(client: AsyncOpenAI, run: Any, *, files: Path) -> Path:
    """Write the folder of a run as the server's process does."""
    found = await client.evals.retrieve(run.eval_id)
    items = [OutputItem.model_validate(item.to_dict()) for item in await items_of(client, run)]
    folder = files / "evals" / run.id
    definition = EvalDefinition.model_validate(found.to_dict())
    write_eval_run(folder, definition, EvalRun.model_validate(run.to_dict()), items)
    index_run(folder)
    return folder


async def text_of(pages: httpx2.AsyncClient, path: str, *, status: int = 200) -> str:
    answer = await pages.get(path)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; style-src 'self';")
    return answer.text


@pytest.mark.slow
async def test_evals_and_runs_are_listed_with_intervals(tmp_path: Path) -> None:
    async with opened(app_of(tmp_path)) as (client, pages):
        assert "No evals yet" in await text_of(pages, "/ui/evals")
        made = await create(client, EQUAL, LENGTH, name="sums", metadata={"team": "a"})
        assert "No runs yet" in await text_of(pages, f"/ui/evals/{made.id}")
        run = await run_of(client, made.id)
        listed = await text_of(pages, "/ui/evals")
        page = await text_of(pages, f"/ui/evals/{made.id}")
        # Wilson's interval of 2 of 3.
        assert "66.7 (20.8 to 93.9)" in listed
        assert f'href="/ui/evals/{made.id}">sums</a>' in listed
        assert 'aria-current="page">Evals' in listed
        assert page.count("66.7 (20.8 to 93.9)") == 3
        assert f'href="/ui/evals/runs/report/{run.id}">first</a>' in page
        assert "team" in page
        assert "Compare" not in page
        assert "data-live" not in page
        await text_of(pages, "/ui/evals?page=7")
        await text_of(pages, f"/ui/evals/{made.id}?page=x")
        await text_of(pages, "/ui/evals/eval_none", status=404)


@pytest.mark.slow
async def test_a_run_has_the_pages_of_runs(tmp_path: Path) -> None:
    async with opened(app_of(tmp_path)) as (client, pages):
        made = await create(client, EQUAL, LENGTH, name="sums")
        first = await run_of(client, made.id)
        second = await run_of(client, made.id, [row(1), row(2), row(3, right=False), ROWS[3]], name="second")
        folders = [await prepare(client, run, files=tmp_path) for run in (first, second)]
        store_comparison(*folders)
        report = await text_of(pages, f"/ui/evals/runs/report/{first.id}")
        assert "9 of 12 results have a score" in report
        assert "66.7 (20.8 to 93.9)" in report
        assert "data-live" not in report
        failed = f"/ui/evals/runs/items/{first.id}?wrong=on"
        assert f'href="{failed}">failed</a>: 3' in report
        items = await text_of(pages, f"{failed}&subset=equal")
        (path,) = re.findall(r'href="(/ui/evals/runs/item/\d+/[^"]*)"', items)
        item = await text_of(pages, path)
        assert "2 + 1" in item
        assert "score 0" in item
        assert "Response A" not in item
        error = await text_of(pages, f"/ui/evals/runs/item/9/{first.id}")
        assert "invalid_variable_error" in error
        compared = await text_of(pages, f"/ui/evals/runs/compare?first={first.id}&second={second.id}")
        assert "p (Holm)" in compared
        assert "second against first" in compared
        assert "Items that changed: 6" in compared
        assert "passed in this run only" in compared
        assert str(tmp_path) not in compared
        page = await text_of(pages, f"/ui/evals/{made.id}")
        assert "Compare the two chosen runs" in page
        await text_of(pages, "/ui/evals/runs/report/..%2Ffiles", status=404)
        await client.evals.runs.delete(first.id, eval_id=made.id)
        assert not folders[0].exists()
        await text_of(pages, f"/ui/evals/runs/report/{first.id}", status=404)


@pytest.mark.slow
async def test_a_reader_sees_own_evals_and_with_the_scope_audit_all(tmp_path: Path) -> None:
    database = open_database(str(tmp_path / "records.db"))
    scopes = {"alice": ["judge"], "bob": ["judge"], "carol": ["audit"], "dave": ["reward"]}
    keys = {name: mint_key(database, name=name, scopes=given) for name, given in scopes.items()}
    access = Access(database)
    await access.load()
    files = tmp_path / "files"
    app = app_of(files, access=access)
    async with opened(app, key=keys["alice"]) as (client, pages):
        made = await create(client, EQUAL, name="alice's sums")
        run = await run_of(client, made.id)
        await prepare(client, run, files=files)
        paths = [f"/ui/evals/{made.id}", f"/ui/evals/runs/report/{run.id}", f"/ui/evals/runs/items/{run.id}"]
        paths += [f"/ui/evals/runs/item/0/{run.id}"]
        for name, status in (("alice", 200), ("bob", 404), ("carol", 200), ("dave", 403)):
            async with httpx2.AsyncClient(base_url=pages.base_url) as reader:
                await reader.post("/ui/login", data={"key": keys[name]})
                for path in paths:
                    await text_of(reader, path, status=status)
                listed = await text_of(reader, "/ui/evals", status=403 if name == "dave" else 200)
                assert (run.eval_id in listed) == (name in ("alice", "carol"))
                compare = f"/ui/evals/runs/compare?first={run.id}&second={run.id}"
                await text_of(reader, compare, status=400 if status == 200 else status)
        async with httpx2.AsyncClient(base_url=pages.base_url) as reader:
            answer = await reader.get(paths[1])
            assert answer.headers["location"].startswith("/ui/login?next=")
    database.close()


async def test_a_server_without_files_has_no_pages_of_evals(make_service: Any) -> None:
    transport = httpx2.ASGITransport(app=create_app(make_service([])))
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        assert (await client.get("/ui/evals")).status_code == 404


@pytest.mark.slow
async def test_folders_of_unknown_runs_are_removed_at_the_start(tmp_path: Path) -> None:
    left = tmp_path / "evals" / f"evalrun_{'0' * 32}"
    left.mkdir(parents=True)
    async with opened(app_of(tmp_path)):
        assert not left.exists()


async def test_a_run_that_is_too_large_for_pages_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eval_folders, "MAX_RUN_BYTES", 10)
    async with opened(app_of(tmp_path)) as (client, pages):
        made = await create(client, EQUAL)
        run = await run_of(client, made.id)
        page = await text_of(pages, f"/ui/evals/runs/report/{run.id}")
        assert f"tirjudge evals export {made.id} {run.id} DIR" in page


@pytest.mark.slow
async def test_the_server_writes_the_folder_of_a_run(tmp_path: Path) -> None:
    async with opened(app_of(tmp_path)) as (client, pages):
        made = await create(client, EQUAL, LENGTH, name="sums")
        runs = [await run_of(client, made.id, name=name) for name in ("first", "second")]
        for run in runs:
            path = f"/ui/evals/runs/report/{run.id}"
            assert "Reading the run" in await text_of(pages, path)
            await _shown(pages, path, "results have a score")
        await _shown(pages, f"/ui/evals/runs/compare?first={runs[0].id}&second={runs[1].id}", "Items that changed: 0")
        other = await run_of(client, made.id, [row(77)], name="other")
        await _shown(pages, f"/ui/evals/runs/report/{other.id}", "results have a score")
        path = f"/ui/evals/runs/compare?first={runs[0].id}&second={other.id}"
        await _shown(pages, path, "alert")
        assert str(tmp_path) not in await text_of(pages, path)
        await client.evals.runs.delete(other.id, eval_id=made.id)
    assert sorted(path.name for path in (tmp_path / "evals").iterdir()) == sorted(run.id for run in runs)


async def _shown(pages: httpx2.AsyncClient, path: str, text: str) -> None:
    """Wait until a page has a text."""
    page = ""
    async with asyncio.timeout(600):
        while text not in page:
            await asyncio.sleep(0.1)
            page = await text_of(pages, path)


@pytest.mark.slow
async def test_hostile_texts_do_nothing_in_a_browser(browser: SharedBrowser, tmp_path: Path) -> None:
    hostile = HOSTILE_TEXT[:200]
    criteria = [{**EQUAL, "name": HOSTILE_TEXT[:60]}, {**LENGTH, "name": f"{HOSTILE_TEXT[:60]}2"}]
    async with opened(app_of(tmp_path)) as (client, pages):
        made = await create(client, *criteria, name=hostile, metadata={HOSTILE_TEXT[:60]: HOSTILE_TEXT[:500]})
        item = {"question": hostile, "answer": hostile}
        rows = [{"item": item, "sample": {"output_text": text}} for text in (hostile, "other")] + [{"item": item}]
        runs = [await run_of(client, made.id, rows, name=hostile) for _ in range(2)]
        folders = [await prepare(client, run, files=tmp_path) for run in runs]
        store_comparison(*folders)
        paths = ["/ui/evals", f"/ui/evals/{made.id}"]
        paths += [f"/ui/evals/runs/{kind}/{runs[0].id}" for kind in ("report", "items", "item/0", "item/6")]
        paths += [f"/ui/evals/runs/compare?first={runs[0].id}&second={runs[1].id}"]

        async def visit(page: Any) -> None:
            for path in paths:
                await page.goto(f"{pages.base_url}{path}")
                await page.get_by_role("heading", level=1).wait_for()
                await check_accessible(page)

        await browser.visit(visit)

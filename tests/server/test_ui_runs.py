"""`/ui/runs`: reports, the error browser and comparisons; access; runs that grow; and hostile texts in a real browser."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from tests.browser import SharedBrowser, check_accessible
from tests.runs import HOSTILE, HOSTILE_TEXT, Pair, judge_hostile_rows, judgment_of, write_pairs
from tests.servers import mint_key, serve_async
from tests.waiting import until
from tirjudge.types import Outcome
from tirjudge_harness.reports.pages.comparing import store_comparison
from tirjudge_harness.reports.pages.indexing import index_run
from tirjudge_harness.run_store import JudgmentStore
from tirjudge_pages.bench.index import CONDITIONS, ItemQuery
from tirjudge_pages.bench.links import ServerLinks, query_of
from tirjudge_sandbox import SandboxPool
from tirjudge_server.access import Access
from tirjudge_server.app import create_app
from tirjudge_server.records.database import open_database
from tirjudge_server.ui import PageSite, entrance
from tirjudge_server.ui.run_library import RunLibrary
from tirjudge_server.ui.runs import router

WRONG = Pair(id="wrong", named=(1, 1), subset="law", outcome=Outcome.TIMEOUT)
PAIRS = [Pair(id="right", named=(0, 0)), WRONG, Pair(id="flipped", named=(0, 1))]
PAIRS += [Pair(id=f"further {n}", named=(0, 0)) for n in range(200)]


READ_MS = 600_000
"""Maximum duration until a page shows a change of a run. The server pauses for five times as long as it reads a run."""


def app_of(folder: Path, *, access: Access | None = None) -> FastAPI:
    app, site = FastAPI(), PageSite(access=access)
    app.include_router(entrance.router(site))
    app.include_router(router(site, folder=folder))
    return app


def client_of(app: FastAPI, **options: Any) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app, **options), base_url="http://test")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two prepared runs, one of them a folder deeper, and their comparison. Tests only read it."""
    folder = tmp_path_factory.mktemp("runs")
    first = write_pairs(folder / "first", PAIRS)
    second = write_pairs(folder / "mine" / "judgebench", [PAIRS[0], Pair(id="wrong", named=(0, 0)), *PAIRS[2:]])
    index_run(first)
    index_run(second)
    store_comparison(first, second)
    return folder


@pytest.fixture
async def client(runs: Path) -> AsyncIterator[httpx2.AsyncClient]:
    async with client_of(app_of(runs)) as opened:
        yield opened


async def text_of(client: httpx2.AsyncClient, path: str, *, status: int = 200) -> str:
    answer = await client.get(path)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; style-src 'self';")
    return answer.text


def listed(page: str) -> list[str]:
    return re.findall(r'href="/ui/runs/item/\d+/[^"]*">([^<]*)<', page)


async def test_runs_are_listed_with_their_main_figure(client: httpx2.AsyncClient) -> None:
    page = await text_of(client, "/ui/runs")
    assert 'href="/ui/runs/report/first"' in page
    assert 'href="/ui/runs/report/mine/judgebench"' in page
    assert re.search(r"99\.0 \(\d\d\.\d to \d\d\.\d\)", page)  # 201 of 203
    assert 'aria-current="page">Runs' in page


async def test_the_report_has_figures_charts_and_links_to_the_items(client: httpx2.AsyncClient) -> None:
    page = await text_of(client, "/ui/runs/report/first")
    assert "203 of 203 examples judged" in page
    assert 'href="/ui/runs/items/first?wrong=on">wrong</a>: 1' in page
    assert page.count("<svg") >= 4
    assert "data-live" not in page


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("wrong=on", ["wrong"]),
        ("flipped=on", ["flipped"]),
        ("wrong=on&flipped=on", []),
        ("subset=law", ["wrong"]),
        ("error=timeout", ["wrong"]),
        ("id=lipp", ["flipped"]),
        ("page=3", ["further 197", "further 198", "further 199"]),
        ("page=99", []),
        ("page=-1&id=lipp", ["flipped"]),
        ("subset=%22%3E%00%ED%A0%80", []),
    ],
)
async def test_items_are_filtered_and_paged(client: httpx2.AsyncClient, query: str, ids: list[str]) -> None:
    assert listed(await text_of(client, f"/ui/runs/items/first?{query}")) == ids


def test_links_of_the_server_keep_all_conditions() -> None:
    query = ItemQuery(
        conditions=frozenset(CONDITIONS), subset="a&b/ü", basis="checked", error="syntax", id="x=1", by_confidence=True
    )
    path = ServerLinks(name="a b/c").items(query, page=7)
    assert path.startswith("/ui/runs/items/a%20b/c?")
    fields = dict(httpx2.URL(f"http://test{path}").params)
    assert (query_of(fields), fields["page"]) == (query, "7")


async def test_an_item_has_its_judgment_and_its_neighbors(client: httpx2.AsyncClient) -> None:
    page = await text_of(client, "/ui/runs/item/1/first")
    assert '<span class="n">print</span>(<span class="m">1</span>)' in page
    assert '<span class="tag bad">timeout</span>' in page
    assert 'href="/ui/runs/item/0/first" rel="prev"' in page
    assert 'href="/ui/runs/item/2/first" rel="next"' in page
    assert 'rel="next"' not in await text_of(client, "/ui/runs/item/202/first")
    for place in ("203", "-1", "x", "9" * 30):
        await text_of(client, f"/ui/runs/item/{place}/first", status=404)


async def test_two_runs_are_compared(client: httpx2.AsyncClient) -> None:
    page = await text_of(client, "/ui/runs/compare?first=first&second=mine/judgebench")
    assert "p (Holm)" in page
    assert "Items that changed: 1" in page
    assert "Items that changed: 0" in await text_of(
        client, "/ui/runs/compare?first=first&second=mine/judgebench&kind=lost"
    )
    await text_of(client, "/ui/runs/compare?first=first&second=first", status=400)
    await text_of(client, "/ui/runs/compare?first=first&second=nothing", status=404)
    await text_of(client, "/ui/runs/compare?first=first&second=mine/judgebench&kind=x", status=404)


@pytest.mark.parametrize("name", ["nothing", "..%2Fruns%2Ffirst", "mine%2F..%2Ffirst", "%2Fetc", "first/", "%00"])
async def test_names_lead_to_runs_of_the_folder_only(client: httpx2.AsyncClient, name: str) -> None:
    await text_of(client, f"/ui/runs/report/{name}", status=404)


async def test_readers_need_the_scope_audit(runs: Path, tmp_path: Path) -> None:
    database = open_database(str(tmp_path / "records.db"))
    keys = {scope: mint_key(database, name=scope, scopes=[scope]) for scope in ("read", "audit", "admin")}
    access = Access(database)
    await access.load()
    paths = ("", "/report/first", "/items/first", "/item/0/first", "/compare?first=first&second=mine/judgebench")
    for scope, key in keys.items():
        async with client_of(app_of(runs, access=access)) as client:
            await client.post("/ui/login", data={"key": key})
            for path in paths:
                await text_of(client, f"/ui/runs{path}", status=403 if scope == "read" else 200)
    async with client_of(app_of(runs, access=access)) as client:
        assert (await client.get("/ui/runs/report/first")).headers["location"].startswith("/ui/login?next=")
    database.close()


async def test_without_keys_runs_are_shown_on_the_same_machine_only(runs: Path) -> None:
    async with client_of(app_of(runs), client=("10.0.0.7", 4000)) as client:
        await text_of(client, "/ui/runs/report/first", status=403)


async def test_the_judge_server_has_the_pages_if_it_has_a_folder_of_runs(make_service: Any, runs: Path) -> None:
    async with client_of(create_app(make_service([]), runs=runs)) as client:
        assert "/ui/runs/report/first" in await text_of(client, "/ui/runs")
    async with client_of(create_app(make_service([]))) as client:
        assert (await client.get("/ui/runs")).status_code == 404


async def test_a_folder_without_runs_says_so(tmp_path: Path) -> None:
    async with client_of(app_of(tmp_path)) as client:
        assert "has no runs" in await text_of(client, "/ui/runs")


async def test_a_run_without_an_index_says_how_to_make_one(tmp_path: Path) -> None:
    write_pairs(tmp_path / "run", PAIRS[:1])
    async with client_of(app_of(tmp_path)) as client:
        assert "not indexed yet: open it once, or run <code>tirjudge bench index" in await text_of(client, "/ui/runs")


async def test_a_reading_that_is_canceled_at_its_start_ends(tmp_path: Path) -> None:
    """As when the server ends: asyncio's own subprocesses wait forever if they are canceled while they start."""
    run = write_pairs(tmp_path / "run", PAIRS[:1])
    for num_turns in (1, 2, 3, 4, 6, 8):
        before = asyncio.all_tasks()
        library = RunLibrary(tmp_path)
        assert library.index(run) == (None, None)
        for _ in range(num_turns):
            await asyncio.sleep(0)
        started = asyncio.all_tasks() - before
        for task in started:
            task.cancel()
        async with asyncio.timeout(60):
            await asyncio.gather(*started, return_exceptions=True)


async def test_an_unfinished_run_is_shown_as_it_was_read_last(tmp_path: Path) -> None:
    run = write_pairs(tmp_path / "run", PAIRS[:3], unjudged=["flipped"])
    index_run(run)
    async with client_of(app_of(tmp_path)) as client:
        page = await text_of(client, "/ui/runs/report/run")
        assert "2 of 3 examples judged" in page
        assert 'data-live="5"' in page
        async with JudgmentStore(run) as store:
            await store.keep("key-flipped", judgment_of(PAIRS[2]))
        assert "2 of 3 examples judged" in await text_of(client, "/ui/runs/report/run")


@pytest.mark.slow
async def test_pages_of_a_run_follow_it_while_it_goes_on(browser: SharedBrowser, tmp_path: Path) -> None:
    run = write_pairs(tmp_path / "run", PAIRS[:3], unjudged=["wrong", "flipped"])
    async with serve_async(app_of(tmp_path)) as url:

        async def visit(page: Any) -> None:
            await page.goto(f"{url}/ui/runs/report/run")
            await page.get_by_text("1 of 3 examples judged").wait_for(timeout=READ_MS)
            async with JudgmentStore(run) as store:
                await store.keep("key-wrong", judgment_of(WRONG))
                await page.get_by_text("2 of 3 examples judged").wait_for(timeout=READ_MS)
                await store.keep("key-flipped", judgment_of(PAIRS[2]))
            await page.get_by_text("3 of 3 examples judged").wait_for(timeout=READ_MS)
            await check_accessible(page)

        await browser.visit(visit)


@pytest.mark.slow
async def test_runs_are_read_and_compared_when_their_pages_are_opened(tmp_path: Path) -> None:
    write_pairs(tmp_path / "first", PAIRS[:3])
    write_pairs(tmp_path / "second", [PAIRS[0], Pair(id="wrong", named=(0, 0)), PAIRS[2]])
    write_pairs(tmp_path / "other", [Pair(id="x")], benchmark="ifbench")
    async with client_of(app_of(tmp_path)) as client:

        async def is_shown(path: str, text: str) -> bool:
            return text in (await client.get(path)).text

        path = "/ui/runs/compare?first=first&second=second"
        assert "Reading the run" in await text_of(client, path)
        while not await is_shown(path, "Items that changed: 1"):
            await until(lambda: True)
        # A comparison that is not possible says why.
        while not await is_shown("/ui/runs/compare?first=first&second=other", "nothing to compare"):
            await until(lambda: True)


@pytest.mark.slow
async def test_a_reader_finds_an_error_and_compares_with_the_keyboard(browser: SharedBrowser, runs: Path) -> None:
    async with serve_async(app_of(runs)) as url:

        async def visit(page: Any) -> None:
            await page.goto(f"{url}/ui/runs")
            await check_accessible(page)
            await page.get_by_role("link", name="first", exact=True).press("Enter")
            await page.wait_for_url("**/report/first")
            await check_accessible(page)
            await page.keyboard.press("e")
            await page.wait_for_url("**/items/first")
            await page.get_by_role("checkbox", name=re.compile("^wrong")).press("Space")
            await page.get_by_role("button", name="Filter").press("Enter")
            await page.wait_for_url("**/items/first?wrong=on*")
            assert "1 items" in await page.inner_text("main")
            await check_accessible(page)
            await page.get_by_role("link", name="wrong", exact=True).press("Enter")
            await page.wait_for_url("**/item/1/first")
            await check_accessible(page)
            await page.keyboard.press("j")
            await page.wait_for_url("**/item/2/first")
            await page.keyboard.press("u")
            await page.wait_for_url("**/report/first")
            await page.goto(f"{url}/ui/runs")
            await page.get_by_label("First: first").press("Space")
            await page.get_by_label("Second: mine/judgebench").press("Space")
            await page.get_by_role("button", name="Compare").press("Enter")
            await page.wait_for_url("**/compare?*")
            assert "Items that changed: 1" in await page.inner_text("main")
            await check_accessible(page)

        await browser.visit(visit, color_scheme="dark")


async def test_hostile_names_are_escaped(tmp_path: Path) -> None:
    name = f"{HOSTILE[1]} {HOSTILE[4]}"
    pairs = [Pair(id=text, subset=HOSTILE_TEXT, tags={HOSTILE_TEXT: HOSTILE_TEXT}) for text in HOSTILE]
    run = write_pairs(tmp_path / name, pairs, model=HOSTILE_TEXT)
    other = write_pairs(tmp_path / "other", [Pair(id=HOSTILE[0], named=(1,), subset=HOSTILE_TEXT)])
    index_run(run)
    index_run(other)
    store_comparison(other, run)
    links = ServerLinks(name=name)
    compared = str(httpx2.URL("/ui/runs/compare", params={"first": "other", "second": name}))
    async with client_of(app_of(tmp_path)) as client:
        for path in ("/ui/runs", links.report, links.items(ItemQuery(id=HOSTILE_TEXT)), links.item(0), compared):
            page = await text_of(client, path)
            # A choice of a form has the name of a subset or a run as it is; browsers do not show it.
            page = re.sub(r'(<option|type="radio" name="\w+") value="[^"]*"', r"\1", page)
            assert not re.search(r"<script>|<img|<b |<svg onload|\x1b|\u202e|href=.javascript", page)
        assert "Items that changed: 1" in page


@pytest.mark.slow
async def test_hostile_texts_run_nothing_and_break_nothing(
    browser: SharedBrowser, pool: SandboxPool, tmp_path: Path
) -> None:
    rows, folder = tmp_path / "rows", tmp_path / "runs"
    rows.mkdir()
    run = await judge_hostile_rows(rows, pool=pool)
    name = run.name
    folder.mkdir()
    run = run.rename(folder / name)
    first = folder / "copy"
    first.mkdir()
    for file in run.iterdir():
        (first / file.name).write_bytes(file.read_bytes())
    for one in (first, run):
        assert index_run(one).view.no_texts == ""
    store_comparison(first, run)
    links = ServerLinks(name=name)
    paths = ["/ui/runs", links.report, links.items(ItemQuery()), *map(links.item, range(len(HOSTILE) + 1))]
    paths += [links.items(ItemQuery(subset=text, id=text)) for text in (*HOSTILE, HOSTILE_TEXT)]
    paths += [str(httpx2.URL("/ui/runs/compare", params={"first": "copy", "second": name}))]
    async with serve_async(app_of(folder)) as url:

        async def visit(page: Any) -> None:
            for path in paths:
                await page.goto(url + path)
                assert await page.locator("body > main").count() == 1
                assert await page.locator("img, svg[onload], main script, b").count() == 0
                shown = await page.inner_text("body")
                assert not set("\x1b\u202e\u2066\x07") & set(shown)
                protocols = await page.eval_on_selector_all("a", "links => links.map(link => link.protocol)")
                assert set(protocols) <= {"http:"}
            await page.goto(url + links.item(0))
            assert HOSTILE[0] in await page.inner_text("main")
            await page.goto(url + links.item(len(HOSTILE)))
            assert f"Not judged: EngineUnavailable: {HOSTILE[0]}" in await page.inner_text("main")

        await browser.visit(visit)

"""Pages: login with a key, sessions, CSRF tokens, headers, and readers of a server without keys."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import Depends, FastAPI, Request
from playwright.async_api import expect
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from tests.browser import SharedBrowser, check_accessible
from tests.servers import mint_key
from tirjudge_server.access import Access
from tirjudge_server.access.keys import revoke_key
from tirjudge_server.app import create_app
from tirjudge_server.records.database import Database, open_database
from tirjudge_server.ui import PageSite, Viewer, entrance, is_page
from tirjudge_web.browser_check import BrowserCheck


@pytest.fixture
def database(tmp_path: Path) -> Any:
    opened = open_database(str(tmp_path / "records.db"))
    yield opened
    opened.close()


def app_of(access: Access | None, *, public_url: str | None = None) -> FastAPI:
    """The entrance, and a page that shows its reader."""
    app, site = FastAPI(), PageSite(access=access, public_url=public_url)
    app.include_router(entrance.router(site))
    routes = site.router()
    reads = Depends(site.viewing("read"))

    @routes.get("/ui/me")
    async def me(request: Request, viewer: Viewer = reads) -> Response:
        return site.page(request, "problem", viewer=viewer, status=200, message=f"reader {viewer.caller}")

    @routes.post("/ui/me")
    async def change(request: Request, viewer: Viewer = reads) -> Response:
        return PlainTextResponse(viewer.form.get("word", ""))

    app.include_router(routes)
    return app


@pytest.fixture
async def guarded(database: Database) -> AsyncIterator[tuple[httpx2.AsyncClient, str]]:
    """A client of a server with keys, and a key that may read."""
    key = mint_key(database, name="reader", scopes=["read"])
    access = Access(database)
    await access.load()
    transport = httpx2.ASGITransport(app=app_of(access))
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client, key


async def log_in(client: httpx2.AsyncClient, key: str, **fields: str) -> httpx2.Response:
    return await client.post("/ui/login", data={"key": key, **fields})


def csrf_of(page: str) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', page)
    assert found is not None
    return found[1]


async def test_a_reader_without_a_session_is_sent_to_the_login_and_back(guarded: Any) -> None:
    client, key = guarded
    answer = await client.get("/ui/me?a=1&b=2")
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/login?next=%2Fui%2Fme%3Fa%3D1%26b%3D2")
    login = await client.get(answer.headers["location"])
    assert 'value="/ui/me?a=1&amp;b=2"' in login.text
    entered = await log_in(client, key, next="/ui/me?a=1&b=2")
    assert (entered.status_code, entered.headers["location"]) == (303, "/ui/me?a=1&b=2")
    assert "reader reader" in (await client.get("/ui/me")).text


async def test_a_click_on_another_site_opens_the_page_again_with_the_session(guarded: Any) -> None:
    """The browser sends the cookie, which is SameSite=Strict, with the second request only."""
    client, key = guarded
    for site in ("cross-site", "same-site"):
        answer = await client.get("/ui/me?a=1", headers={"sec-fetch-site": site})
        assert (answer.status_code, "location" in answer.headers) == (200, False)
        assert '<meta http-equiv="refresh" content="0">' in answer.text
    assert (await client.get("/ui/me", headers={"sec-fetch-site": "same-origin"})).status_code == 303
    await log_in(client, key)
    assert "reader reader" in (await client.get("/ui/me", headers={"sec-fetch-site": "cross-site"})).text


async def test_the_cookie_is_closed_to_scripts_and_other_sites_and_is_not_the_key(guarded: Any) -> None:
    client, key = guarded
    cookie = (await log_in(client, key)).headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert key not in cookie


async def test_over_https_the_cookie_is_secure(database: Database) -> None:
    key = mint_key(database, scopes=["read"])
    access = Access(database)
    await access.load()
    transport = httpx2.ASGITransport(app=app_of(access))
    async with httpx2.AsyncClient(transport=transport, base_url="https://test") as client:
        assert "Secure" in (await log_in(client, key)).headers["set-cookie"]


async def test_behind_a_tls_proxy_the_public_url_makes_the_cookie_secure(database: Database) -> None:
    key = mint_key(database, scopes=["read"])
    access = Access(database)
    await access.load()
    transport = httpx2.ASGITransport(app=app_of(access, public_url="https://judge.example"))
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        assert "Secure" in (await log_in(client, key)).headers["set-cookie"]


async def test_a_link_on_another_site_opens_a_page_for_a_reader_with_a_session(
    browser: SharedBrowser, listen: Any, database: Database
) -> None:
    key = mint_key(database, name="reader", scopes=["read"])
    access = Access(database)
    await access.load()
    other = FastAPI()

    @other.get("/")
    async def link(to: str) -> Response:
        head = '<!DOCTYPE html><html lang="en"><title>Other</title><link rel="icon" href="data:,">'
        return HTMLResponse(f'{head}<a href="{to}">link</a></html>')

    guarded = app_of(access)
    guarded.add_middleware(BrowserCheck, hosts=None, has_keys=lambda: True, is_page=is_page)
    async with listen(guarded) as url, listen(other) as other_url:

        async def visit(page: Any) -> None:
            await page.goto(f"{url}/ui/me")
            await page.fill("#key", key)
            await page.keyboard.press("Enter")
            await page.wait_for_url("**/ui/me")
            await page.goto(f"{other_url.replace('127.0.0.1', 'localhost')}/?to={url}/ui/me")
            await page.click("a")
            await page.wait_for_selector("text=reader reader")

        await browser.visit(visit)


async def test_a_wrong_key_gets_the_login_page_with_the_problem(guarded: Any) -> None:
    client, _ = guarded
    answer = await log_in(client, "tj_wrong")
    assert answer.status_code == 401
    assert "invalid API key" in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "target", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:x()", "/a\nb"]
)
async def test_the_login_leads_to_pages_of_this_server_only(guarded: Any, target: str) -> None:
    client, key = guarded
    assert (await log_in(client, key, next=target)).headers["location"] == "/"


async def test_a_form_needs_the_token_of_its_session(guarded: Any) -> None:
    client, key = guarded
    await log_in(client, key)
    token = csrf_of((await client.get("/ui/me")).text)
    for wrong in ({}, {"csrf": ""}, {"csrf": "0" * 64}, {"csrf": "é"}):
        refused = await client.post("/ui/me", data={"word": "x", **wrong})
        assert (refused.status_code, "reload the page" in refused.text) == (403, True)
    assert (await client.post("/ui/me", data={"word": "x", "csrf": token})).text == "x"
    assert (await client.post("/ui/me", headers={"x-csrf-token": token})).status_code == 200
    await log_in(client, key)
    assert (await client.post("/ui/me", data={"word": "x", "csrf": token})).status_code == 403


async def test_a_session_ends_with_its_logout_and_with_its_key(guarded: Any, database: Database) -> None:
    client, key = guarded
    await log_in(client, key)
    session = client.cookies["tirjudge_session"]
    assert (await client.post("/ui/logout")).status_code == 403
    token = csrf_of((await client.get("/ui/me")).text)
    assert (await client.post("/ui/logout", data={"csrf": token})).headers["location"] == "/ui/login"
    client.cookies.clear()
    again = await client.get("/ui/me", headers={"cookie": f"tirjudge_session={session}"})
    assert again.status_code == 303
    await log_in(client, key)
    assert (await client.get("/ui/me")).status_code == 200
    revoke_key(database, name="reader")
    fresh = Access(database)
    await fresh.load()
    transport = httpx2.ASGITransport(app=app_of(fresh))
    async with httpx2.AsyncClient(transport=transport, base_url="http://test", cookies=client.cookies) as other:
        assert (await other.get("/ui/me")).status_code == 303


async def test_a_key_needs_the_scope_of_a_page(database: Database) -> None:
    key = mint_key(database, scopes=["judge"])
    access = Access(database)
    await access.load()
    transport = httpx2.ASGITransport(app=app_of(access))
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        await log_in(client, key)
        refused = await client.get("/ui/me")
    assert refused.status_code == 403
    assert "lacks the scope read" in refused.text


@pytest.mark.parametrize(("address", "status"), [("127.0.0.1", 200), ("::1", 200), ("10.0.0.7", 403)])
async def test_without_keys_pages_are_for_readers_on_the_same_machine(address: str, status: int) -> None:
    transport = httpx2.ASGITransport(app=app_of(None), client=(address, 4000))
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        answer = await client.get("/ui/me")
        assert answer.status_code == status
        if status == 200:
            form = {"word": "x", "csrf": ""}
            assert (await client.post("/ui/me", data=form)).status_code == 403
        else:
            assert "tirjudge keys create" in answer.text


async def test_all_answers_have_a_strict_policy(guarded: Any) -> None:
    client, _ = guarded
    for path in ("/ui/login", "/ui/me", "/ui/static/pages.css", "/ui/static/nothing.css"):
        headers = (await client.get(path)).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; style-src 'self'; script-src 'self';")
        assert "unsafe" not in headers["content-security-policy"]
        assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY")


async def test_a_form_that_is_too_large_is_refused(guarded: Any) -> None:
    client, _ = guarded
    assert (await client.post("/ui/login", data={"key": "x" * 100_000})).status_code == 413
    assert (await client.post("/ui/login", data={f"f{n}": "x" for n in range(100)})).status_code == 400


async def test_a_reader_logs_in_and_out_with_the_keyboard(
    browser: SharedBrowser, make_service: Callable[..., Any], listen: Any, database: Database
) -> None:
    key = mint_key(database, name="reader", scopes=["read"])
    access = Access(database)
    await access.load()
    app = app_of(access)
    async with listen(app) as url:

        async def visit(page: Any) -> None:
            await page.goto(f"{url}/ui/me")
            await check_accessible(page)
            await expect(page.locator("#key")).to_be_focused()
            await page.keyboard.type(key)
            await page.keyboard.press("Enter")
            await page.wait_for_url("**/ui/me")
            assert "reader reader" in await page.inner_text("main")
            await check_accessible(page)
            await page.get_by_role("button", name="Log out").press("Enter")
            await page.wait_for_url("**/ui/login")
            assert await page.context.cookies() == []

        await browser.visit(visit)
        await browser.visit(visit, color_scheme="dark", viewport={"width": 360, "height": 640})


async def test_the_judge_server_has_the_login(make_service: Callable[..., Any], connect: Any) -> None:
    async with connect(create_app(make_service([]))) as client:
        assert "API key" in (await client.get("/ui/login")).text

"""The browser of the tests finds scripts that run, violations of a policy, and errors of accessibility."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from starlette.responses import HTMLResponse

from tests.browser import SharedBrowser, check_accessible
from tests.servers import serve_async

PAGE = "<!DOCTYPE html><html lang=en><title>t</title><main><h1>h</h1>{}</main>"


def app_of(body: str, *, policy: str) -> FastAPI:
    app = FastAPI()

    @app.get("/")
    async def page() -> HTMLResponse:
        return HTMLResponse(PAGE.format(body), headers={"Content-Security-Policy": policy})

    return app


@pytest.mark.parametrize(
    ("body", "policy", "problem"),
    [
        ("<script>document.title = 1</script>", "script-src 'none'", "Content Security Policy"),
        ("<b style='color: red'>x</b>", "style-src 'none'", "Content Security Policy"),
        ("<script>alert(1)</script>", "img-src data:", "dialog: 1"),
        ("<script>nothing()</script>", "img-src data:", "nothing is not defined"),
    ],
)
async def test_a_visit_fails_if_the_page_runs_or_breaks(
    browser: SharedBrowser, body: str, policy: str, problem: str
) -> None:
    async with serve_async(app_of(body, policy=policy + "; img-src data:")) as url:

        async def visit(page: Any) -> None:
            await page.goto(url)

        with pytest.raises(AssertionError, match=problem):
            await browser.visit(visit)


@pytest.mark.parametrize(
    ("body", "rule"),
    [("<input>", "label"), ("<p style='color: #bbb; background: #fff'>pale text</p>", "color-contrast")],
)
async def test_errors_of_accessibility_are_found(browser: SharedBrowser, body: str, rule: str) -> None:
    async with serve_async(app_of(body, policy="default-src 'none'; style-src 'unsafe-inline'; img-src data:")) as url:

        async def visit(page: Any) -> None:
            await page.goto(url)
            with pytest.raises(AssertionError, match=rule):
                await check_accessible(page)

        await browser.visit(visit)

"""A real browser for tests of pages: Chromium, driven by Playwright in a thread, and the rules of axe-core."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Dialog, Page, async_playwright

START_S = 180.0
"""Maximum seconds until Chromium has started."""

TIMEOUT_MS = 60_000
"""Maximum duration of one step of a test, such as a click."""

SERIOUS = ("serious", "critical")
"""Impacts of findings of axe-core that fail a test."""

Visit = Callable[[Page], Awaitable[None]]
"""What a test does with an empty page."""


def chromium_path() -> str | None:
    """Path of Chromium: `TIRJUDGE_TEST_CHROMIUM`, or `chromium` on the path. None: it is not installed."""
    return os.environ.get("TIRJUDGE_TEST_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


class SharedBrowser:
    """A browser in a thread. Tests in different event loops share it, because it takes a second to start."""

    def __init__(self, browser: Browser, *, loop: asyncio.AbstractEventLoop) -> None:
        self._browser = browser
        self._loop = loop

    async def visit(self, visit: Visit, **options: Any) -> None:
        """Run a function with a new page. Fail if the page causes an error, a violation of its policy, or a dialog.

        Args:
            visit: what to do.
            options: for `Browser.new_context`, such as `color_scheme` or `viewport`.
        """
        done = asyncio.run_coroutine_threadsafe(self._visit(visit, options), self._loop)
        await asyncio.wrap_future(done)

    async def _visit(self, visit: Visit, options: dict[str, Any]) -> None:
        context = await self._browser.new_context(**options)
        context.set_default_timeout(TIMEOUT_MS)
        problems: list[str] = []
        # A violation of the policy is an error in the console.
        context.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
        context.on("weberror", lambda error: problems.append(str(error.error)))

        async def dismiss(dialog: Dialog) -> None:
            problems.append(f"dialog: {dialog.message}")
            await dialog.dismiss()

        context.on("dialog", dismiss)
        try:
            await visit(await context.new_page())
        finally:
            await context.close()
        assert not problems, problems


async def check_accessible(page: Page) -> None:
    """Check a page with axe-core, including the contrast of its colors.

    Raises:
        AssertionError: there is a serious finding.
    """
    results = await Axe().run(page)
    found = [
        (rule["id"], node["html"][:200], node["failureSummary"])
        for rule in results.response["violations"]
        if rule["impact"] in SERIOUS
        for node in rule["nodes"]
    ]
    assert not found, found


@contextmanager
def shared_browser() -> Iterator[SharedBrowser]:
    """Start Chromium; stop it at the end."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="test browser")
    thread.start()

    async def start() -> tuple[Any, Browser]:
        playwright = await async_playwright().start()
        # Without a GPU, its process would compute in software what Chromium draws faster by itself.
        # Root cannot use Chromium's own sandbox. The tests open pages of this project only.
        options = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        return playwright, await playwright.chromium.launch(executable_path=chromium_path(), args=options)

    async def stop() -> None:
        await browser.close()
        await playwright.stop()

    try:
        playwright, browser = asyncio.run_coroutine_threadsafe(start(), loop).result(START_S)
        try:
            yield SharedBrowser(browser, loop=loop)
        finally:
            asyncio.run_coroutine_threadsafe(stop(), loop).result(START_S)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(START_S)
        loop.close()

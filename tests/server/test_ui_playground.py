"""The playground: forms with and without scripts, errors at fields, code that runs, and hostile texts in a real browser."""

from __future__ import annotations

import asyncio
import html
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from playwright.async_api import expect

from tests.browser import TIMEOUT_MS, SharedBrowser, check_accessible
from tests.held_engine import HeldEngine
from tests.servers import LABEL_PROBS, mint_key
from tirjudge.types import JudgeRequest, Judgment, prompt_text
from tirjudge_pages.request_form import RequestForm
from tirjudge_server.access import Access
from tirjudge_server.app import create_app
from tirjudge_server.demo import REQUESTS
from tirjudge_server.records.record import versions_of
from tirjudge_server.records.store import open_records
from tirjudge_server.service import JudgeService

PAGE = {"accept": "text/html"}
STREAM = {"accept": "text/event-stream"}

COUNTS = "Count commas.\n```python\nprint('counted', len(prompt))\n```\n```output"
VERDICTS = {
    "pairwise": "<preference>B</preference>",
    "listwise": "<preference>C</preference>",
    "pointwise": "<score>7</score>",
}
FIELDS = {"mode": "pairwise", "prompt": "Which is longer?", "responses.0": "one", "responses.1": "three"}
TOOLLESS = FIELDS | {"tools": "off"}

HOSTILE = (
    "</textarea></pre></script><script>alert(1)</script><img src=x onerror=alert(2)>\"'><a href='javascript:alert(3)'>x</a>"
    "{{ 7 * 7 }}{% raw %}'''\"\"\"\\ $(id) `id` EOF\nEOF\n"
    "\x1b[31mred\x1b]0;t\x07\u202eevil\u2066\u200b\u2028 &lt;b&gt; <!-- ]]>"
    "<style>*{display:none}</style>"
)
"""Markup, templates, quotes of several languages, terminal escapes, and characters that reorder or hide text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server, and a client that keeps cookies."""

    app: FastAPI
    service: JudgeService
    client: httpx2.AsyncClient
    keys: dict[str, str]

    async def log_in(self, name: str) -> None:
        self.client.cookies.clear()
        assert (await self.client.post("/ui/login", data={"key": self.keys[name]})).status_code == 303

    async def submit(self, fields: dict[str, str], *, headers: dict[str, str] = PAGE, **more: str) -> httpx2.Response:
        page = await self.client.get("/", headers=PAGE)
        token = page.text.partition('name="csrf" value="')[2].partition('"')[0]
        return await self.client.post("/", data=fields | more | {"csrf": token}, headers=headers)


Serve = Callable[..., Any]


@pytest.fixture
def serve(make_service: Any, connect: Any, tmp_path: Path) -> Serve:
    @asynccontextmanager
    async def serving(
        texts: Any,
        *,
        keys: dict[str, list[str]] | None = None,
        limits: dict[str, Any] | None = None,
        has_records: bool = False,
        **options: Any,
    ) -> AsyncIterator[Server]:
        service = make_service(texts if callable(texts) else cycle(texts), **options)
        if keys is None and not has_records:
            app = create_app(service)
            async with connect(app) as client:
                yield Server(app=app, service=service, client=client, keys={})
            return
        versions = versions_of(service.judge, fingerprint=service.fingerprint, isolation=service.isolation)
        async with open_records(str(tmp_path / "records.db"), versions=versions) as records:
            service.records = records
            made = {
                name: mint_key(records.database, name=name, scopes=scopes, **(limits or {}))
                for name, scopes in (keys or {}).items()
            }
            access = Access(records.database)
            await access.load()
            app = create_app(service, records=records, access=access)
            async with connect(app) as client:
                yield Server(app=app, service=service, client=client, keys=made)

    return serving


def parts_of(stream: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in stream.splitlines() if line.startswith("data: ")]


# Clients of the API.


@pytest.mark.slow
@pytest.mark.parametrize("headers", [{"accept": "application/json"}, {"accept": "*/*"}, {}])
async def test_clients_of_the_api_get_its_paths(serve: Serve, headers: dict[str, str]) -> None:
    async with serve([]) as server:
        answer = await server.client.get("/", headers=headers)
        assert (answer.status_code, answer.headers["vary"]) == (200, "Accept")
        paths = answer.json()
        assert paths["judge"] == "/v1/judge"
        for name in ("openapi", "health", "ready"):
            assert (await server.client.get(paths[name])).status_code in (200, 503), name


# Without scripts.


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.mode)
async def test_each_example_can_be_judged_without_scripts(serve: Serve, request_: JudgeRequest) -> None:
    async with serve([COUNTS, VERDICTS[request_.mode]]) as server:
        page = await server.client.get(f"/?example={request_.mode}", headers=PAGE)
        for text in request_.responses:
            assert html.escape(text) in page.text
        form = RequestForm.of_request(request_)
        answer = await server.submit(dict(form.values), action="judge")
        assert answer.status_code == 200
        code = answer.text.partition('<pre class="code"')[2].partition("</pre>")[0]
        assert '<span class="s">&#39;counted&#39;</span>' in code
        for shown in ("Count commas.", "counted ", "1 tool calls"):
            assert shown in answer.text


async def test_a_request_has_all_options_of_the_form(serve: Serve) -> None:
    seen: list[JudgeRequest] = []
    options = {"reference": "three", "rubric": "Length.", "tools": "off", "orders": "both", "votes": "2"}
    criteria = {"criteria.0.text": "longer", "criteria.0.weight": "0.5", "criteria.1.text": "", "criteria.1.weight": ""}
    async with serve(["<preference>B</preference>"]) as server:
        server.service.on_end.append(lambda request, call, outcome: seen.append(request))
        answer = await server.submit(FIELDS | options | criteria)
    assert answer.status_code == 200
    assert answer.text.count('<article class="panel" id="result-rollout-') >= 2
    assert seen[0] == JudgeRequest.model_validate(
        {
            "mode": "pairwise", "prompt": "Which is longer?", "responses": ["one", "three"], "reference": "three",
            "rubric": "Length.", "criteria": [{"text": "longer", "weight": 0.5}], "tools": "off", "orders": "both",
            "votes": 2,
        }
    )  # fmt: skip


async def test_fields_are_added_and_texts_stay(serve: Serve) -> None:
    async with serve([]) as server:
        more = await server.submit(FIELDS | {"prompt": "\n\n <b>&amp; kept"}, action="response")
        assert '<textarea id="responses.2" name="responses.2"' in more.text
        assert "\n\n\n &lt;b&gt;&amp;amp; kept</textarea>" in more.text
        assert 'name="criteria.1.weight"' in (await server.submit(FIELDS, action="criterion")).text


@pytest.mark.slow
async def test_many_turns_are_cut(serve: Serve) -> None:
    def script(sequence: str) -> str:
        return "<score>7</score>"

    async with serve(script) as server:
        fields = {"mode": "pointwise", "prompt": "p", "tools": "off", "votes": "11", "action": "judge"}
        answers = {f"responses.{n}": f"answer {n}" for n in range(12)}
        page = await server.submit(fields | answers)
        parts = parts_of((await server.submit(fields | answers, headers=STREAM, prompt="q")).text)
    assert page.text.count('class="turn"') == 100
    assert "more turns are not shown" in page.text
    assert sum(part["target"] == "turn" for part in parts) == 100
    assert "more turns are not shown" in parts[-1]["html"]


# Errors.


@pytest.mark.parametrize(
    ("fields", "field", "text"),
    [
        ({"votes": "0"}, "votes", "votes: 0 given"),
        ({"responses.1": ""}, "responses", "pairwise compares exactly 2 responses, 1 given"),
        ({"criteria.0.text": "x", "criteria.0.weight": "-1"}, "criteria.0.weight", "criteria.0.weight: -1.0 given"),
    ],
)
async def test_an_error_is_shown_at_its_field(serve: Serve, fields: dict[str, str], field: str, text: str) -> None:
    async with serve([]) as server:
        page = await server.submit(FIELDS | fields)
        (part,) = parts_of((await server.submit(FIELDS | fields, headers=STREAM)).text)
    assert page.status_code == 400
    slot = page.text.partition(f'id="problem-{field}" role="alert">')[2].partition("</p>")[0]
    assert text in html.unescape(slot)
    assert (part["target"], part["field"], part["is_last"]) == ("problem", field, True)
    assert text in part["text"]


async def test_failures_of_the_server_are_said_in_words(serve: Serve) -> None:
    async with serve([]) as server:  # the model has no text, so the engine is unavailable
        page = await server.submit(TOOLLESS)
        assert page.status_code == 503
        assert "the script has no more texts" in page.text
        assert "Try again in 2 s." in page.text
        assert 'value="three"' not in page.text
        assert "\nthree</textarea>" in page.text
        *_, last = parts_of((await server.submit(TOOLLESS | {"prompt": "other"}, headers=STREAM)).text)
        assert last["target"] == "problem"


async def test_a_full_queue_is_a_429_in_words(serve: Serve, until: Any) -> None:
    async with serve([], max_queue=0, max_concurrency=1) as server:
        server.service.judge = replace(server.service.judge, engine=HeldEngine([], label_probs=LABEL_PROBS))
        async with asyncio.TaskGroup() as group:
            first = group.create_task(server.submit(TOOLLESS))
            await until(lambda: server.service.admission.num_running)
            page = await server.submit(TOOLLESS | {"prompt": "other"})
            first.cancel()
    assert page.status_code == 429
    assert "Try again in" in page.text


# Access.


async def test_a_reader_logs_in_first_and_code_has_no_key(serve: Serve) -> None:
    async with serve(["<preference>B</preference>"], keys={"full": ["judge", "read"]}) as server:
        assert (await server.client.get("/", headers=PAGE)).headers["location"] == "/ui/login?next=%2F"
        assert (await server.client.get("/")).json()["name"] == "tirjudge"
        assert (await server.client.post("/", data=TOOLLESS, headers=PAGE)).status_code == 401
        (part,) = parts_of((await server.client.post("/", data=TOOLLESS, headers=STREAM)).text)
        assert part["target"] == "problem"
        await server.log_in("full")
        page = await server.submit(TOOLLESS)
        assert page.status_code == 200
        assert "$TIRJUDGE_API_KEY" in page.text
        assert server.keys["full"] not in page.text
        assert (await server.client.post("/", data=TOOLLESS, headers=PAGE)).status_code == 403


async def test_a_key_needs_the_scope_judge_and_sees_records_with_read(serve: Serve) -> None:
    async with serve(["<preference>B</preference>"], keys={"judge": ["judge"], "read": ["read"]}) as server:
        await server.log_in("judge")
        page = await server.submit(TOOLLESS)
        assert "jdg_" in page.text
        assert "/ui/judgments/" not in page.text
        await server.log_in("read")
        page = await server.client.get("/", headers=PAGE)
        assert "lacks the scope <code>judge</code>" in page.text
        assert "<textarea" not in page.text
        token = page.text.partition('name="csrf" value="')[2].partition('"')[0]
        refused = await server.client.post("/", data=TOOLLESS | {"csrf": token}, headers=PAGE)
        assert refused.status_code == 403


async def test_limits_of_the_key_hold(serve: Serve) -> None:
    async with serve([], keys={"few": ["judge"]}, limits={"rpm": 2}) as server:
        await server.log_in("few")
        await server.submit(TOOLLESS, action="code")
        refused = await server.client.post("/", data=TOOLLESS, headers=STREAM)
        (part,) = parts_of(refused.text)
    assert "Try again in" in part["text"]


async def test_judgments_of_the_playground_are_recorded_for_its_reader(serve: Serve) -> None:
    async with serve(["<preference>B</preference>"], keys={"full": ["judge", "read"]}) as server:
        await server.log_in("full")
        parts = parts_of((await server.submit(TOOLLESS, headers=STREAM)).text)
        targets = [part["target"] for part in parts]
        assert targets == ["status", "code", "status", "turn", "status", "result"]
        record_id = parts[-1]["html"].partition('<a href="/ui/judgments/')[2].partition('"')[0]
        headers = {"authorization": f"Bearer {server.keys['full']}"}
        record = (await server.client.get(f"/v1/judgments/{record_id}", headers=headers)).json()
    assert (record["dialect"], record["caller"]) == ("playground", "full")


# Code.


async def test_code_has_the_public_url(make_service: Any, connect: Any) -> None:
    for public_url, shown in ((None, "http://"), ("https://judge.example", "https://judge.example")):
        service = make_service([])
        async with connect(create_app(service, public_url=public_url)) as client:
            server = Server(app=FastAPI(), service=service, client=client, keys={})
            page = await server.submit(TOOLLESS, action="code")
        assert f"curl -sS &#39;{shown}" in page.text
        assert ("https://judge.example" in page.text) == (public_url is not None)


async def run_curl(code: str) -> str:
    running = await asyncio.create_subprocess_exec("sh", "-c", code, stdout=asyncio.subprocess.PIPE)
    output, _ = await running.communicate()
    assert running.returncode == 0
    return output.decode()


async def run_python(code: str) -> str:
    printed: list[str] = []
    await asyncio.to_thread(exec, code, {"print": printed.append})
    return printed[0]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("text", ['It\'s "so" $HOME\n\\n', HOSTILE], ids=["quotes", "hostile"])
@pytest.mark.parametrize("has_keys", [False, True])
async def test_code_sends_the_same_request(
    serve: Serve, listen: Any, monkeypatch: pytest.MonkeyPatch, has_keys: bool, text: str
) -> None:
    fields = TOOLLESS | {"prompt": text, "responses.1": text, "rubric": text, "criteria.0.text": text, "votes": "2"}
    asked = RequestForm.of_form(fields).request()
    seen: list[JudgeRequest] = []
    async with serve(
        lambda sequence: "<preference>B</preference>", keys={"k": ["judge"]} if has_keys else None
    ) as server:
        server.service.records = None  # so that each request is judged
        server.service.on_end.append(lambda request, call, outcome: seen.append(request))
        monkeypatch.setenv("TIRJUDGE_API_KEY", server.keys.get("k", ""))
        async with listen(server.app) as url:
            async with httpx2.AsyncClient(base_url=url) as client:
                opened = replace(server, client=client)
                if has_keys:
                    await opened.log_in("k")
                page = await opened.submit(fields, action="code")
            codes = [
                html.unescape(part.partition("</pre>")[0]) for part in page.text.split('aria-label="Code for ')[1:]
            ]
            curl, python, openai = (code.partition(">")[2] for code in codes)
            for code in (curl, python, openai):
                assert code.isascii()
                assert server.keys.get("k", "tj_") not in code
            judgments = [Judgment.model_validate_json(await run_curl(curl))]
            judgments.append(Judgment.model_validate_json(await run_python(python)))
            verdict = json.loads(await run_python(openai))
    # A chat names the model, and its messages are the prompt.
    *same, chat = seen
    assert same == [asked, asked]
    assert chat.model_copy(update={"model": None, "prompt": prompt_text(chat.prompt)}) == asked
    assert {judgment.verdict.label for judgment in judgments} == {verdict["label"]}


# In a browser.


async def tab_to(page: Any, selector: str) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(60):
        if await page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
        await page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not reach {selector}")


async def test_a_judgment_is_made_with_the_keyboard_and_streams_in(
    browser: SharedBrowser, serve: Serve, listen: Any
) -> None:
    async with serve([]) as server:
        engine = HeldEngine([COUNTS, "So.\n<preference>B</preference>"], label_probs=LABEL_PROBS)
        server.service.judge = replace(server.service.judge, engine=engine)
        async with listen(server.app) as url:
            loop = asyncio.get_running_loop()

            async def visit(page: Any) -> None:
                await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
                await page.goto(url)
                for selector, text in (
                    ("#prompt", "Which is longer?"),
                    ("#responses\\.0", "one"),
                    ("#responses\\.1", "two"),
                ):
                    await tab_to(page, selector)
                    await page.keyboard.type(text)
                await tab_to(page, "button.primary")
                await page.keyboard.press("Enter")
                await expect(page.locator("#status")).to_contain_text("accepted", timeout=TIMEOUT_MS)
                assert await page.locator(".turn").count() == 0
                assert await page.locator("#cancel").is_visible()
                await expect(page.locator("#elapsed")).to_contain_text(" s", timeout=TIMEOUT_MS)
                loop.call_soon_threadsafe(engine.allow, 1)
                await page.wait_for_selector(".turn")
                assert await page.locator(".turn").count() == 1
                assert "counted 16" in await page.inner_text(".turn")
                assert await page.locator("#result-verdict").count() == 0
                loop.call_soon_threadsafe(engine.allow, 1)
                await page.wait_for_selector("#result-verdict")
                assert await page.locator(".turn").count() == 2
                await expect(page.locator("#status")).to_have_text("Done.", timeout=TIMEOUT_MS)
                await expect(page.locator("#cancel")).to_be_hidden(timeout=TIMEOUT_MS)
                await check_accessible(page)
                await tab_to(page, "button[data-copy=code-python]")
                await page.keyboard.press("Enter")
                await expect(page.locator("[data-copy=code-python]")).to_have_text("Copied", timeout=TIMEOUT_MS)
                copied = await page.evaluate("navigator.clipboard.readText()")
                assert copied == await page.evaluate("document.getElementById('code-python').textContent")
                assert copied.startswith("from tirjudge import")

            await browser.visit(visit)


async def test_the_record_of_a_judgment_is_opened_with_the_keyboard(
    browser: SharedBrowser, serve: Serve, listen: Any
) -> None:
    texts = [COUNTS, "<preference>B</preference>"]
    async with serve(texts, has_records=True) as server, listen(server.app) as url:

        async def visit(page: Any) -> None:
            await page.goto(f"{url}/?example=pairwise")
            await tab_to(page, "button.primary")
            await page.keyboard.press("Enter")
            await page.wait_for_selector("a[href^='/ui/judgments/']")
            await tab_to(page, "a[href^='/ui/judgments/']")
            await page.keyboard.press("Enter")
            await page.wait_for_url("**/ui/judgments/jdg_*")
            assert "Count commas." in await page.inner_text("main")

        await browser.visit(visit)


async def test_cancel_ends_the_judgment(browser: SharedBrowser, serve: Serve, listen: Any, until: Any) -> None:
    async with serve([]) as server:
        engine = HeldEngine(["<preference>B</preference>"], label_probs=LABEL_PROBS)
        server.service.judge = replace(server.service.judge, engine=engine)
        async with listen(server.app) as url:

            async def visit(page: Any) -> None:
                await page.goto(f"{url}/?example=pairwise")
                await page.get_by_role("button", name="Judge").press("Enter")
                await expect(page.locator("#status")).to_contain_text("accepted", timeout=TIMEOUT_MS)
                await page.get_by_role("button", name="Cancel").press("Enter")
                await expect(page.locator("#status")).to_have_text("Cancelled.", timeout=TIMEOUT_MS)
                assert await page.evaluate("document.activeElement.textContent") == "Judge"

            await browser.visit(visit)
            await until(lambda: engine.num_held == 0 and server.service.admission.num_running == 0)


async def test_an_error_moves_the_focus_to_its_field(browser: SharedBrowser, serve: Serve, listen: Any) -> None:
    async with serve([COUNTS, "<preference>B</preference>"]) as server, listen(server.app) as url:

        async def visit(page: Any) -> None:
            await page.goto(f"{url}/?example=pairwise")
            await page.locator("summary").first.press("Enter")
            await page.fill("#votes", "0")
            await page.keyboard.press("Enter")
            await page.wait_for_selector("#problem-votes:not([hidden])")
            assert await page.evaluate("document.activeElement.id") == "votes"
            assert "votes: 0 given" in await page.inner_text("#problem-votes")
            await check_accessible(page)
            await page.fill("#votes", "1")
            await page.keyboard.press("Enter")
            await page.wait_for_selector("#result-verdict")
            assert not await page.locator("#problem-votes").is_visible()

        await browser.visit(visit)


async def test_the_connection_ends_before_the_verdict(browser: SharedBrowser, serve: Serve, listen: Any) -> None:
    async with serve([]) as server:
        engine = HeldEngine([], label_probs=LABEL_PROBS)
        server.service.judge = replace(server.service.judge, engine=engine)
        async with listen(server.app) as url:
            loop = asyncio.get_running_loop()

            async def visit(page: Any) -> None:
                await page.goto(f"{url}/?example=pairwise")
                await page.get_by_role("button", name="Judge").click()
                await expect(page.locator("#status")).to_contain_text("accepted", timeout=TIMEOUT_MS)
                loop.call_soon_threadsafe(engine.allow, 1)  # the script has no text
                await page.wait_for_selector("#problem-:not([hidden])")
                assert "no more texts" in await page.inner_text("#problem-")

            await browser.visit(visit)


@pytest.mark.parametrize("options", [{"java_script_enabled": False}, {}], ids=["no-script", "script"])
async def test_pages_fit_a_phone_in_the_dark(
    browser: SharedBrowser, serve: Serve, listen: Any, options: dict[str, Any]
) -> None:
    wide = "```python\nprint('w' * 3000)\n```\n```output"
    async with serve([wide, "m" * 3000 + "<preference>B</preference>"]) as server, listen(server.app) as url:

        async def visit(page: Any) -> None:
            await page.goto(f"{url}/?example=listwise")
            await page.locator("summary").first.click()
            await page.fill("#prompt", "p" * 3000)
            await page.get_by_role("button", name="Judge").click()
            await page.wait_for_selector("#result-verdict")
            width, inner = await page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
            assert (width, inner) == (390, 390)
            if not options:
                await check_accessible(page)

        await browser.visit(visit, color_scheme="dark", viewport={"width": 390, "height": 800}, **options)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"java_script_enabled": False}, {}], ids=["no-script", "script"])
async def test_hostile_texts_run_nothing_and_break_nothing(
    browser: SharedBrowser, serve: Serve, listen: Any, options: dict[str, Any]
) -> None:
    prints = f"{HOSTILE}\n```python\nprint(prompt)\nprint('y' * 100_000)\n```\n```output"
    async with serve([prints, HOSTILE + "<preference>B</preference>"]) as server:
        profile = server.service.judge.profile.model_copy(update={"context_tokens": 10**8, "rollout_tokens": 10**7})
        server.service.judge = replace(server.service.judge, profile=profile)
        seen: list[JudgeRequest] = []
        server.service.on_end.append(lambda request, call, outcome: seen.append(request))
        async with listen(server.app) as url:

            async def visit(page: Any) -> None:
                await page.goto(url)
                await page.locator("summary").first.click()
                for name in ("reference", "rubric", "responses\\.1"):
                    await page.fill(f"#{name}", HOSTILE)
                await page.fill("#criteria\\.0\\.text", HOSTILE.replace("\n", " "))
                await page.fill("#prompt", HOSTILE)
                await page.fill("#responses\\.0", HOSTILE + "z" * 1_000_000)
                await page.get_by_role("button", name="Judge").click()
                await page.wait_for_selector("#result-verdict")
                shown = await page.inner_text("#result")
                assert "<script>alert(1)</script>" in shown
                assert "\\x1b[31mred" in shown
                assert not set("\x1b\u202e\u2066\u200b\u2028") & set(shown)
                assert await page.locator("main script, main img, main style, a[href^=javascript]").count() == 0
                assert "too long to be shown as code" in await page.inner_text("#code")
                # Texts of fields stay as they were given.
                assert await page.input_value("#rubric") == HOSTILE
                width, inner = await page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
                assert width == inner
                if not options:
                    await check_accessible(page)
                else:
                    assert await page.locator("#judgment:focus").count() == 1

            await browser.visit(visit, **options)
    assert seen[0].prompt == HOSTILE
    assert len(seen[0].responses[0]) == len(HOSTILE) + 1_000_000


async def test_hostile_values_of_every_field_are_refused_or_shown(
    browser: SharedBrowser, serve: Serve, listen: Any
) -> None:
    async with serve([]) as server, listen(server.app) as url:

        async def visit(page: Any) -> None:
            await page.goto(f"{url}/?example={HOSTILE}")
            await page.locator("summary").first.click()
            for name in ("responses\\.0", "responses\\.1"):
                await page.fill(f"#{name}", HOSTILE)
            await page.fill("#votes", HOSTILE.replace("\n", " "))
            await page.get_by_role("button", name="Judge").click()
            await page.wait_for_selector("#problem-votes:not([hidden])")
            assert not set("\x1b\u202e") & set(await page.inner_text("main"))
            await page.evaluate("document.querySelector('#mode option').value = 'm'.repeat(1_000_000) + '<script>'")
            await page.get_by_role("button", name="Judge").click()
            await page.wait_for_selector("#problem-mode:not([hidden])")
            assert len(await page.inner_text("#problem-mode")) < 3_000

        await browser.visit(visit)

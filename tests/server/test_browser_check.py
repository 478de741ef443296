"""Checks of the Host and Origin headers, which protect a server from web pages of other sites, over real sockets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from tests.server.raw_http import Caller, serving, talk
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.judge import Judge
from tirjudge_sandbox import SandboxPool
from tirjudge_sandbox.app import create_app as create_sandbox
from tirjudge_sandbox.service import SandboxService
from tirjudge_server.app import create_app
from tirjudge_server.service import JudgeService
from tirjudge_server.worker import create_worker
from tirjudge_web.browser_check import AllowedHosts

BODY = {"mode": "pairwise", "prompt": "p", "responses": ["a", "b"], "tools": "off"}
HOSTS = AllowedHosts(given=("judge.example",), bound="box.lan")
KEYLESS = AllowedHosts(bound="127.0.0.1")


def judge(hosts: AllowedHosts | None = KEYLESS) -> FastAPI:
    engine = ScriptedEngine(lambda _: "<preference>A</preference>")
    return create_app(JudgeService(Judge(engine=engine)), hosts=hosts)


def post(*fields: str, target: str = "/v1/judge", version: str = "1.1", host: str | None = "localhost:8400") -> bytes:
    body = json.dumps(BODY).encode()
    named = [] if host is None else [f"Host: {host}"]
    lines = [f"POST {target} HTTP/{version}", *named, *fields, "Connection: close", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def get(path: str, *fields: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", *fields, "Connection: close", "", ""]).encode("latin-1")


@pytest.mark.parametrize(
    ("host", "is_taken"),
    [
        ("localhost", True),
        ("LocalHost:8400", True),
        ("localhost.:8400", True),
        ("127.0.0.1:1", True),
        ("192.168.1.7", True),
        ("[::1]:8400", True),
        ("[::1]", True),
        ("box.lan:8400", True),
        ("Judge.Example", True),
        ("judge.example.:443", True),
        ("attacker.example:8400", False),
        ("localhost.attacker.example", False),
        ("127.0.0.1.attacker.example", False),
        ("attacker.example@localhost", False),
        ("localhost@attacker.example", False),
        ("localhost, attacker.example", False),
        ("attacker.example#localhost", False),
        ("2130706433", False),
        ("0x7f000001", False),
        ("::1", False),
        ("[attacker.example]", False),
        ("localhost:80:90", False),
        ("localhost:port", False),
        ("", False),
    ],
)
async def test_server_without_keys_accepts_only_its_own_host_names(host: str, is_taken: bool) -> None:
    async with serving(judge(HOSTS)) as port:
        [(status, body)] = await talk(port, post(host=host))
        [(alive, _)] = await talk(port, get("/health", f"Host: {host}"))
    assert alive == 200
    assert status == (200 if is_taken else 421)
    if not is_taken:
        assert body["error"]["code"] == "host_not_allowed"
        assert "--allowed-host NAME" in body["error"]["message"]


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (post(host=None), 421),
        (post(host=None, version="1.0"), 200),
        (post("Host: attacker.example"), 421),
        (post("Host: localhost:8400"), 421),
        (post("X-Forwarded-Host: attacker.example", "Forwarded: host=attacker.example"), 200),
        (post("X-Forwarded-Host: localhost", host="attacker.example"), 421),
        (post(target="http://attacker.example/v1/judge"), 421),
        (post(target="http://localhost/v1/judge", host="attacker.example"), 200),
    ],
    ids=[
        "no host",
        "no host in HTTP/1.0",
        "two hosts",
        "same host twice",
        "forwarded foreign host",
        "forwarded own host",
        "target with foreign host",
        "target with own host",
    ],
)
async def test_host_names_in_unusual_places_are_checked(request_: bytes, status: int) -> None:
    async with serving(judge()) as port:
        assert [status for status, _ in await talk(port, request_)] == [status]


async def test_foreign_host_is_escaped_and_truncated_in_error() -> None:
    async with serving(judge()) as port:
        [(_, body)] = await talk(port, post(host="<script>" + "é" * 500))
    assert body["error"]["message"].startswith('Host: "<script>\\u00e9')
    assert len(body["error"]["message"]) < 250


SAME = "http://localhost:8400"


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ([], 200),
        ([f"Origin: {SAME}", "Sec-Fetch-Site: same-origin"], 200),
        (["Origin: https://localhost:8400"], 200),
        (["Sec-Fetch-Site: none"], 200),
        (["Origin: http://LOCALHOST:8400"], 200),
        (["Origin: http://attacker.example"], 403),
        (["Origin: http://localhost:3000"], 403),
        (["Origin: http://localhost"], 403),
        (["Origin: http://127.0.0.1:8400"], 403),
        (["Origin: null"], 403),
        (["Origin: "], 403),
        (["Origin: file://"], 403),
        (["Origin: http://localhost:8400.attacker.example"], 403),
        (["Origin: http://localhost:8400@attacker.example"], 403),
        (["Origin: http://attacker.example/localhost:8400"], 403),
        (["Origin: chrome-extension://localhost:8400"], 403),
        ([f"Origin: {SAME}", "Origin: http://attacker.example"], 403),
        (["Sec-Fetch-Site: cross-site"], 403),
        (["Sec-Fetch-Site: same-site"], 403),
        (["Sec-Fetch-Site: Cross-Site"], 403),
        ([f"Origin: {SAME}", "Sec-Fetch-Site: cross-site"], 403),
    ],
)
@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", None])
async def test_web_pages_of_other_sites_cannot_request_judgments(
    fields: list[str], status: int, content_type: str | None
) -> None:
    kind = [] if content_type is None else [f"Content-Type: {content_type}"]
    async with serving(judge(None)) as port:
        [(answered, body)] = await talk(port, post(*fields, *kind))
    assert answered == status
    if status == 403:
        assert body["error"]["code"] == "cross_site_request"


LINK = ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")


@pytest.mark.parametrize(
    ("path", "fields", "status"),
    [
        ("/", LINK, 200),
        ("/docs", LINK, 200),
        ("/ui/login", LINK, 200),
        ("/ui/login", ("Sec-Fetch-Site: same-site", *LINK[1:]), 200),
        ("/v1/models", LINK, 403),
        ("/openapi.json", LINK, 403),
        ("/uix", LINK, 403),
        ("/", ("Sec-Fetch-Site: cross-site",), 403),
        ("/", (*LINK[:2], "Sec-Fetch-Dest: iframe"), 403),
        ("/", (LINK[0], "Sec-Fetch-Mode: cors", LINK[2]), 403),
        ("/", (LINK[0], "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: script"), 403),
        ("/", (*LINK, "Origin: http://attacker.example"), 403),
        ("/", (*LINK, "Sec-Fetch-Mode: cors"), 403),
    ],
)
async def test_a_link_on_another_site_opens_pages_only(path: str, fields: tuple[str, ...], status: int) -> None:
    async with serving(judge()) as port:
        caller = await Caller.connect(port)
        caller.send(get(path, "Host: localhost", "Accept: text/html", *fields))
        answer = await caller.read_all()
        await caller.end()
    assert answer.startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.parametrize("path", ["/", "/ui/login", "/ui/logout", "/v1/judge"])
async def test_a_form_on_another_site_sends_nothing(path: str) -> None:
    async with serving(judge()) as port:
        [(status, _)] = await talk(port, post(*LINK, target=path, host="localhost"))
        [(also, _)] = await talk(port, post("Origin: null", *LINK, target=path, host="localhost"))
    assert (status, also) == (403, 403)


async def test_a_link_on_another_host_name_opens_nothing() -> None:
    async with serving(judge()) as port:
        [(status, _)] = await talk(port, get("/v1/models", "Host: attacker.example", *LINK))
        [(page, _)] = await talk(port, get("/", "Host: attacker.example", *LINK))
    assert (status, page) == (421, 421)


async def test_http_origin_is_foreign_to_https_server() -> None:
    forwarded = "X-Forwarded-Proto: https"  # taken from a proxy on this machine
    async with serving(judge(None)) as port:
        plain = await talk(port, post("Origin: http://judge.example", forwarded, host="judge.example"))
        secure = await talk(port, post("Origin: https://judge.example", forwarded, host="judge.example"))
    assert [plain[0][0], secure[0][0]] == [403, 200]


async def test_other_sites_can_read_health_endpoints_only() -> None:
    foreign = ("Host: localhost", "Origin: http://attacker.example", "Sec-Fetch-Site: cross-site")
    async with serving(judge()) as port:
        statuses = {
            path: (await talk(port, get(path, *foreign)))[0][0]
            for path in ("/health", "/ready", "/metrics", "/v1/models", "/openapi.json", "/nowhere", "/health/")
        }
    assert statuses == {
        "/health": 200,
        "/ready": 200,
        "/metrics": 200,
        "/v1/models": 403,
        "/openapi.json": 403,
        "/nowhere": 403,
        "/health/": 403,
    }


async def test_preflight_is_refused() -> None:
    preflight = post(
        "Origin: http://attacker.example",
        "Access-Control-Request-Method: POST",
        "Access-Control-Request-Private-Network: true",
    ).replace(b"POST", b"OPTIONS", 1)
    async with serving(judge()) as port:
        caller = await Caller.connect(port)
        caller.send(preflight)
        answer = await caller.read_all()
        await caller.end()
    assert answer.startswith(b"HTTP/1.1 403")
    assert b"access-control" not in answer.lower()


async def test_handshakes_of_websockets_are_refused_like_other_requests() -> None:
    fields = ("Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==")
    sent = [("/v1/judge", 405, ()), ("/nowhere", 404, ()), ("/v1/judge", 403, ("Origin: http://attacker.example",))]
    async with serving(judge()) as port:
        for path, expected, more in sent:
            request = get(path, "Host: localhost", *fields, *more).replace(b"Connection: close", b"Connection: upgrade")
            [(status, _)] = await talk(port, request)
            assert status == expected


async def test_the_sandbox_service_checks_hosts_and_origins(pool: SandboxPool, connect: Callable[..., Any]) -> None:
    sent = [
        {"host": "127.0.0.1"},
        {"host": "attacker.example"},
        {"host": "localhost", "origin": "http://attacker.example"},
    ]

    async def statuses(**options: Any) -> list[int]:
        async with connect(create_sandbox(SandboxService(pool), **options)) as client:
            return [(await client.post("/v1/execute", json={"code": ""}, headers=each)).status_code for each in sent]

    assert await statuses(hosts=KEYLESS) == [200, 421, 403]
    assert await statuses(hosts=AllowedHosts(given=("attacker.example",), bound="::")) == [200, 200, 403]
    assert await statuses(hosts=KEYLESS, keys=["k"]) == [401, 401, 401]


@pytest.fixture
def engine(random_checkpoint: Path) -> Iterator[EmbeddedEngine]:
    engine = EmbeddedEngine.load(random_checkpoint, max_batch=1)
    yield engine
    engine.close()


async def test_server_with_key_accepts_any_host_unless_hosts_are_given(engine: EmbeddedEngine) -> None:
    asked = [
        get("/v1/models", f"Host: {host}", "Authorization: Bearer k") for host in ("judge.example", "other.example")
    ]
    for hosts, expected in ((KEYLESS, [200, 200]), (HOSTS, [200, 421])):
        async with serving(create_worker(engine, name="tiny", api_key="k", hosts=hosts)) as port:
            assert [(await talk(port, each))[0][0] for each in asked] == expected


async def test_the_worker_checks_hosts_and_origins(engine: EmbeddedEngine) -> None:
    asked = [
        get("/v1/models", "Host: localhost"),
        get("/v1/models", "Host: attacker.example"),
        get("/v1/models", "Host: localhost", "Origin: http://attacker.example"),
        get("/v1/models/", "Host: localhost"),
    ]
    async with serving(create_worker(engine, name="tiny", hosts=KEYLESS)) as port:
        assert [(await talk(port, each))[0][0] for each in asked] == [200, 421, 403, 404]


@pytest.mark.parametrize("path", ["/v1/judge/", "/v1/models/", "/docs/", "/redoc", "//attacker.example/v1/models/"])
async def test_no_redirects_and_no_pages_of_the_framework(path: str) -> None:
    async with serving(judge(None)) as port:
        caller = await Caller.connect(port)
        caller.send(get(path, "Host: attacker.example"))
        answer = await caller.read_all()
        await caller.end()
    assert answer.startswith(b"HTTP/1.1 404")
    assert b"attacker.example/" not in answer.replace(b"//attacker.example/v1/models/", b"")
    assert b"location" not in answer.lower()

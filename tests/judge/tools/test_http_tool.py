"""The tool `http`, against a real server on this machine. Names are resolved by the tests."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.judge.tools.calling import call, error
from tirjudge.opening import open_functions
from tirjudge.tools.addresses import is_allowed
from tirjudge.tools.functions import FUNCTIONS, Offer, ToolFunction
from tirjudge.tools.http import MAX_REDIRECTS, open_http
from tirjudge.tools.http_rules import MAX_BYTES
from tirjudge_sandbox import SandboxPool

TOKEN = "token-of-the-operator-1"


@dataclass
class Site:
    """A server, and the requests that it received."""

    port: int = 0
    requests: list[str] = field(default_factory=list)

    @property
    def last(self) -> str:
        return self.requests[-1]


def _answer(path: str, request: str, *, port: int) -> bytes:
    """Return the answer for a path."""
    status, headers, body = "200 OK", {"Content-Type": "text/plain; charset=utf-8", "X-Secret": "1"}, b"hello"
    match path.split("?")[0].split("/")[1:]:
        case ["json"]:
            headers["Content-Type"], body = "application/json", b'{"items": [1, 2], "name": "\xc3\xa9"}'
        case ["not-json"]:
            headers["Content-Type"], body = "application/json", b'{"items": NaN}'
        case ["echo"]:
            body = request.encode()
        case ["huge"]:
            body = b"y" * (8 << 20)
        case ["huge-echo"]:
            body = TOKEN.encode() * (1 << 16)
        case ["missing"]:
            status = "404 Not Found"
        case ["gzip"]:
            headers["Content-Encoding"] = "gzip"
        case ["to", *target]:
            status, headers["Location"] = "302 Found", "/".join(target).replace("PORT", str(port))
        case ["keep", *target]:
            status, headers["Location"] = "307 Temporary Redirect", "/".join(target).replace("PORT", str(port))
        case ["loop"]:
            status, headers["Location"] = "302 Found", "/loop"
    lines = [
        f"HTTP/1.1 {status}",
        *(f"{name}: {value}" for name, value in headers.items()),
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Site]:
    site = Site()
    writers: list[asyncio.StreamWriter] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next(
                (int(line[15:]) for line in head.lower().split("\r\n") if line.startswith("content-length:")), 0
            )
            request = head + (await reader.readexactly(length)).decode()
            site.requests.append(request)
            path = request.split(" ")[1]
            if path == "/slow":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                with contextlib.suppress(OSError):
                    for _ in range(1000):
                        writer.write(b"z")
                        await writer.drain()
                        await asyncio.sleep(0.05)
            else:
                writer.write(_answer(path, request, port=site.port))
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with serving() as opened:
        yield opened


class Names:
    """A resolver. Each lookup of a name takes the next of its answers; the last one stays."""

    def __init__(self, **answers: list[list[str]]) -> None:
        self.answers = {name.replace("_", "."): list(each) for name, each in answers.items()}
        self.lookups: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.lookups.append(host)
        if host not in self.answers:
            raise OSError("unknown name")
        left = self.answers[host]
        return left.pop(0) if len(left) > 1 else left[0]


Open = Callable[..., AbstractAsyncContextManager[Sequence[ToolFunction]]]


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    """Function that opens the tool for rules."""

    def open_rules(
        *rules: Mapping[str, Any], names: Names | None = None, environ: Mapping[str, str] | None = None, **options: Any
    ) -> AbstractAsyncContextManager[Sequence[ToolFunction]]:
        tls = options.pop("tls", None)
        file = tmp_path / "rules.json"
        file.write_text(json.dumps({"rules": rules, **options}))
        return open_http(str(file), environ=environ or {}, resolve=names or Names(), tls=tls)

    return open_rules


def local(site: Site, **fields: Any) -> dict[str, Any]:
    """A rule for the server under the name api.test."""
    return {"scheme": "http", "host": "api.test", "port": site.port, "allow_private": True} | fields


LOCAL = Names(api_test=[["127.0.0.1"]])


async def test_get_returns_json_or_text_and_a_few_headers(opened: Open, site: Site) -> None:
    url = f"http://api.test:{site.port}"
    async with opened(local(site), names=LOCAL) as functions:
        result = await call(functions, "http.get", url=f"{url}/json", params={"q": "a b&c", "n": [1, 2]})
        assert result == {
            "status": 200,
            "url": f"{url}/json?q=a+b%26c&n=1&n=2",
            "headers": {"content-type": "application/json"},
            "truncated": False,
            "json": {"items": [1, 2], "name": "é"},
        }
        assert site.last.startswith("GET /json?q=a+b%26c&n=1&n=2 HTTP/1.1\r\n")
        assert f"host: api.test:{site.port}\r\n" in site.last.lower()
        missing = await call(functions, "http.get", url=f"{url}/missing")
        assert (missing["status"], missing["text"]) == (404, "hello")
        assert "text" in await call(functions, "http.get", url=f"{url}/not-json")


async def test_request_sends_json_and_text_with_methods_of_the_rule(opened: Open, site: Site) -> None:
    url = f"http://api.test:{site.port}/echo"
    async with opened(local(site, methods=["POST"]), names=LOCAL) as functions:
        assert [each.name for each in functions] == ["http.request"]
        await call(functions, "http.request", method="post", url=url, json={"a": [1]})
        assert site.last.startswith("POST /echo")
        assert site.last.endswith('{"a": [1]}')
        assert "content-type: application/json" in site.last.lower()
        await call(functions, "http.request", method="POST", url=url, text="é", headers={"Content-Type": "text/x"})
        assert "content-type: text/x" in site.last.lower()
        assert "not allowed" in await error(functions, "http.request", method="DELETE", url=url)
        assert "not allowed" in await error(functions, "http.request", method="GET", url=url)
        assert "not allowed" in await error(
            functions, "http.request", method="POST /x HTTP/1.1\r\nA: b\r\n\r\nGET", url=url
        )
        assert "one of them" in await error(functions, "http.request", method="POST", url=url, json=1, text="x")
    assert len(site.requests) == 2


async def test_the_prompt_line_lists_what_is_allowed(opened: Open) -> None:
    async with opened({"host": "api.example.com", "path": "/v1"}) as functions:
        [get] = functions
    assert get.line.startswith("http.get(url: str, params: dict = {}, headers: dict = {}) -> ")
    assert get.line.endswith("sends a GET request. Allowed: GET https://api.example.com/v1.")


# --------------------------------------------------------------------------------------------- which request is allowed


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:PORT/",
        "http://2130706433:PORT/",
        "http://0x7f000001:PORT/",
        "http://0x7f.1:PORT/",
        "http://0177.0.0.1:PORT/",
        "http://127.1:PORT/",
        "http://[::1]:PORT/",
        "http://[::ffff:127.0.0.1]:PORT/",
        "http://[::ffff:7f00:1]:PORT/",
        "http://localhost:PORT/",
        "http://api.test@evil.test:PORT/",
        "http://api.test:PORT@evil.test/",
        "http://user:password@api.test:PORT/",
        "http://@api.test:PORT/",
        "http://evil.test:PORT/#@api.test",
        "http://evil.test\\@api.test:PORT/",
        "http://api.test:PORT\\@evil.test/",
        "http://api.test.:PORT/",
        "http://api.test.evil.test:PORT/",
        "http://sub.api.test:PORT/",
        "http://api%2etest:PORT/",
        "http://api.test:0/",
        "http://api.test:1/",
        "http://api.test/",
        "https://api.test:PORT/",
        "ftp://api.test:PORT/",
        "file:///etc/passwd",
        "//api.test:PORT/",
        "api.test:PORT/",
        "http://api.test:PORT/\r\nX-Header: 1",
        "http://api.test:PORT/ HTTP/1.1\r\n",
        "http://api.test:PORT/\tx",
        "http://api.test:99999/",
        "http:///",
        "http://[::1/",
        "",
        "http://api.test:PORT/" + "a" * 10_000,
    ],
)
async def test_other_urls_are_refused_without_a_request(opened: Open, site: Site, url: str) -> None:
    names = Names(api_test=[["127.0.0.1"]], evil_test=[["127.0.0.1"]])
    async with opened(local(site), names=names) as functions:
        message = await error(functions, "http.get", url=url.replace("PORT", str(site.port)))
    assert len(message) < 1000
    assert site.requests == []
    assert names.lookups == []


async def test_an_international_name_matches_its_ascii_form(opened: Open, site: Site) -> None:
    names = Names(**{"xn--bcher-kva_test": [["127.0.0.1"]]})
    async with opened(local(site, host="Bücher.test"), names=names) as functions:
        for host in ("bücher.test", "xn--bcher-kva.test", "BÜCHER.TEST"):
            assert (await call(functions, "http.get", url=f"http://{host}:{site.port}/"))["status"] == 200
    assert "host: xn--bcher-kva.test:" in site.last.lower()


@pytest.mark.parametrize(
    ("path", "is_allowed"),
    [
        ("/v1", True),
        ("/v1/", True),
        ("/v1/a%20b", True),
        ("/v1/x?y=/../..", True),
        ("/v1/../v1/x", True),
        ("/v2", False),
        ("/v12", False),
        ("/", False),
        ("/v1/../admin", False),
        ("/v1/%2e%2e/admin", False),
        ("/v1/..%2fadmin", False),
        ("/v1/..%5cadmin", False),
        ("/v1/%252e%252e/admin", False),
        ("/v1/..;x/admin", False),
        ("/v1/.;/x", False),
    ],
)
async def test_a_path_of_a_rule_is_a_border(opened: Open, site: Site, path: str, is_allowed: bool) -> None:
    async with opened(local(site, path="/v1"), names=LOCAL) as functions:
        url = f"http://api.test:{site.port}{path}"
        if is_allowed:
            assert (await call(functions, "http.get", url=url))["status"] == 200
        else:
            assert "not allowed" in await error(functions, "http.get", url=url)
    assert len(site.requests) == is_allowed


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.test"},
        {"X-HTTP-Method-Override": "DELETE"},
        {"Transfer-Encoding": "chunked"},
        {"Authorization": "Bearer x"},
        {"Accept": "a\r\nX-Injected: 1"},
        {"Accept": "a\nb"},
        {"Accept\r\nX-Injected": "1"},
        {"Accept": "é"},
        {"Accept": "a" * 2000},
    ],
)
async def test_other_headers_are_refused(opened: Open, site: Site, headers: dict[str, str]) -> None:
    async with opened(local(site), names=LOCAL) as functions:
        assert "headers" in await error(functions, "http.get", url=f"http://api.test:{site.port}/", headers=headers)
    assert site.requests == []


async def test_a_rule_may_allow_further_headers(opened: Open, site: Site) -> None:
    async with opened(local(site, program_headers=["X-Version"]), names=LOCAL) as functions:
        await call(
            functions, "http.get", url=f"http://api.test:{site.port}/", headers={"X-Version": "2", "Accept": "a/b"}
        )
    assert "x-version: 2\r\n" in site.last.lower()
    assert "accept: a/b\r\n" in site.last.lower()


# --------------------------------------------------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("address", "public", "private"),
    [
        ("93.184.216.34", True, True),
        ("2606:4700::1", True, True),
        ("64:ff9b::808:808", True, True),
        ("127.0.0.1", False, True),
        ("10.1.2.3", False, True),
        ("172.16.0.1", False, True),
        ("192.168.1.1", False, True),
        ("100.64.0.1", False, True),
        ("::1", False, True),
        ("fc00::1", False, True),
        ("fec0::1", False, True),
        ("::ffff:127.0.0.1", False, True),
        ("::ffff:8.8.8.8", False, True),
        ("::ffff:169.254.169.254", False, False),
        ("64:ff9b::7f00:1", False, True),
        ("64:ff9b::a9fe:a9fe", False, False),
        ("2002:7f00:1::", False, True),
        ("169.254.169.254", False, False),
        ("fe80::1", False, False),
        ("fe80::1%eth0", False, False),
        ("0.0.0.0", False, False),
        ("::", False, False),
        ("224.0.0.1", False, False),
        ("ff02::1", False, False),
        ("240.0.0.1", False, False),
        ("255.255.255.255", False, False),
        ("::127.0.0.1", False, False),
        ("not an address", False, False),
    ],
)
def test_which_addresses_are_dialled(address: str, public: bool, private: bool) -> None:
    assert is_allowed(address, allow_private=False) == public
    assert is_allowed(address, allow_private=True) == private


@pytest.mark.parametrize(
    "answer", [["127.0.0.1"], ["93.184.216.34", "10.0.0.1"], ["::ffff:127.0.0.1"], ["169.254.169.254"], ["::1"]]
)
async def test_a_name_with_a_private_address_is_refused(opened: Open, site: Site, answer: list[str]) -> None:
    async with opened(local(site, allow_private=False), names=Names(api_test=[answer])) as functions:
        message = await error(functions, "http.get", url=f"http://api.test:{site.port}/")
    assert "not public" in message
    assert answer[-1] not in message
    assert site.requests == []


async def test_the_address_that_was_checked_is_dialled(opened: Open, site: Site) -> None:
    """A second lookup would give the address of the server on this machine."""
    names = Names(api_test=[["203.0.113.1"], ["127.0.0.1"]])
    async with opened(local(site), names=names, timeout_s=0.5) as functions:
        message = await error(functions, "http.get", url=f"http://api.test:{site.port}/")
    assert "no complete answer" in message or "failed" in message
    assert names.lookups == ["api.test"]
    assert site.requests == []


async def test_the_next_address_is_tried_after_a_refused_connection(opened: Open, site: Site) -> None:
    names = Names(api_test=[["127.0.0.9", "127.0.0.1"]])
    async with opened(local(site), names=names) as functions:
        assert (await call(functions, "http.get", url=f"http://api.test:{site.port}/"))["status"] == 200


async def test_an_unknown_name_is_an_error(opened: Open, site: Site) -> None:
    async with opened(local(site), names=Names()) as functions:
        assert "has no address" in await error(functions, "http.get", url=f"http://api.test:{site.port}/")


async def test_environment_proxies_are_not_used(opened: Open, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    async with opened(local(site), names=LOCAL) as functions:
        assert (await call(functions, "http.get", url=f"http://api.test:{site.port}/"))["status"] == 200


# --------------------------------------------------------------------------------------------------------- redirects


async def test_a_redirect_that_a_rule_allows_is_followed(opened: Open, site: Site) -> None:
    async with opened(local(site), names=LOCAL) as functions:
        result = await call(functions, "http.get", url=f"http://api.test:{site.port}/to//json")
    assert result["status"] == 200
    assert result["url"] == f"http://api.test:{site.port}/json"


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.1:PORT/",
        "http://localhost:PORT/",
        "http://evil.test:PORT/",
        "http://x@api.test:PORT/",
        "//evil.test:PORT/",
        "http://169.254.169.254/latest/meta-data/",
        "https://api.test:PORT/",
        "file:///etc/passwd",
        "http://[::1/",
    ],
)
async def test_another_redirect_is_refused(opened: Open, site: Site, target: str) -> None:
    names = Names(api_test=[["127.0.0.1"]], evil_test=[["127.0.0.1"]])
    async with opened(local(site), names=names) as functions:
        message = await error(functions, "http.get", url=f"http://api.test:{site.port}/to/{target}")
    assert "redirects" in message
    assert len(site.requests) == 1


async def test_a_redirect_to_a_name_with_a_private_address_is_refused(opened: Open, site: Site) -> None:
    names = Names(api_test=[["127.0.0.1"]], other_test=[["127.0.0.1"]])
    other = local(site, host="other.test", allow_private=False)
    async with opened(local(site), other, names=names) as functions:
        url = f"http://api.test:{site.port}/to/http://other.test:PORT/"
        assert "not public" in await error(functions, "http.get", url=url)
    assert len(site.requests) == 1


async def test_a_redirect_gets_the_credentials_of_its_own_rule_only(opened: Open, site: Site) -> None:
    names = Names(api_test=[["127.0.0.1"]], other_test=[["127.0.0.1"]])
    secret = local(site, headers={"Authorization": f"Bearer {TOKEN}"}, insecure_credentials=True)
    async with opened(secret, local(site, host="other.test"), names=names) as functions:
        await call(functions, "http.get", url=f"http://api.test:{site.port}/to/http://other.test:PORT/")
    assert TOKEN in site.requests[0]
    assert TOKEN not in site.requests[1]


async def test_a_redirect_does_not_change_the_method_to_one_that_is_not_allowed(opened: Open, site: Site) -> None:
    async with opened(local(site, methods=["POST"]), names=LOCAL) as functions:
        url = f"http://api.test:{site.port}"
        assert "redirects" in await error(functions, "http.request", method="POST", url=f"{url}/to//x", text="a")
        result = await call(
            functions, "http.request", method="POST", url=f"{url}/keep//echo", text="body of the request"
        )
    assert result["text"].startswith("POST /echo")
    assert result["text"].endswith("body of the request")


async def test_redirects_are_limited(opened: Open, site: Site) -> None:
    async with opened(local(site), names=LOCAL) as functions:
        assert "redirects" in await error(functions, "http.get", url=f"http://api.test:{site.port}/loop")
    assert len(site.requests) == MAX_REDIRECTS + 1


# ---------------------------------------------------------------------------------------------------- large and slow


async def test_a_huge_body_is_cut(opened: Open, site: Site) -> None:
    async with opened(local(site), names=LOCAL) as functions:
        result = await call(functions, "http.get", url=f"http://api.test:{site.port}/huge")
    assert len(result["text"]) == MAX_BYTES
    assert result["truncated"]


async def test_a_slow_body_ends_with_the_time(opened: Open, site: Site) -> None:
    async with opened(local(site), names=LOCAL, timeout_s=0.3) as functions:
        message = await error(functions, "http.get", url=f"http://api.test:{site.port}/slow")
    assert message == "no complete answer after 0.3 s"


async def test_a_compressed_body_is_refused(opened: Open, site: Site) -> None:
    async with opened(local(site), names=LOCAL) as functions:
        assert "compressed" in await error(functions, "http.get", url=f"http://api.test:{site.port}/gzip")
    assert "accept-encoding: identity" in site.last.lower()


# ------------------------------------------------------------------------------------------------------- credentials


async def test_credentials_are_sent_and_do_not_come_back(opened: Open, site: Site) -> None:
    rule = local(site, headers={"Authorization": "Bearer ${API_TOKEN}"}, insecure_credentials=True)
    url = f"http://api.test:{site.port}"
    async with opened(rule, names=LOCAL, environ={"API_TOKEN": TOKEN}) as functions:
        result = await call(functions, "http.get", url=f"{url}/echo")
        assert f"Bearer {TOKEN}" in site.last
        assert TOKEN not in json.dumps(result)
        assert "authorization: [credential]" in result["text"].lower()
        cut = await call(functions, "http.get", url=f"{url}/huge-echo")
        assert cut["truncated"]
        assert "token" not in cut["text"]
        message = await error(functions, "http.get", url=f"{url}/to/http://evil.test/{TOKEN}")
        assert TOKEN not in message
        assert all(TOKEN not in function.line for function in functions)
        assert "not allowed" in await error(functions, "http.get", url=url, headers={"authorization": "mine"})


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (
            {"host": "a.test", "scheme": "http", "headers": {"A": "secret"}},
            "rules.0: Value error, headers are sent without TLS",
        ),
        (
            {"host": "a.test", "headers": {"A": "${MISSING}"}},
            "rules.0.headers.A: the environment variable 'MISSING' is not set",
        ),
        ({"host": "a.test", "headers": {"A": "secret\r\nB: 1"}}, "rules.0.headers.A: not a header"),
        ({"host": "https://a.test/"}, "rules.0.host"),
        ({"host": "a.test:80"}, "rules.0.host"),
        ({"host": "a.test:443"}, "rules.0.host"),
        ({"host": "a@b.test"}, "rules.0.host"),
        ({"host": "2130706433"}, "rules.0.host"),
        ({"host": "0x7f.1"}, "rules.0.host"),
        ({"host": ""}, "rules.0.host"),
        ({"host": "a.test", "path": "v1"}, "rules.0.path"),
        ({"host": "a.test", "path": "/v1/../x"}, "rules.0.path"),
        ({"host": "a.test", "methods": ["CONNECT"]}, "rules.0.methods.0"),
        ({"host": "a.test", "hosts": []}, "rules.0.hosts"),
        ({"host": "a.test", "port": 0}, "rules.0.port"),
    ],
)
async def test_invalid_rules_are_named(opened: Open, rule: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError) as raised:
        async with opened(rule):
            pass
    assert problem in str(raised.value)
    assert "rules.json" in str(raised.value)
    assert "secret" not in str(raised.value)


async def test_settings_are_a_json_or_toml_file(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text('[[rules]]\nhost = "api.example.com"\nmethods = ["GET", "POST"]\n')
    async with open_functions([f"http:{file}"]) as functions:
        assert [each.name for each in functions] == ["http.get", "http.request"]
    for settings, problem in {"": "no settings", str(tmp_path / "none.json"): "cannot be read"}.items():
        with pytest.raises(ValueError, match=problem):
            async with FUNCTIONS["http"].open(settings):
                pass
    file.write_text("rules = [")
    with pytest.raises(ValueError, match="not valid TOML"):
        async with FUNCTIONS["http"].open(str(file)):
            pass


# --------------------------------------------------------------------------------------------------------------- TLS


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of a server with a certificate for a name, and of a client that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.5"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    client = ssl.create_default_context(cadata=made.public_bytes(serialization.Encoding.PEM).decode())
    return server, client


async def test_the_certificate_is_checked_for_the_name_and_not_for_the_address(opened: Open, tmp_path: Path) -> None:
    server, client = certificate(tmp_path, "api.test")
    seen: list[str | None] = []
    server.sni_callback = lambda _, name, __: seen.append(name)
    names = Names(api_test=[["127.0.0.1"]], other_test=[["127.0.0.1"]])
    async with serving(server) as site:
        rules = [local(site, scheme="https"), local(site, scheme="https", host="other.test")]
        async with opened(*rules, names=names, tls=client) as functions:
            assert (await call(functions, "http.get", url=f"https://api.test:{site.port}/"))["status"] == 200
            message = await error(functions, "http.get", url=f"https://other.test:{site.port}/")
    assert seen == ["api.test", "other.test"]
    assert "certificate" in message
    assert len(site.requests) == 1


# ------------------------------------------------------------------------------------------------------- in a program


async def test_a_program_sends_a_request_and_the_call_is_recorded(opened: Open, site: Site, pool: SandboxPool) -> None:
    rule = local(site, headers={"Authorization": f"Bearer {TOKEN}"}, insecure_credentials=True)
    program = f"""\
print(http.get("http://api.test:{site.port}/json")["json"]["items"])
try:
    http.get("http://127.0.0.1:{site.port}/")
except ToolError as error:
    print("refused:", "not allowed" in str(error))
print({TOKEN!r} in http.get("http://api.test:{site.port}/echo")["text"])"""
    async with opened(rule, names=LOCAL) as functions:
        result = await pool.run(program, offer=Offer(functions=functions))
    assert result.stdout == "[1, 2]\nrefused: True\nFalse\n"
    first, second, _ = result.calls
    assert first.function == "http.get"
    assert first.arguments == {"url": f"http://api.test:{site.port}/json"}
    assert second.error is not None
    assert TOKEN not in "".join(each.model_dump_json() for each in result.calls)

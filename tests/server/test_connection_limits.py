"""Callers that send too much data, send it too slowly, or send nothing, over real sockets with small limits."""

from __future__ import annotations

import asyncio
import itertools
import resource
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from tests.server.raw_http import Caller, serving
from tests.servers import serve_command
from tests.waiting import until
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.judge import Judge
from tirjudge_server.app import create_app
from tirjudge_server.service import JudgeService
from tirjudge_web.connection import while_connected
from tirjudge_web.limits import ConnectionLimits, TooManyConnections, connections_allowed

SHORT_S = 0.3
REQUEST = b"POST /v1/judge HTTP/1.1\r\nhost: localhost\r\n"
HEALTH = b"GET /health HTTP/1.1\r\nhost: localhost\r\n"
CHUNKED = REQUEST + b"transfer-encoding: chunked\r\n\r\n"
UNFINISHED = (b"1;", b"t: ")
TRUSTS_ALL = ssl.create_default_context()
TRUSTS_ALL.check_hostname = False
TRUSTS_ALL.verify_mode = ssl.CERT_NONE


Serve = Callable[..., Any]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Serves an application for the length of a test; returns a function that opens connections."""
    async with AsyncExitStack() as stack:

        async def start(app: FastAPI | None = None, *, limits: ConnectionLimits, **options: Any) -> Callable[[], Any]:
            engine = ScriptedEngine(lambda _: "<preference>A</preference>")
            app = app or create_app(JudgeService(Judge(engine=engine)))
            port = await stack.enter_async_context(serving(app, limits=limits, **options))
            context = TRUSTS_ALL if "certificate" in options else None

            async def connect() -> Caller:
                caller = await Caller.connect(port, ssl=context)
                stack.push_async_callback(caller.end)
                return caller

            return connect

        yield start


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-subj", "/CN=localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return {"certificate": certificate, "private_key": key}


@pytest.fixture(params=["plain", pytest.param("tls", marks=pytest.mark.slow)])
def transport(request: pytest.FixtureRequest) -> dict[str, Path]:
    return request.getfixturevalue("certificate") if request.param == "tls" else {}


async def health(connect: Callable[[], Any]) -> int:
    caller = await connect()
    caller.send(HEALTH + b"connection: close\r\n\r\n")
    [(status, _)] = await caller.answers()
    return status


@pytest.mark.parametrize(
    "sent",
    [
        HEALTH + b"a: b\r\n" * 200 + b"\r\n",
        HEALTH + b"x: " + b"a" * 40_000 + b"\r\n\r\n",
        HEALTH + b"x: " + b"a" * 40_000,
        HEALTH + b"x" * 40_000,
        b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"\r\n" * 20_000,
        CHUNKED + b"1;",
        CHUNKED + b"0\r\n" + b"t: r\r\n" * 200 + b"\r\n",
        CHUNKED + b"0\r\nt: ",
    ],
    ids=[
        "many fields",
        "a long field",
        "a long field without end",
        "a long name without end",
        "a long request line",
        "blank lines",
        "a chunk extension",
        "many trailers",
        "a long trailer",
    ],
)
async def test_a_header_that_is_too_large_is_refused(serve: Serve, sent: bytes) -> None:
    connect = await serve(limits=ConnectionLimits())
    caller = await connect()
    caller.send(sent)
    endless = [b"x" * 20_000] * 3 if sent.endswith(UNFINISHED) else []
    assert await caller.refusal(endless) == (431, "header_too_large")
    assert await health(connect) == 200


async def test_a_header_that_never_ends_is_refused_in_time(serve: Serve, transport: dict[str, Path]) -> None:
    connect = await serve(limits=ConnectionLimits(header_s=SHORT_S), **transport)
    caller = await connect()
    caller.send(HEALTH)
    assert await caller.refusal(itertools.repeat(b"a: b\r\n")) == (408, "request_timeout")


@pytest.mark.parametrize("first", [b"", HEALTH + b"\r\n"], ids=["immediately", "after a request"])
async def test_blank_lines_do_not_keep_connection_open(serve: Serve, first: bytes) -> None:
    connect = await serve(limits=ConnectionLimits(header_s=SHORT_S, idle_s=60.0))
    caller = await connect()
    caller.send(first)
    *answered, (status, _) = await caller.answers(itertools.repeat(b"\r\n"))
    assert ([status for status, _ in answered], status) == ([200] if first else [], 408)


@pytest.mark.parametrize(
    ("header", "piece"),
    [
        (b"content-length: 100000\r\n\r\n", b"x"),
        (b"transfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (b"transfer-encoding: chunked\r\n\r\n1;", b"x" * 100),
    ],
    ids=["length", "chunks", "extension"],
)
async def test_a_slow_body_is_refused_in_time(
    serve: Serve, transport: dict[str, Path], header: bytes, piece: bytes
) -> None:
    connect = await serve(limits=ConnectionLimits(stall_s=SHORT_S), **transport)
    caller = await connect()
    caller.send(REQUEST + header)
    assert await caller.refusal(itertools.repeat(piece)) == (408, "request_timeout")


async def test_steady_body_may_take_longer_than_stall_limit(serve: Serve) -> None:
    connect = await serve(limits=ConnectionLimits(stall_s=SHORT_S, min_bytes_per_s=1))
    caller = await connect()
    body = b'{"mode": "pairwise", "prompt": "p", "responses": ["a", "b"], "tools": "off"}'
    caller.send(REQUEST + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body))
    pieces = [body[:10], body[10:20], body[20:30], body[30:]]
    [(status, answer)] = await caller.answers(pieces, every_s=SHORT_S * 0.6)
    assert (status, answer["object"]) == (200, "judgment")


async def test_a_connection_without_a_request_is_closed(serve: Serve, transport: dict[str, Path]) -> None:
    connect = await serve(limits=ConnectionLimits(header_s=SHORT_S, idle_s=SHORT_S), **transport)
    silent, once = await connect(), await connect()
    once.send(HEALTH + b"\r\n")
    assert await silent.answers() == []
    assert [status for status, _ in await once.answers()] == [200]


async def test_unread_response_is_cut_off(serve: Serve, transport: dict[str, Path]) -> None:
    app, ended = FastAPI(), asyncio.Event()

    @app.get("/endless")
    async def endless() -> StreamingResponse:
        async def blocks() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield b"x" * 1_000_000
                    await asyncio.sleep(0)
            finally:
                ended.set()

        return StreamingResponse(blocks())

    connect = await serve(app, limits=ConnectionLimits(stall_s=SHORT_S), **transport)
    caller = await connect()
    caller.writer.transport.pause_reading()  # type: ignore[attr-defined]
    caller.send(b"GET /endless HTTP/1.1\r\nhost: localhost\r\n\r\n")
    async with asyncio.timeout(20):
        await ended.wait()


async def test_idle_connections_are_closed_for_new_ones(serve: Serve, transport: dict[str, Path]) -> None:
    connect = await serve(limits=ConnectionLimits(max_connections=8), **transport)
    silent = [await connect() for _ in range(30)]
    slow = [await connect() for _ in range(30)]
    for caller in slow[-8:]:
        caller.send(REQUEST + b"content-length: 10\r\n\r\nx")
    assert await health(connect) == 200
    assert await silent[0].answers() == []


async def test_unfinished_handshakes_are_closed_for_new_connections(serve: Serve, certificate: dict[str, Path]) -> None:
    connect = await serve(limits=ConnectionLimits(max_connections=4), **certificate)
    port = (await connect()).writer.get_extra_info("peername")[1]
    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert await health(connect) == 200


async def test_running_requests_leave_a_connection_for_health(serve: Serve) -> None:
    app, release = FastAPI(), asyncio.Event()

    @app.get("/health")
    async def healthy() -> dict[str, str]:
        return {}

    num_waiting = 0

    @app.get("/wait")
    async def wait() -> dict[str, str]:
        nonlocal num_waiting
        num_waiting += 1
        await release.wait()
        return {}

    connect = await serve(app, limits=ConnectionLimits(max_connections=8))
    callers = [await connect() for _ in range(8)]
    for caller in callers:
        caller.send(b"GET /wait HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    await until(lambda: num_waiting == 7)
    assert await health(connect) == 200
    release.set()
    statuses = [[status for status, _ in await caller.answers()] for caller in callers]
    assert sorted(statuses) == [[200]] * 7 + [[503]]


async def test_pipelined_requests_are_not_answered(serve: Serve) -> None:
    connect = await serve(limits=ConnectionLimits())
    caller = await connect()
    caller.send((HEALTH + b"\r\n") * 10_000)
    assert [status for status, _ in await caller.answers()] == [200]


async def test_disconnect_after_pipelined_request_cancels_work(serve: Serve) -> None:
    app, ended, begun = FastAPI(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    @app.post("/work")
    async def working(request: Request) -> dict[str, str]:
        await request.body()
        await while_connected(request.receive, work())
        return {}

    connect = await serve(app, limits=ConnectionLimits())
    caller = await connect()
    caller.send(b"POST /work HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n" + HEALTH + b"\r\n")
    async with asyncio.timeout(20):
        await begun.wait()
        caller.writer.close()
        await ended.wait()


async def test_trailers_do_not_become_headers(serve: Serve) -> None:
    app = FastAPI()

    @app.post("/echo")
    async def echo(request: Request) -> dict[str, list[str]]:
        await request.body()
        return {"names": list(request.headers)}

    connect = await serve(app, limits=ConnectionLimits())
    caller = await connect()
    caller.send(b"POST /echo HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n")
    caller.send(b"1\r\nx\r\n0\r\nauthorization: Bearer forged\r\n\r\n")
    [(_, body)] = await caller.answers()
    assert body["names"] == ["host", "connection", "transfer-encoding"]


@pytest.mark.parametrize("sent", [b"\x16\x03\x01", b"GET / HTTP/1.1\r\nhost localhost\r\n\r\n", b"NONSENSE\r\n\r\n"])
async def test_input_that_is_not_http_gets_standard_error_and_is_not_logged(
    serve: Serve, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    connect = await serve(limits=ConnectionLimits())
    caller = await connect()
    caller.send(sent)
    assert await caller.refusal() == (400, "invalid_http")
    assert caplog.records == []


async def test_upgrade_with_body_is_refused_and_without_body_ignored(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    connect = await serve(limits=ConnectionLimits())
    with_body, without = await connect(), await connect()
    upgrade = b"connection: upgrade\r\nupgrade: h2c\r\n"
    with_body.send(REQUEST + upgrade + b"content-length: 2\r\n\r\n{}")
    without.send(HEALTH + upgrade + b"\r\n")
    assert await with_body.refusal() == (400, "upgrade")
    assert [status for status, _ in await without.answers()] == [200]
    assert caplog.records == []


async def test_rest_of_refused_body_is_not_read(serve: Serve) -> None:
    connect = await serve(limits=ConnectionLimits(stall_s=SHORT_S))
    caller = await connect()
    caller.send(REQUEST + b"content-length: 1000000000000\r\n\r\n")
    assert await caller.refusal(itertools.repeat(b"x" * 100_000), every_s=0.01) == (413, "body_too_large")


def test_default_connection_limit_leaves_file_descriptors_free(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = {}
    for num_files in (128, 1024, 20_000):
        monkeypatch.setattr(resource, "getrlimit", lambda _, num=num_files: (num, num))
        allowed[num_files] = connections_allowed(None)
    assert allowed == {128: 64, 1024: 768, 20_000: 2048}


def test_more_connections_than_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    with pytest.raises(TooManyConnections, match=r"`ulimit -n 1334` first, or give --max-connections 768"):
        connections_allowed(1000)


@pytest.fixture
def process(random_checkpoint: Path, tmp_path: Path) -> Iterator[tuple[psutil.Process, int]]:
    """`tirjudge serve` with a limit of 128 open files, and its port."""
    arguments = ["serve", "--model", str(random_checkpoint), "--records", "none", "--files", "none"]

    def limit_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))

    with serve_command(*arguments, state=tmp_path, preexec_fn=limit_files) as server:
        yield psutil.Process(server.process.pid), int(server.url.rpartition(":")[2])


@pytest.mark.slow
def test_health_responds_despite_more_idle_connections_than_files(process: tuple[psutil.Process, int]) -> None:
    _, port = process
    with ExitStack() as stack:
        for number in range(130):
            idle = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            idle.sendall((b"", HEALTH, REQUEST + b"content-length: 10\r\n\r\nx")[number % 3])
        assert httpx2.get(f"http://127.0.0.1:{port}/health", timeout=60).status_code == 200
        body = {"mode": "pairwise", "prompt": "p", "responses": ["a", "b"]}
        assert httpx2.post(f"http://127.0.0.1:{port}/v1/judge", json=body, timeout=60).status_code == 200


@pytest.mark.slow
def test_endless_headers_do_not_grow_memory(process: tuple[psutil.Process, int]) -> None:
    server, port = process
    httpx2.get(f"http://127.0.0.1:{port}/health")
    before = server.memory_info().rss
    with ExitStack() as stack:
        callers = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)) for _ in range(8)]
        for caller in callers:
            caller.sendall(HEALTH)
            with suppress(OSError):
                for _ in range(64):
                    caller.sendall(b"a: b\r\n" * 21_000)
        assert httpx2.get(f"http://127.0.0.1:{port}/health", timeout=60).status_code == 200
        grown_mb = (server.memory_info().rss - before) / 1e6
    assert grown_mb < 10

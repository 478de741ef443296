"""`RemoteSandbox` with real services: distribution of programs, failures and retries."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.servers import serve_async
from tests.waiting import until
from tirjudge.errors import SandboxBusy, SandboxUnavailable
from tirjudge.tools.python import Sandbox
from tirjudge.types import Outcome
from tirjudge_sandbox import Limits
from tirjudge_sandbox.app import create_app
from tirjudge_sandbox.remote import RemoteSandbox
from tirjudge_sandbox.service import SandboxService
from tirjudge_web.process import bind, url_of

SLEEP = "import time\ntime.sleep({})\nprint({})"


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[tuple[str, list[str]]]:
    """Serve the same response to all requests. Yield the URL and the list of requested paths."""
    asked: list[str] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        asked.append(head.split()[1])
        length = next((line.split()[1] for line in head.splitlines() if line.startswith("content-length")), "0")
        await reader.readexactly(int(length))
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}", asked


def http(status: str, body: bytes) -> bytes:
    return b"HTTP/1.1 %s\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


def nowhere() -> str:
    """Return a URL on which no server listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture
def start_worker(
    start_service: Callable[..., Any], service: SandboxService, listen: Callable[..., Any]
) -> Callable[..., Any]:
    """Function that serves on a socket and returns URL and service: the shared service, or a new one with options."""

    async def make(*, keys: tuple[str, ...] = (), **options: Any) -> tuple[str, Any]:
        served = await start_service(**options) if options else service
        return await listen(create_app(served, keys=keys)), served

    return make


async def test_a_remote_sandbox_runs_programs_like_a_pool(start_worker: Callable[..., Any]) -> None:
    url, service = await start_worker()
    async with RemoteSandbox(url) as sandbox:
        as_protocol: Sandbox = sandbox
        result = await as_protocol.run("print(a, b['x'])", bindings={"a": "ä", "b": {"x": "y"}})
        assert (result.outcome, result.stdout, result.level) == (Outcome.OK, "ä y\n", service.pool.level)
        result = await sandbox.run("print(input())", stdin="a line")
        assert result.stdout == "a line\n"
        result = await sandbox.run("while True: pass", limits=Limits(cpu_s=0.2, wall_s=20.0))
        assert result.outcome is Outcome.TIMEOUT


async def test_files_are_transferred(start_worker: Callable[..., Any]) -> None:
    url, service = await start_worker()
    if not service.pool.level.startswith("namespaces"):
        pytest.skip("programs have no private directory at this level")
    async with RemoteSandbox(url) as sandbox:
        code = "open('b', 'wb').write(open('a', 'rb').read() * 2)"
        result = await sandbox.run(code, files={"a": b"\x00\xff"}, fetch=["b"])
        assert result.files == {"b": b"\x00\xff\x00\xff"}


@pytest.mark.slow
async def test_programs_are_distributed_among_all_workers(start_worker: Callable[..., Any]) -> None:
    workers = [await start_worker(slots=1) for _ in range(2)]
    async with RemoteSandbox([url for url, _ in workers]) as sandbox:
        results = await asyncio.gather(*(sandbox.run(SLEEP.format(0.1, i)) for i in range(8)))
        assert [result.stdout for result in results] == [f"{i}\n" for i in range(8)]
        assert [service.pool.stats().num_programs for _, service in workers] == [4, 4]


@pytest.mark.slow
async def test_a_busy_worker_gets_fewer_programs(start_worker: Callable[..., Any], until: Callable[..., Any]) -> None:
    workers = [await start_worker(slots=1) for _ in range(2)]
    async with RemoteSandbox([url for url, _ in workers]) as sandbox:
        slow = asyncio.create_task(sandbox.run("import time\ntime.sleep(600)", limits=Limits(wall_s=120)))
        await until(lambda: workers[0][1].pool.stats().num_idle == 0)
        for _ in range(6):
            await sandbox.run("print(1)")
        assert [service.pool.stats().num_programs for _, service in workers] == [0, 6]
        slow.cancel()


async def test_an_unreachable_worker_gets_no_programs(start_worker: Callable[..., Any]) -> None:
    url, _ = await start_worker()
    async with RemoteSandbox([nowhere(), url]) as sandbox:
        for i in range(4):
            assert (await sandbox.run(f"print({i})")).stdout == f"{i}\n"
        assert [worker.problem is None for worker in sandbox.workers] == [False, True]


async def test_a_worker_that_is_ready_again_gets_programs(service: SandboxService) -> None:
    with bind("127.0.0.1", port=0) as bound:  # not listening yet, so connections are refused
        url = url_of(bound)
        async with RemoteSandbox(url, max_wait_s=0.1) as sandbox:
            with pytest.raises(SandboxUnavailable, match="cannot be reached"):
                await sandbox.run("print(1)")
            assert sandbox.workers[0].problem is not None
            async with serve_async(create_app(service), bound=bound):
                await until(lambda: sandbox.workers[0].problem is None)
                assert (await sandbox.run("print(1)")).stdout == "1\n"


async def test_the_error_without_any_worker_names_the_urls() -> None:
    url = nowhere()
    async with RemoteSandbox([url], max_wait_s=0.1) as sandbox:
        with pytest.raises(SandboxUnavailable, match=url):
            await sandbox.run("print(1)")


async def test_a_full_queue_is_retried(start_worker: Callable[..., Any]) -> None:
    url, _ = await start_worker(slots=1, max_waiting=0)
    async with RemoteSandbox(url) as sandbox:
        results = await asyncio.gather(*(sandbox.run(SLEEP.format(0.05, i)) for i in range(4)))
        assert [result.stdout for result in results] == [f"{i}\n" for i in range(4)]


async def test_a_queue_that_stays_full_raises_sandbox_busy(
    start_worker: Callable[..., Any], until: Callable[..., Any]
) -> None:
    url, service = await start_worker(slots=1, max_waiting=0)
    async with RemoteSandbox(url, max_wait_s=0.2) as sandbox:
        slow = asyncio.create_task(sandbox.run("import time\ntime.sleep(600)", limits=Limits(wall_s=120)))
        await until(lambda: service.pool.stats().num_busy)
        with pytest.raises(SandboxBusy):
            await sandbox.run("print(1)")
        slow.cancel()


async def test_a_program_that_may_have_started_is_not_retried(start_worker: Callable[..., Any]) -> None:
    url, service = await start_worker()
    before = service.pool.stats().num_programs
    lost = http("503 Service Unavailable", b'{"error": {"message": "lost it"}, "started": true}')
    for answer, reason in ((b"", "broke off"), (lost, "lost it"), (http("502 Bad Gateway", b"<html>"), "502")):
        async with answering(answer) as (bad_url, asked), RemoteSandbox([bad_url, url]) as sandbox:
            with pytest.raises(SandboxUnavailable, match=reason):
                await sandbox.run("print(1)")
            assert asked[0] == "/v1/execute"
    assert service.pool.stats().num_programs == before


async def test_a_program_that_did_not_start_is_sent_to_another_worker(start_worker: Callable[..., Any]) -> None:
    url, _ = await start_worker()
    ending = http("503 Service Unavailable", b'{"error": {"message": "shutting down"}, "started": false}')
    full = http("429 Too Many Requests", b"{}")
    for answer in (ending, full):
        async with answering(answer) as (bad_url, asked), RemoteSandbox([bad_url, url]) as sandbox:
            assert (await sandbox.run("print(1)")).stdout == "1\n"
            assert Counter(asked)["/v1/execute"] == 1


async def test_a_server_that_is_not_a_sandbox_is_reported() -> None:
    async with answering(http("200 OK", b"[1]")) as (url, _), RemoteSandbox(url) as sandbox:
        with pytest.raises(SandboxUnavailable, match="is not a tirjudge sandbox"):
            await sandbox.run("print(1)")


async def test_the_key_is_sent(start_worker: Callable[..., Any]) -> None:
    url, _ = await start_worker(keys=("secret",))
    async with RemoteSandbox(url, key="secret") as sandbox:
        assert (await sandbox.run("print(1)")).stdout == "1\n"
    async with RemoteSandbox(url, key="wrong") as sandbox:
        with pytest.raises(SandboxUnavailable, match="invalid API key"):
            await sandbox.run("print(1)")


async def test_invalid_arguments_are_value_errors_like_those_of_a_pool(start_worker: Callable[..., Any]) -> None:
    url, _ = await start_worker()
    async with RemoteSandbox(url) as sandbox:
        with pytest.raises(ValueError, match="two words"):
            await sandbox.run("", bindings={"two words": ""})
        with pytest.raises(ValueError, match="cpu_s"):
            await sandbox.run("", limits=Limits(cpu_s=1e6))
        with pytest.raises(ValueError, match="attachments"):
            await sandbox.run("", attachments={"a": "/etc"})
    with pytest.raises(ValueError, match="urls"):
        RemoteSandbox([])


async def test_cancelling_kills_the_program(start_worker: Callable[..., Any], until: Callable[..., Any]) -> None:
    url, service = await start_worker()
    async with RemoteSandbox(url) as sandbox:
        running = asyncio.create_task(sandbox.run("import time\ntime.sleep(600)", limits=Limits(wall_s=120)))
        await until(lambda: service.pool.stats().num_idle == 1)
        running.cancel()
        await until(lambda: service.pool.stats().num_idle == 2)
        assert sandbox.workers[0].num_running == 0
        assert (await sandbox.run("print(1)")).stdout == "1\n"

"""Function calls over a WebSocket, with real services on real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import websockets
from websockets.asyncio.client import connect

from tests.server.raw_http import serving
from tests.servers import serve_async, serve_command
from tests.waiting import until
from tirjudge.errors import SandboxBusy, SandboxUnavailable
from tirjudge.tools.functions import Budget, CallAccount, Offer, function
from tirjudge.types import Outcome
from tirjudge_sandbox import Limits, session
from tirjudge_sandbox.app import create_app
from tirjudge_sandbox.candidates import FUNCTIONS
from tirjudge_sandbox.messages import MAX_MESSAGE_BYTES
from tirjudge_sandbox.remote import RemoteSandbox
from tirjudge_sandbox.service import SandboxService
from tirjudge_web.browser_check import AllowedHosts

RUN = 'print(run("print(int(input()) + 1)", "41").stdout.strip())'
CONNECTION = "import gc\nconnection = next(o for o in gc.get_objects() if type(o).__name__ == 'HostConnection')\n"
REQUEST = {"code": "print(double(2))", "functions": [{"name": "double", "parameters": ["number"]}], "calls_s": 1}


@function
async def double(number: int) -> int:
    "Return twice a number."
    return 2 * number


@function
async def wait() -> int:
    "Wait for a long time."
    await asyncio.sleep(600)
    return 0


@function
async def fail() -> int:
    "Fail."
    raise RuntimeError("a secret of the host")


def offer(*functions: Any, **options: Any) -> Offer:
    return Offer(functions=functions or (*FUNCTIONS, double), **options)


@pytest_asyncio.fixture(loop_scope="session")
async def serve(service: SandboxService, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., Any]]:
    """Function that serves sessions as `tirjudge sandbox serve` does, without its diagnosis. Only once in a test."""

    async def examine(_: SandboxService) -> None:
        pass

    monkeypatch.setattr(SandboxService, "examine", examine)
    async with AsyncExitStack() as stack:

        async def make(served: SandboxService = service, **options: Any) -> str:
            app = create_app(served, **options)
            port = await stack.enter_async_context(serving(app, websocket_bytes=MAX_MESSAGE_BYTES + 65_536))
            return f"http://127.0.0.1:{port}"

        yield make


@pytest_asyncio.fixture(loop_scope="session")
async def sandbox(serve: Callable[..., Any]) -> AsyncIterator[RemoteSandbox]:
    """A client of `service`."""
    async with RemoteSandbox(await serve()) as remote:
        yield remote


def socket_url(url: str, path: str = "/v1/execute/session") -> str:
    return url.replace("http://", "ws://") + path


async def test_a_program_calls_candidates_and_functions_of_the_host(sandbox: RemoteSandbox) -> None:
    code = (
        RUN + '\nprint(tests("print(input())", [{"stdin": "a", "stdout": "a"}, {"stdin": "b", "stdout": "c"}]).passed)'
    )
    code += '\nprint(double(number), run("def f(x): return x", call="f", args=[[1]]).value)'
    result = await sandbox.run(code.replace("number", "21"), bindings={"a": "b"}, offer=offer())
    assert (result.outcome, result.stdout, result.error) == (Outcome.OK, "42\n1\n42 [1]\n", None)
    assert [(call.function, call.error) for call in result.calls] == [
        ("run", None),
        ("run_many", None),
        ("double", None),
        ("run", None),
    ]
    assert result.calls[2].arguments == {"number": 21}
    assert result.calls[2].result == 42


async def test_budgets_are_counted_at_the_host(sandbox: RemoteSandbox) -> None:
    account = CallAccount(Budget(calls=3))
    code = "print(double(1))\nprint(double(2))"
    first = await sandbox.run(code, offer=offer(account=account))
    second = await sandbox.run(code, offer=offer(account=account))
    assert (first.stdout, second.stdout) == ("2\n4\n", "2\n")
    assert second.error is not None
    assert "budget" in second.error
    assert account.num_calls == 4
    assert [call.error is None for call in second.calls] == [True, False]


@pytest.mark.parametrize(
    "garbage",
    [b"\0\0\0\3abc", b"\xff\xff\xff\xff", b'\0\0\0\x0c{"id": "x"}', 2 * b"\0\0\0\2{}"],
    ids=["no JSON", "an impossible length", "no call", "two messages"],
)
async def test_garbage_of_a_program_closes_its_channel_only(sandbox: RemoteSandbox, garbage: bytes) -> None:
    code = f"{CONNECTION}connection._socket.sendall({garbage!r})\n"
    code += "try:\n    double(1)\nexcept ToolError as error:\n    print('closed')\nprint('went on')"
    result = await sandbox.run(code, offer=offer())
    assert (result.outcome, result.stdout, result.calls) == (Outcome.OK, "closed\nwent on\n", ())
    assert (await sandbox.run(RUN, offer=offer())).stdout == "42\n"


async def test_the_errors_of_functions_do_not_leak(sandbox: RemoteSandbox) -> None:
    code = "try:\n    fail()\nexcept ToolError as error:\n    print(error)"
    result = await sandbox.run(code, offer=offer(fail))
    assert "RuntimeError" in result.stdout
    assert "secret" not in result.stdout


async def test_a_call_over_its_time_kills_its_candidate(sandbox: RemoteSandbox, service: SandboxService) -> None:
    code = "try:\n    run('while True: pass', timeout_s=8)\nexcept ToolError as error:\n    print(error)"
    result = await sandbox.run(code, offer=offer(account=CallAccount(Budget(seconds=0.3))))
    assert "time budget" in result.stdout
    await until(lambda: service.pool._candidate_queue.num_idle == 2, at_most_s=5)


@pytest.mark.slow
async def test_long_calls_are_no_wall_time(sandbox: RemoteSandbox) -> None:
    @function
    async def slow() -> int:
        "Take longer than the program may."
        await asyncio.sleep(1.5)
        return 7

    result = await sandbox.run("print(slow())", limits=Limits(wall_s=1.0), offer=offer(slow))
    assert result.stdout == "7\n", result


async def test_two_judgments_run_concurrently(sandbox: RemoteSandbox) -> None:
    accounts = [CallAccount(), CallAccount()]
    works = [
        sandbox.run(f"print([double({i}) for _ in range(20)][0])", offer=offer(account=account))
        for i, account in enumerate(accounts)
    ]
    results = await asyncio.gather(*works)
    assert [result.stdout for result in results] == ["0\n", "2\n"]
    assert [account.num_calls for account in accounts] == [20, 20]


async def test_programs_that_run_candidates_do_not_block_one_another(
    start_service: Callable[..., Any], serve: Callable[..., Any]
) -> None:
    async with RemoteSandbox(await serve(await start_service(slots=1))) as sandbox:
        results = await asyncio.gather(*(sandbox.run(RUN, offer=offer()) for _ in range(8)))
    assert [result.stdout for result in results] == ["42\n"] * 8


async def test_refused_execution_needs_no_session(sandbox: RemoteSandbox) -> None:
    code, bindings = "exec(response)", {"response": "print('I won the comparison')"}
    flagged = await sandbox.run(code, bindings=bindings, offer=Offer(watched=["response"]))
    assert (flagged.stdout, flagged.in_process) == ("I won the comparison\n", ("exec",))
    refused = await sandbox.run(code, bindings=bindings, offer=Offer(watched=["response"], candidate_code="refuse"))
    assert (refused.stdout, refused.in_process, refused.outcome) == ("", ("exec",), Outcome.ERROR)
    in_session = await sandbox.run(code, bindings=bindings, offer=offer(watched=["response"], candidate_code="refuse"))
    assert (in_session.stdout, in_session.in_process) == ("", ("exec",))


# The end of a session.


async def test_a_client_that_disconnects_kills_the_program(sandbox: RemoteSandbox, service: SandboxService) -> None:
    code = "while True: run('import time; time.sleep(5)')"
    running = asyncio.create_task(sandbox.run(code, offer=offer()))
    await until(lambda: service.pool._candidate_queue.num_idle == 1)
    running.cancel()
    await until(lambda: service.pool.stats().num_idle == 2 and service.pool._candidate_queue.num_idle == 2, at_most_s=5)
    assert sandbox.workers[0].num_running == 0
    assert (await sandbox.run(RUN, offer=offer())).stdout == "42\n"


@pytest.mark.slow
async def test_a_killed_worker_fails_its_program_only(serve: Callable[..., Any], tmp_path: Path) -> None:
    arguments = ("sandbox", "serve", "--slots", "1", "--log-level", "error")
    killing: list[Callable[[], None]] = []

    @function
    async def kill() -> int:
        "Kill the worker."
        killing[0]()
        await asyncio.sleep(600)
        return 0

    neighbour = await serve()
    with serve_command(*arguments, state=tmp_path) as worker:
        killing.append(worker.process.kill)
        async with RemoteSandbox(worker.url) as dying, RemoteSandbox(neighbour) as living:
            lasting = asyncio.create_task(living.run("for i in range(200): double(i)\nprint(i)", offer=offer()))
            async with asyncio.timeout(120):
                with pytest.raises(SandboxUnavailable, match="broke off"):
                    await dying.run("kill()", offer=offer(kill))
            assert dying.workers[0].problem is not None
            assert (await lasting).stdout == "199\n"


async def test_a_shutdown_ends_sessions_with_its_reason(sandbox: RemoteSandbox, service: SandboxService) -> None:
    running = asyncio.create_task(sandbox.run("wait()", offer=offer(wait)))
    await until(lambda: service.pool.stats().num_busy == 1)
    service.draining.begin(grace_s=0.1)
    with pytest.raises(SandboxUnavailable, match="shutting down"):
        await running


async def test_a_session_that_did_not_start_goes_to_another_worker(
    service: SandboxService, start_service: Callable[..., Any], serve: Callable[..., Any]
) -> None:
    full = await start_service(slots=1, max_waiting=0)
    url = await serve()
    async with serve_async(create_app(full), has_websockets=True) as full_url:
        blocking = asyncio.create_task(full.pool.run("import time\ntime.sleep(600)", limits=Limits(wall_s=60)))
        await until(lambda: full.pool.stats().num_busy == 1)
        async with RemoteSandbox([full_url, url]) as sandbox:
            assert (await sandbox.run(RUN, offer=offer())).stdout == "42\n"
            assert full.pool.stats().num_refused == 1
        async with RemoteSandbox(full_url, max_wait_s=0.2) as sandbox:
            with pytest.raises(SandboxBusy):
                await sandbox.run(RUN, offer=offer())
        blocking.cancel()
        full.draining.begin(grace_s=0)
        async with RemoteSandbox([full_url, url]) as sandbox:
            assert (await sandbox.run(RUN, offer=offer())).stdout == "42\n"
            assert sandbox.workers[0].problem == "the server is shutting down"


async def test_failures_of_the_service_do_not_leak(
    sandbox: RemoteSandbox, service: SandboxService, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("a secret of the service")

    monkeypatch.setattr(service, "execute_request", broken)
    with pytest.raises(SandboxUnavailable, match="the server failed; its log has the cause"):
        await sandbox.run("double(1)", offer=offer())


# Clients.


async def test_invalid_arguments_are_value_errors(sandbox: RemoteSandbox) -> None:
    with pytest.raises(ValueError, match="two words"):
        await sandbox.run("", bindings={"two words": ""}, offer=offer())
    # A service allows an hour of calls; a larger budget is counted at the judge's host.
    assert (await sandbox.run("", offer=offer(account=CallAccount(Budget(seconds=1e9))))).outcome.is_ok
    result = await sandbox.run("print(run('', files={'../x': ''}))", offer=offer())
    assert result.error is not None
    assert "ToolError: run: files" in result.error


async def test_a_session_needs_the_key(serve: Callable[..., Any]) -> None:
    url = await serve(keys=("secret",))
    async with RemoteSandbox(url, key="secret") as sandbox:
        assert (await sandbox.run(RUN, offer=offer())).stdout == "42\n"
    for key in (None, "wrong"):
        async with RemoteSandbox(url, key=key) as sandbox:
            with pytest.raises(SandboxUnavailable, match="key"):
                await sandbox.run(RUN, offer=offer())


async def test_handshakes_of_other_sites_are_refused(serve: Callable[..., Any]) -> None:
    url = await serve(hosts=AllowedHosts(bound="127.0.0.1"))
    port = int(url.rpartition(":")[2])
    foreign: list[tuple[str, dict[str, Any]]] = [
        (socket_url(url), {"origin": "http://evil.example"}),
        (socket_url(url), {"origin": "null"}),
        (socket_url(url), {"additional_headers": {"sec-fetch-site": "cross-site"}}),
        (f"ws://evil.example:{port}/v1/execute/session", {"host": "127.0.0.1", "port": port}),
    ]
    statuses = [await _refusal(target, **options) for target, options in foreign]
    assert statuses == [403, 403, 403, 421]
    async with connect(socket_url(url), origin=url):  # type: ignore[arg-type]
        pass


async def test_other_paths_and_invalid_handshakes_are_refused(serve: Callable[..., Any]) -> None:
    url = await serve()
    assert [await _refusal(socket_url(url, path)) for path in ("/", "/health", "/v1/execute")] == [403, 403, 403]
    port = int(url.rpartition(":")[2])
    head = b" /v1/execute/session HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade, close\r\nupgrade: websocket\r\n"
    for request, expected in (
        (b"GET" + head, 400),
        (b"POST" + head, 404),
        (b"GET" + head + b"x: " + b"a" * 9000 + b"\r\n", 400),
    ):
        [status] = await _statuses(port, request + b"\r\n")
        assert status == expected


async def _statuses(port: int, request: bytes) -> list[int]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return [int(line.split()[1]) for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.1")]


async def _refusal(url: str, **options: Any) -> int:
    """Status of the response to a handshake that is refused."""
    with pytest.raises(websockets.InvalidStatus) as refused:
        await connect(url, proxy=None, **options)
    return refused.value.response.status_code


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (["{"], "not JSON"),
        ([json.dumps(REQUEST | {"functions": []})], "functions"),
        ([b"x"], "text message"),
        (["x" * 100_001], "100001 bytes"),
        ([json.dumps(REQUEST | {"code": "import time\ntime.sleep(9)"}), "{}", "nonsense"], "not JSON"),
        ([json.dumps(REQUEST | {"code": "import time\ntime.sleep(9)"}), json.dumps({"resume": -1})], "resume"),
        ([json.dumps(REQUEST | {"code": "import time\ntime.sleep(9)"}), json.dumps({"run": {}, "id": 1})], "run"),
    ],
    ids=["no JSON", "no functions", "binary", "too large", "nonsense", "negative", "no code"],
)
async def test_invalid_messages_end_the_session_with_the_reason(
    serve: Callable[..., Any], service: SandboxService, sent: list[str | bytes], message: str
) -> None:
    url = await serve(max_body_bytes=100_000)
    async with connect(socket_url(url)) as socket:
        for each in sent:
            await socket.send(each)
        answer = json.loads(await socket.recv())
    assert message in answer["error"]["message"]
    assert answer["started"] is (len(sent) > 1)
    await until(lambda: service.pool.stats().num_idle == 2)


async def test_a_session_without_request_ends(serve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "FIRST_MESSAGE_S", 0.1)
    async with connect(socket_url(await serve())) as socket:
        answer = json.loads(await socket.recv())
        assert (answer["error"]["code"], answer["status"], answer["started"]) == ("request_timeout", 408, False)


async def test_answers_without_a_call_are_dropped(serve: Callable[..., Any]) -> None:
    async with connect(socket_url(await serve())) as socket:
        await socket.send(json.dumps(REQUEST))
        await socket.send(b"unexpected")
        call = json.loads(await socket.recv())
        assert call == {"id": 1, "function": "double", "arguments": {"number": 2}}
        await socket.send(json.dumps({"id": 1, "result": 4}).encode())
        assert json.loads(await socket.recv())["result"]["stdout"] == "4\n"

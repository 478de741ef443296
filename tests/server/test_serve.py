"""`tirjudge serve` as a process: its ready line, signals and errors. No process is left when it has ended."""

from __future__ import annotations

import os
import re
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from tests.processes import descendants, is_alive
from tests.servers import END_S, TIRJUDGE, ServerProcess, run_command
from tirjudge.errors import SandboxUnavailable, TirjudgeError
from tirjudge.tools import TOOLS
from tirjudge.tools.base import ToolKind
from tirjudge_sandbox import SandboxPool
from tirjudge_server.serving import open_application, serve_judge
from tirjudge_server.settings import ServerSettings
from tirjudge_web.process import bind

BODY = {"mode": "pairwise", "prompt": "Which is longer?", "responses": ["one", "three"]}
LONG_BODY = BODY | {"votes": 64, "temperature": 1.0, "mode": "pointwise", "responses": ["one"] * 12}
"""A request with hundreds of rollouts, which take seconds."""

Serve = Callable[..., ServerProcess]
Run = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def serve(start: Serve, random_checkpoint: Path) -> Serve:
    """Starts `tirjudge serve` with the random checkpoint and waits until it is ready."""

    def run(*arguments: str) -> ServerProcess:
        model = [] if "--judge" in arguments or "--engine" in arguments else ["--model", str(random_checkpoint)]
        return start("serve", *model, *arguments)

    return run


@pytest.fixture
def run(random_checkpoint: Path, tmp_path: Path) -> Iterator[Run]:
    """Starts `tirjudge serve` with the random checkpoint without waiting."""
    with ExitStack() as stack:

        def start(*arguments: str) -> subprocess.Popen[str]:
            command = ["serve", "--model", str(random_checkpoint), "--port", "0", *arguments]
            return stack.enter_context(run_command(*command, state=tmp_path))

        yield start


def error_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit status and the error of a command, which must be a single line on stderr."""
    _, err = process.communicate(timeout=END_S)
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    return process.returncode, err.rstrip("\n")


# Signals.


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_signal_ends_server_quietly_and_leaves_no_process(serve: Serve, number: signal.Signals) -> None:
    server = serve()
    ready = (
        r"tirjudge is ready at (http://127\.0\.0\.1:\d+) \(model random, sandbox \S+, records in \S+/records\.db\); "
        r"playground for a browser: \1/"
    )
    assert re.fullmatch(ready, server.ready_line)
    assert httpx2.post(f"{server.url}/v1/judge", json=BODY, timeout=60).status_code == 200
    assert httpx2.get(f"{server.url}/ready").status_code == 200
    assert "<h1>Playground</h1>" in httpx2.get(f"{server.url}/", headers={"accept": "text/html"}).text
    below = descendants(server.process.pid)
    assert below
    assert server.stop(number) == ("", "")
    assert server.process.returncode == 0
    assert not [pid for pid in below if is_alive(pid)]


@pytest.mark.slow
def test_a_terminal_shows_at_once_that_the_server_starts(random_checkpoint: Path) -> None:
    """Loading takes seconds. Programs that read standard output get the line of the ready server alone."""
    ours, theirs = os.openpty()
    command = [
        *TIRJUDGE,
        "serve",
        "--model",
        str(random_checkpoint),
        "--port",
        "0",
        "--records",
        "none",
        "--files",
        "none",
    ]
    with subprocess.Popen(command, stdout=theirs, stdin=subprocess.DEVNULL) as process, os.fdopen(ours) as terminal:
        os.close(theirs)
        try:
            assert terminal.readline() == "Loading the judge and starting the server ...\n"
            assert ", no records); " in terminal.readline()
        finally:
            process.terminate()


def post_until_sigterm(server: ServerProcess) -> Any:
    """Send a long request, then SIGTERM while it is being judged; return its response."""
    with ThreadPoolExecutor() as threads:
        asking = threads.submit(httpx2.post, f"{server.url}/v1/judge", json=LONG_BODY, timeout=END_S)
        while httpx2.get(f"{server.url}/health").json()["running"] == 0:
            assert not asking.done()
            time.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        return asking.result()


@pytest.mark.slow
def test_running_judgment_is_finished_at_sigterm(serve: Serve) -> None:
    server = serve("--grace-s", str(END_S))
    assert post_until_sigterm(server).status_code == 200
    _, err = server.process.communicate(timeout=END_S)
    assert (server.process.returncode, err) == (0, "")


@pytest.mark.slow
def test_running_judgment_gets_503_after_grace_period(serve: Serve) -> None:
    server = serve("--grace-s", "0.1")
    response = post_until_sigterm(server)
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "shutting_down"
    _, err = server.process.communicate(timeout=END_S)
    assert (server.process.returncode, err) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("disconnects", [True, False])
def test_unfinished_upload_is_dropped_quietly(serve: Serve, disconnects: bool) -> None:
    server = serve("--grace-s", "0.2")
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as uploading:
        uploading.sendall(b"POST /v1/judge HTTP/1.1\r\nhost: test\r\ncontent-length: 100\r\n\r\n{")
        if disconnects:
            uploading.close()
        assert httpx2.get(f"{server.url}/health").status_code == 200
        _, err = server.stop()
    assert (server.process.returncode, err) == (0, "")


@pytest.mark.slow
def test_signal_during_startup_ends_server_quietly(run: Run) -> None:
    process = run()
    while not descendants(process.pid) and process.poll() is None:
        time.sleep(0.005)
    below = descendants(process.pid)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=END_S)
    assert (process.returncode, err) == (0, "")
    assert not [pid for pid in below if is_alive(pid)]


# Errors at startup. One process shows the form of an error; the messages are tested without a process.


@pytest.mark.slow
def test_missing_checkpoint_is_reported_in_one_line(run: Run) -> None:
    status, message = error_of(run("--model", "/nowhere"))
    assert status == 2
    assert message.startswith("tirjudge serve: model: /nowhere")


@pytest.mark.slow
def test_port_in_use_is_reported_in_one_line(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status, message = error_of(run("--port", str(taken.getsockname()[1])))
    assert status == 2
    assert "use another --host or --port" in message


async def error_at_start(**settings: Any) -> str:
    """The message of the error that a server with these settings raises at startup."""
    with bind("127.0.0.1", port=0) as bound, pytest.raises(TirjudgeError) as raised:
        await serve_judge(bound, settings=ServerSettings(records="none", files="none", **settings))
    return str(raised.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": Path("/nowhere")}, "model: /nowhere"),
        ({"judge": "llama:x"}, "unknown engine 'llama'; installed: chat, "),
        ({"judge": "vllm:"}, "vllm: given without an address"),
        ({"judge": "embedded:", "workers": 2}, "--judge: given with --model, --engine"),
        ({"judge": "embedded:", "engine": ["http://127.0.0.1:9"]}, "--judge: given with --model, --engine"),
        ({"judge": "embedded:", "profile": Path("/nowhere")}, "--profile: given without an engine behind a URL"),
        ({"format": "riddle/1"}, "unknown format 'riddle/1'; installed: tirjudge/1, tirjudge/2"),
        ({"tool": ["oracle"]}, "unknown tool 'oracle'; installed: python"),
        *(
            ({"public_url": url}, f"--public-url: {url!r} given; use a scheme and a host")
            for url in ("judge.example", "ftp://judge.example", "https://judge.example/path", "https://a@b", "https://")
        ),
        ({"dialects": "openrlhf,esperanto"}, "--dialects: 'openrlhf,esperanto' given"),
    ],
)
async def test_invalid_settings_are_refused_at_start(settings: dict[str, Any], message: str) -> None:
    assert (await error_at_start(**settings)).startswith(message)


async def test_error_for_unknown_dialect_lists_the_known_dialects() -> None:
    assert "openrlhf, rerank_shapes" in await error_at_start(dialects="esperanto")


async def test_wait_for_an_engine_is_announced(capsys: pytest.CaptureFixture[str]) -> None:
    assert "http://127.0.0.1:9" in await error_at_start(engine=["http://127.0.0.1:9"], engine_wait_s=0.1)
    assert "waiting up to 0.1 s for an engine" in capsys.readouterr().err


@pytest.mark.slow
def test_unreachable_engine_is_reported_in_one_line(tmp_path: Path) -> None:
    with run_command("serve", "--port", "0", "--engine", "http://127.0.0.1:9", state=tmp_path) as process:
        status, message = error_of(process)
    assert status == 1
    assert message.startswith("tirjudge serve: ")


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_public_address_needs_keys(random_checkpoint: Path, host: str) -> None:
    message = await error_at_start(model=random_checkpoint, host=host)
    assert "tirjudge keys create" in message
    assert "--insecure-open" in message


async def test_missing_isolation_is_reported_with_remedy(random_checkpoint: Path, monkeypatch) -> None:
    async def start(pool: SandboxPool) -> None:
        raise SandboxUnavailable("no isolation that is allowed works here:\nlandlock: not in this kernel")

    monkeypatch.setattr(SandboxPool, "start", start)
    message = await error_at_start(model=random_checkpoint)
    assert "not in this kernel" in message
    assert "--allow-unsafe-sandbox" in message


# Options.


@pytest.mark.slow
def test_insecure_open_allows_public_address(serve: Serve) -> None:
    server = serve("--host", "0.0.0.0", "--insecure-open", "--records", "none")
    assert server.url.startswith("http://0.0.0.0:")


class Clock:
    """A tool that needs no sandbox."""

    name = "clock"
    description = "Returns the time."

    async def run(self, source: str, *, context: Any) -> Any:
        raise AssertionError("not called")


async def test_server_without_python_tool_opens_no_sandbox(random_checkpoint: Path, monkeypatch) -> None:
    async def start(pool: SandboxPool) -> None:
        raise AssertionError("no tool needs the sandbox")

    clock = ToolKind(name="clock", open=lambda options: nullcontext(Clock()))
    monkeypatch.setattr(SandboxPool, "start", start)
    monkeypatch.setitem(TOOLS._points, "clock", SimpleNamespace(load=lambda: clock))
    settings = ServerSettings(model=random_checkpoint, tool=["clock"], records="none", files="none")
    async with open_application(settings) as opened:
        assert [tool.name for tool in opened.service.judge.tools] == ["clock"]
        assert opened.service.judge.sandbox is None
        assert opened.service.isolation is None


async def test_functions_alone_imply_python(random_checkpoint: Path, connect: Callable[..., Any]) -> None:
    settings = ServerSettings(model=random_checkpoint, tool=["run"], records="none", files="none")
    async with open_application(settings) as opened, connect(opened.app) as client:
        (card,) = (await client.get("/v1/models", headers={"host": "127.0.0.1"})).json()["data"]
        assert opened.service.isolation is not None
    assert card["functions"] == {"run": "1", "run_many": "1", "tests": "1"}


async def test_functions_without_a_sandbox_are_refused_at_start(random_checkpoint: Path, monkeypatch) -> None:
    clock = ToolKind(name="clock", open=lambda options: nullcontext(Clock()))
    monkeypatch.setitem(TOOLS._points, "clock", SimpleNamespace(load=lambda: clock))
    message = await error_at_start(model=random_checkpoint, tool=["clock", "run"])
    assert message == "--tool: run is a function of programs; add --tool python"


async def test_judge_option_works_with_format_and_tool(random_checkpoint: Path, connect: Callable[..., Any]) -> None:
    settings = ServerSettings(
        judge=f"embedded:{random_checkpoint}", format="tirjudge/1", tool=["python"], records="none", files="none"
    )
    async with open_application(settings) as opened, connect(opened.app) as client:
        headers = {"host": "127.0.0.1"}
        assert (await client.post("/v1/judge", json=BODY | {"tools": "on"}, headers=headers)).status_code == 200


@pytest.mark.slow
async def test_only_selected_dialects_are_served(random_checkpoint: Path) -> None:
    settings = ServerSettings(model=random_checkpoint, dialects="slime", records="none", files="none")
    async with open_application(settings) as opened:
        paths = opened.app.openapi()["paths"]
    assert "/rm" in paths
    assert "/v1/reward" in paths
    assert not {"/get_reward", "/v1/batches"} & set(paths)


@pytest.mark.slow
def test_recorded_judgment_is_reused_after_restart(serve: Serve) -> None:
    request = {"json": BODY, "headers": {"idempotency-key": "mine"}, "timeout": 60}
    first = serve()
    judged = httpx2.post(f"{first.url}/v1/judge", **request).json()
    first.kill()
    second = serve("--no-cache")
    assert httpx2.post(f"{second.url}/v1/judge", **request).json() == judged
    assert httpx2.get(f"{second.url}/v1/judgments/{judged['id']}").status_code == 200


@pytest.mark.slow
def test_server_serves_https_with_given_certificate(serve: Serve, tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", *subject]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    server = serve("--tls-cert", str(certificate), "--tls-key", str(key))
    trusted = ssl.create_default_context(cafile=str(certificate))
    assert server.url.startswith("https://")
    assert httpx2.get(f"{server.url}/ready", verify=trusted).status_code == 200


@pytest.mark.slow
def test_server_judges_through_a_worker(start: Serve, serve: Serve, random_checkpoint: Path) -> None:
    worker = start("worker", "--model", str(random_checkpoint))
    server = serve("--engine", worker.url)
    response = httpx2.post(f"{server.url}/v1/judge", json=BODY, timeout=60)
    assert response.status_code == 200, response.text
    assert response.json()["model"] == "random"

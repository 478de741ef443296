"""`tirjudge serve` as a process: its one line, its signals, and nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.processes import descendants, is_alive
from tirjudge.errors import SandboxUnavailable
from tirjudge_sandbox import SandboxPool
from tirjudge_server.serving import serve_judge
from tirjudge_server.settings import ServerSettings
from tirjudge_web.process import bind

MAIN = [sys.executable, "-c", "from tirjudge.cli import main; main()"]
BODY = {"mode": "pairwise", "prompt": "Which is longer?", "responses": ["one", "three"]}
SLOW = BODY | {"votes": 64, "temperature": 1.0, "mode": "pointwise", "responses": ["one"] * 12}
"""Hundreds of rollouts: takes seconds."""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(random_checkpoint: Path, tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str, command: str = "serve") -> subprocess.Popen[str]:
        model = [] if "--judge" in arguments else ["--model", str(random_checkpoint)]
        process = subprocess.Popen(
            [*MAIN, command, *model, "--port", "0", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"XDG_STATE_HOME": str(tmp_path)},
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def url_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    found = re.fullmatch(
        r"tirjudge is ready at (http://127\.0\.0\.1:\d+) \(model random, sandbox \S+\)\n", process.stdout.readline()
    )
    assert found
    return found[1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_quietly_and_leaves_no_process(start: Start, number: signal.Signals) -> None:
    process = start()
    url = url_of(process)
    assert httpx2.post(f"{url}/v1/judge", json=BODY).status_code == 200
    assert httpx2.get(f"{url}/ready").status_code == 200
    below = descendants(process.pid)
    assert below
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert (out, err) == ("", "")
    assert not [pid for pid in below if is_alive(pid)]


def during_a_slow_judgment(process: subprocess.Popen[str], *, url: str) -> Any:
    """A judgment that was under way when SIGTERM came: its answer."""
    with ThreadPoolExecutor() as threads:
        asking = threads.submit(httpx2.post, f"{url}/v1/judge", json=SLOW, timeout=60)
        while httpx2.get(f"{url}/health").json()["running"] == 0:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        return asking.result()


def test_what_is_under_way_at_sigterm_is_finished(start: Start) -> None:
    process = start()
    response = during_a_slow_judgment(process, url=url_of(process))
    assert response.status_code == 200
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")


def test_after_the_grace_what_is_under_way_is_answered_with_503(start: Start) -> None:
    process = start("--grace-s", "0.1")
    response = during_a_slow_judgment(process, url=url_of(process))
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "shutting_down"
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize("hangs_up", [True, False])
def test_an_upload_that_never_ends_is_dropped_quietly(start: Start, hangs_up: bool) -> None:
    process = start("--grace-s", "0.2")
    url = url_of(process)
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as uploading:
        uploading.sendall(b"POST /v1/judge HTTP/1.1\r\nhost: test\r\ncontent-length: 100\r\n\r\n{")
        if hangs_up:
            uploading.close()
        assert httpx2.get(f"{url}/health").status_code == 200
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")


def test_a_signal_before_it_is_ready_ends_it_quietly(start: Start) -> None:
    process = start()
    while not descendants(process.pid) and process.poll() is None:
        time.sleep(0.005)
    below = descendants(process.pid)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert not [pid for pid in below if is_alive(pid)]


def test_a_port_in_use_is_one_line(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = start("--port", str(taken.getsockname()[1]))
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.count("\n") == 1
    assert "use another --host or --port" in err


def test_no_checkpoint_is_one_line(start: Start) -> None:
    process = start("--model", "/nowhere")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err == "tirjudge serve: model: /nowhere is not a checkpoint folder\n"


def test_a_judge_by_its_address_with_its_format_and_its_tool(start: Start, random_checkpoint: Path) -> None:
    url = url_of(start("--judge", f"embedded:{random_checkpoint}", "--format", "tirjudge/1", "--tool", "python"))
    assert httpx2.post(f"{url}/v1/judge", json=BODY | {"tools": "on"}).status_code == 200


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--judge", "llama:x"], "unknown engine 'llama'; installed: chat, embedded, vllm"),
        (["--judge", "vllm:"], "vllm: given without an address"),
        (["--judge", "embedded:", "--workers", "2"], "--judge: given with --model, --engine"),
        (["--judge", "embedded:", "--engine", "http://127.0.0.1:9"], "--judge: given with --model, --engine"),
        (["--judge", "embedded:", "--profile", "/nowhere"], "--profile: given without an engine behind a URL"),
        (["--format", "riddle/1"], "unknown format 'riddle/1'; installed: tirjudge/1"),
        (["--tool", "oracle"], "unknown tool 'oracle'; installed: python"),
    ],
)
def test_a_judge_a_format_or_a_tool_that_is_none_is_one_line(start: Start, arguments: list[str], said: str) -> None:
    process = start(*arguments)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.startswith(f"tirjudge serve: {said}")
    assert err.count("\n") == 1


def test_no_engine_is_one_line(start: Start) -> None:
    process = start("--engine", "http://127.0.0.1:9")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.startswith("tirjudge serve: ")
    assert "Traceback" not in err


@pytest.mark.parametrize("arguments", [["--host", "0.0.0.0"], ["--host", "::"]])
def test_an_address_that_others_can_reach_wants_keys(start: Start, arguments: list[str]) -> None:
    process = start(*arguments)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.count("\n") == 1
    assert "tirjudge keys create" in err
    assert "--insecure-open" in err


def test_it_listens_to_everybody_if_told_to(start: Start) -> None:
    process = start("--host", "0.0.0.0", "--insecure-open", "--records", "none")
    assert process.stdout is not None
    assert "ready at http://0.0.0.0:" in process.stdout.readline()


def test_a_dialect_that_does_not_exist_is_one_line(start: Start) -> None:
    process = start("--dialects", "openrlhf,esperanto")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.count("\n") == 1
    assert "openrlhf, rerank_shapes" in err


def test_only_the_dialects_that_were_named_are_spoken(start: Start) -> None:
    url = url_of(start("--dialects", "slime", "--files", "none"))
    paths = httpx2.get(f"{url}/openapi.json").json()["paths"]
    assert "/rm" in paths
    assert "/v1/reward" in paths
    assert not {"/get_reward", "/v1/batches"} & set(paths)


def test_what_was_judged_is_on_record_and_found_again_after_a_restart(start: Start) -> None:
    first = start()
    url = url_of(first)
    judged = httpx2.post(f"{url}/v1/judge", json=BODY, headers={"idempotency-key": "mine"}, timeout=60).json()
    first.kill()
    first.communicate()
    url = url_of(start("--no-cache"))
    again = httpx2.post(f"{url}/v1/judge", json=BODY, headers={"idempotency-key": "mine"}, timeout=60)
    assert again.json() == judged
    assert httpx2.get(f"{url}/v1/judgments/{judged['id']}").status_code == 200


def test_it_speaks_tls_with_a_certificate_of_its_own(start: Start, tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", *subject]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    process = start("--tls-cert", str(certificate), "--tls-key", str(key))
    assert process.stdout is not None
    found = re.search(r"https://\S+", process.stdout.readline())
    assert found
    trusted = ssl.create_default_context(cafile=str(certificate))
    assert httpx2.get(f"{found[0]}/ready", verify=trusted).status_code == 200


def test_it_judges_through_a_worker(start: Start) -> None:
    worker = start(command="worker")
    assert worker.stdout is not None
    found = re.search(r"http://\S+", worker.stdout.readline())
    assert found
    server = start("--engine", found[0])
    response = httpx2.post(f"{url_of(server)}/v1/judge", json=BODY, timeout=60)
    assert response.status_code == 200, response.text
    assert response.json()["model"] == "random"


async def test_without_isolation_it_refuses_and_says_what_would_do(random_checkpoint: Path, monkeypatch) -> None:
    async def start(pool: SandboxPool) -> None:
        raise SandboxUnavailable("no isolation that is allowed works here:\nlandlock: not in this kernel")

    monkeypatch.setattr(SandboxPool, "start", start)
    with bind("127.0.0.1", port=0) as bound, pytest.raises(SandboxUnavailable) as refused:
        await serve_judge(bound, settings=ServerSettings(model=random_checkpoint, records="none", files="none"))
    assert "not in this kernel" in str(refused.value)
    assert "--allow-unsafe-sandbox" in str(refused.value)

"""`tirjudge sandbox serve` as a process: its output, signals, options, and clean shutdown."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from tests.processes import descendants, is_alive
from tirjudge_sandbox.cli import app

MAIN = [sys.executable, "-c", "from tirjudge.cli import main; main()", "sandbox", "serve", "--port", "0"]

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*MAIN, "--slots", "2", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def first_line(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def usage_error(*arguments: str) -> str:
    """Run the command in this process, with options that it must refuse, and return its message."""
    result = CliRunner().invoke(app, ["serve", "--port", "0", *arguments])
    assert result.exit_code == 2
    return " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_ends_the_service_cleanly_and_leaves_no_process(start: Start, number: signal.Signals) -> None:
    process = start()
    line = first_line(process)
    assert (line["event"], line["slots"], line["keys"]) == ("ready", 2, 0)
    answer = httpx2.post(f"{line['url']}/v1/execute", json={"code": "print(6 * 7)"}).json()
    assert (answer["stdout"], answer["level"]) == ("42\n", line["level"])
    below = descendants(process.pid)
    assert below
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (0, "", "")
    deadline = time.monotonic() + 60
    while any(map(is_alive, below)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(is_alive, below))


@pytest.mark.slow
def test_running_programs_may_finish_after_a_signal(start: Start) -> None:
    process = start("--wall-s", "60", "--grace-s", "60")
    url = first_line(process)["url"]
    with ThreadPoolExecutor() as threads:
        code = "import time\ntime.sleep(3)\nprint('done')"
        answer = threads.submit(httpx2.post, f"{url}/v1/execute", json={"code": code}, timeout=60)
        while not httpx2.get(f"{url}/health", timeout=60).json()["pool"]["num_busy"]:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert answer.result().json()["stdout"] == "done\n"
    process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.slow
def test_keys_are_read_from_the_environment(start: Start) -> None:
    process = start(TIRJUDGE_SANDBOX_KEYS="one two")
    line = first_line(process)
    assert line["keys"] == 2
    url = f"{line['url']}/v1/execute"
    assert httpx2.post(url, json={"code": ""}).status_code == 401
    assert httpx2.post(url, json={"code": ""}, headers={"authorization": "Bearer two"}).status_code == 200
    assert httpx2.post(url.replace("//", "//:one@"), json={"code": ""}).status_code == 200


@pytest.mark.slow
def test_limits_and_headroom_are_options(start: Start) -> None:
    process = start("--cpu-s", "0.3", "--headroom", "2")
    url = first_line(process)["url"] + "/v1/execute"
    assert httpx2.post(url, json={"code": "while True: pass"}, timeout=60).json()["outcome"] == "timeout"
    assert httpx2.post(url, json={"code": "print(1)", "limits": {"cpu_s": 0.6}}).status_code == 200
    assert httpx2.post(url, json={"code": "print(1)", "limits": {"cpu_s": 0.7}}).status_code == 400


@pytest.mark.parametrize("arguments", [["--host", "0.0.0.0"], ["--host", "::"], ["--host", "0.0.0.0", "--key", ""]])
def test_an_address_that_other_machines_can_reach_needs_a_key(arguments: list[str]) -> None:
    message = usage_error(*arguments)
    assert "--key" in message
    assert "--insecure-open" in message


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--insecure-open"], ["--key", "secret"]])
def test_a_key_or_insecure_open_allows_an_address_that_other_machines_can_reach(
    start: Start, arguments: list[str]
) -> None:
    assert first_line(start("--host", "0.0.0.0", *arguments))["event"] == "ready"


def test_a_port_in_use_is_a_usage_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert "--port" in usage_error("--port", str(server.getsockname()[1]))


def test_level_unsafe_needs_allow_unsafe() -> None:
    assert "allow_unsafe" in usage_error("--level", "unsafe")

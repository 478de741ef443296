"""`tirjudge sandbox serve` as a process: its one line, its signals, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from tests.processes import descendants, is_alive

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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_quietly_and_leaves_no_process(start: Start, number: signal.Signals) -> None:
    process = start()
    line = first_line(process)
    assert (line["event"], line["slots"], line["keys"]) == ("ready", 2, 0)
    answer = httpx2.post(f"{line['url']}/v1/execute", json={"code": "print(6 * 7)"}).json()
    assert (answer["stdout"], answer["level"]) == ("42\n", line["level"])
    below = descendants(process.pid)
    assert below
    process.send_signal(number)
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, output, errors) == (0, "", "")
    deadline = time.monotonic() + 10
    while any(map(is_alive, below)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(is_alive, below))


def test_programs_under_way_may_end(start: Start) -> None:
    process = start()
    url = first_line(process)["url"]
    with ThreadPoolExecutor() as threads:
        code = "import time\ntime.sleep(1.5)\nprint('done')"
        answer = threads.submit(httpx2.post, f"{url}/v1/execute", json={"code": code}, timeout=30)
        time.sleep(0.7)
        process.send_signal(signal.SIGTERM)
        assert answer.result().json()["stdout"] == "done\n"
    process.communicate(timeout=30)
    assert process.returncode == 0


def test_keys_come_from_the_environment(start: Start) -> None:
    process = start(TIRJUDGE_SANDBOX_KEYS="one two")
    line = first_line(process)
    assert line["keys"] == 2
    url = f"{line['url']}/v1/execute"
    assert httpx2.post(url, json={"code": ""}).status_code == 401
    assert httpx2.post(url, json={"code": ""}, headers={"authorization": "Bearer two"}).status_code == 200
    assert httpx2.post(url.replace("//", "//:one@"), json={"code": ""}).status_code == 200


def test_limits_and_headroom_are_the_operators(start: Start) -> None:
    process = start("--cpu-s", "0.3", "--headroom", "2")
    url = first_line(process)["url"] + "/v1/execute"
    assert httpx2.post(url, json={"code": "while True: pass"}, timeout=30).json()["outcome"] == "timeout"
    assert httpx2.post(url, json={"code": "print(1)", "limits": {"cpu_s": 0.6}}).status_code == 200
    assert httpx2.post(url, json={"code": "print(1)", "limits": {"cpu_s": 0.7}}).status_code == 400


@pytest.mark.parametrize("arguments", [["--host", "0.0.0.0"], ["--host", "::"], ["--host", "0.0.0.0", "--key", ""]])
def test_an_address_that_others_can_reach_wants_a_key(start: Start, arguments: list[str]) -> None:
    process = start(*arguments)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    said = " ".join(errors.replace("│", " ").split())
    assert "--key" in said
    assert "--insecure-open" in said


@pytest.mark.parametrize("arguments", [["--insecure-open"], ["--key", "secret"]])
def test_an_address_that_others_can_reach_is_served_with_a_key_or_if_told_to(
    start: Start, arguments: list[str]
) -> None:
    assert first_line(start("--host", "0.0.0.0", *arguments))["event"] == "ready"


def test_an_address_that_is_taken_is_the_users_mistake(start: Start) -> None:
    url = httpx2.URL(first_line(start())["url"])
    process = start("--port", str(url.port))
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "--port" in errors


def test_unsafe_needs_its_own_flag(start: Start) -> None:
    process = start("--level", "unsafe")
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "allow_unsafe" in errors

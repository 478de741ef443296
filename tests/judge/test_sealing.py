"""A service with keys, inspected through /proc by another process of the same user, such as a program at level `unsafe`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

# Root can inspect every process, so the service switches to an unprivileged user. That clears PR_SET_DUMPABLE (4), so
# prctl(4, 1) sets it again.
SERVICE = """
import ctypes, json, os, subprocess, sys
from tirjudge_web.sealing import seal_process

_, state, *secrets = sys.argv
if os.getuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
if state == "sealed":
    seal_process(secrets)

def read(name):
    with open(f"/proc/{service}/{name}", "rb", buffering=0) as file:
        return "opened" if name == "mem" else file.read(100_000).decode()

seen, service = {}, os.getpid()
read_end, write_end = os.pipe()
if not os.fork():
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
    for name, look in {"environ": read, "cmdline": read, "mem": read, "maps": read, "fd/0": os.stat, "cwd": os.stat}.items():
        try:
            seen[name] = str(look(name if look is read else f"/proc/{service}/{name}"))
        except PermissionError:
            seen[name] = "refused"
    os.write(write_end, json.dumps(seen).encode())
    os._exit(0)
os.close(write_end)
with open(read_end) as file:
    seen = json.load(file)
inherited = subprocess.run(["/bin/sh", "-c", "echo $KEY $OTHER"], stdout=subprocess.PIPE, text=True).stdout.split()
print(json.dumps({**seen, "own": [os.environ["KEY"], os.environ["OTHER"]], "inherited": inherited}))
"""

Look = Callable[[str], dict[str, Any]]


@pytest.fixture
def seen() -> Look:
    """Return a function that starts a service (`sealed` or `open`) and returns what another process can read of it."""

    def look(state: str) -> dict[str, Any]:
        environment = {**os.environ, "KEY": "environment-7731", "OTHER": "x" * 5000}
        command = [sys.executable, "-c", SERVICE, state, "arguments-7731"]
        return json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout)

    return look


def test_other_processes_of_the_user_cannot_read_the_keys_of_a_sealed_service(seen: Look) -> None:
    found = seen("sealed")
    assert {name for name, text in found.items() if text == "refused"} == {"environ", "mem", "maps", "fd/0", "cwd"}
    assert found["cmdline"].split("\0")[-3:] == ["sealed", "*" * len("arguments-7731"), ""]


def test_other_processes_of_the_user_can_read_the_keys_of_an_unsealed_service(seen: Look) -> None:
    """Control experiment for the test above."""
    found = seen("open")
    assert "environment-7731" in found["environ"]
    assert "arguments-7731" in found["cmdline"]
    assert found["mem"] == "opened"


def test_a_sealed_service_and_its_children_keep_their_environment(seen: Look) -> None:
    found = seen("sealed")
    assert found["own"] == found["inherited"] == ["environment-7731", "x" * 5000]

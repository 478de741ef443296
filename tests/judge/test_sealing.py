"""A service that holds keys, seen through /proc by another process of its user, as a program at the level `unsafe` is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

# Root may look at every process, so a service that root starts becomes an ordinary user. (PR_SET_DUMPABLE is 4. After an exec
# it is 1; the change of user undid that.)
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
    """What another process sees of a service, `sealed` or not."""

    def look(state: str) -> dict[str, Any]:
        environment = {**os.environ, "KEY": "environment-7731", "OTHER": "x" * 5000}
        command = [sys.executable, "-c", SERVICE, state, "arguments-7731"]
        return json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout)

    return look


def test_no_process_of_its_user_reads_the_keys_of_a_service(seen: Look) -> None:
    found = seen("sealed")
    assert {name for name, text in found.items() if text == "refused"} == {"environ", "mem", "maps", "fd/0", "cwd"}
    assert found["cmdline"].split("\0")[-3:] == ["sealed", "*" * len("arguments-7731"), ""]


def test_any_process_of_its_user_reads_the_keys_of_a_service_that_is_not_sealed(seen: Look) -> None:
    """Otherwise the test above proves nothing."""
    found = seen("open")
    assert "environment-7731" in found["environ"]
    assert "arguments-7731" in found["cmdline"]
    assert found["mem"] == "opened"


def test_a_sealed_service_and_what_it_starts_keep_their_environment(seen: Look) -> None:
    found = seen("sealed")
    assert found["own"] == found["inherited"] == ["environment-7731", "x" * 5000]

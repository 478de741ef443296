"""Protection at the level `unsafe`, where programs run as the pool's user. In a cluster, such a pool runs inside
gVisor. These tests use this machine's kernel; tests/deploy/test_seccomp.py removes the features that gVisor lacks."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from tests.waiting import until
from tirjudge.types import ExecResult, Outcome
from tirjudge_sandbox import Limits, SandboxPool

pytestmark = pytest.mark.filterwarnings("ignore:programs run without isolation")

LIMITS = Limits(cpu_s=10.0, wall_s=60.0, memory_mb=256)
OPTIONS: dict[str, Any] = {"slots": 2, "limits": LIMITS, "level": "unsafe", "allow_unsafe": True}

DESCRIPTORS_OF_OTHERS = """
import os, time

def of_others():
    "Yield all files that other processes have open."
    for pid in set(filter(str.isdigit, os.listdir("/proc"))) - {str(os.getpid())}:
        try:
            yield from (f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            pass
"""


@pytest_asyncio.fixture(loop_scope="session")
async def pool(open_shared: Callable[..., Any]) -> SandboxPool:
    """A pool shared by the tests of this file."""
    return await open_shared(**OPTIONS)


async def run(pool: SandboxPool, code: str, **bindings: str) -> ExecResult:
    return await pool.run(textwrap.dedent(code), bindings=bindings)


@pytest.mark.slow
async def test_results_have_the_level_unsafe_and_libraries_work(pool: SandboxPool) -> None:
    result = await run(pool, "import numpy, threading, decimal; print(numpy.arange(4).sum(), decimal.Decimal(1))")
    assert (result.level, result.outcome, result.stdout) == ("unsafe", Outcome.OK, "6 1\n")


async def test_no_process_survives_its_program(family: Callable[..., dict[int, int]]) -> None:
    code = """
        import ctypes, os, time
        CLONE_PARENT, SIGCHLD, fork, vfork, clone = 0x8000, 17, 57, 58, 56
        libc = ctypes.CDLL(None)
        for attempt in (os.fork, os.forkpty, lambda: os.posix_spawn("/bin/sleep", ["sleep", "600"], {}),
                        lambda: libc.fork(), lambda: libc.syscall(clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0)):
            try:
                pid = attempt()
            except OSError:
                continue
            if pid == 0:
                time.sleep(600)
            if pid != -1:
                print("FORKED", pid)
        print("done")
    """
    num_at_rest = 1 + 2 * 2  # the fork server; two slots, each with a process that waits for the next program
    async with SandboxPool(**OPTIONS) as pool:
        await until(lambda: len(family()) == num_at_rest)
        for _ in range(2):
            assert (await run(pool, code)).stdout == "done\n"
        await until(lambda: len(family()) == num_at_rest)


@pytest.mark.slow
async def test_a_program_cannot_replace_the_output_of_another(pool: SandboxPool) -> None:
    forge = (
        DESCRIPTORS_OF_OTHERS
        + """
end = time.monotonic() + 1.5
while time.monotonic() < end:
    for path in of_others():
        if "memfd:std" in (os.readlink(path) if os.access(path, os.W_OK) else ""):
            try:
                os.pwrite(os.open(path, os.O_RDWR), b"FORGED", 0)
                print("WROTE", path)
            except OSError:
                pass
print("done")
"""
    )
    forged, honest = await asyncio.gather(run(pool, forge), run(pool, "import time; time.sleep(2); print('honest')"))
    assert (forged.stdout, honest.stdout) == ("done\n", "honest\n")
    assert (await run(pool, "print('honest')")).stdout == "honest\n"


@pytest.mark.slow
async def test_a_program_cannot_read_the_output_of_another(pool: SandboxPool) -> None:
    look = (
        DESCRIPTORS_OF_OTHERS
        + """
end = time.monotonic() + 1.5
while time.monotonic() < end:
    for path in of_others():
        try:
            if "memfd:" in os.readlink(path) and b"violet-7731" in os.pread(os.open(path, os.O_RDONLY), 10_000, 0):
                print("SAW", path)
        except OSError:
            pass
print("done")
"""
    )
    code = "import time\nprint('violet-' + '7731', flush=True)\ntime.sleep(2)"
    seen, _ = await asyncio.gather(run(pool, look), run(pool, code))
    assert seen.stdout == "done\n"


async def test_host_files_cannot_be_changed(pool: SandboxPool, tmp_path) -> None:
    tmp_path.chmod(0o777)
    (tmp_path / "there").write_text("before")
    (tmp_path / "there").chmod(0o666)
    code = """
        import os
        for attempt in (lambda: open(f"{folder}/new", "w"), lambda: open(f"{folder}/there", "r+"),
                        lambda: open(f"{folder}/there", "w"), lambda: os.mkdir(f"{folder}/new"),
                        lambda: os.open(folder, os.O_TMPFILE | os.O_RDWR), lambda: os.truncate(f"{folder}/there", 0),
                        lambda: os.remove(f"{folder}/there"), lambda: os.rename(f"{folder}/there", f"{folder}/new"),
                        lambda: os.symlink("/", f"{folder}/new"), lambda: os.chmod(f"{folder}/there", 0),
                        lambda: os.open(f"{folder}/there", 3), lambda: os.open(f"{folder}/there", os.O_TRUNC)):
            try:
                print("CHANGED", attempt())
            except OSError:
                pass
        print("done")
    """
    assert (await run(pool, code, folder=str(tmp_path))).stdout == "done\n"
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("there", "before")]


async def test_other_processes_cannot_be_signaled_traced_or_limited(pool: SandboxPool) -> None:
    code = """
        import ctypes, os, resource
        PTRACE_SEIZE = 0x4206
        for pid in (-1, os.getppid(), int(victim)):
            for attempt in (lambda: os.kill(pid, 0), lambda: resource.prlimit(pid, resource.RLIMIT_NPROC, (300, 300)),
                            lambda: os.pidfd_open(pid), lambda: open(f"/proc/{pid}/mem", "rb")):
                try:
                    attempt()
                    print("REACHED", pid)
                except OSError:
                    pass
            if ctypes.CDLL(None).ptrace(PTRACE_SEIZE, pid, 0, 0) == 0:
                print("TRACED", pid)
        print("done")
    """
    victim = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=subprocess.PIPE)
    assert (await run(pool, code, victim=str(victim.pid))).stdout == "done\n"
    assert victim.returncode is None
    await victim.communicate(b"")


async def test_programs_have_no_network_and_no_privileges(pool: SandboxPool) -> None:
    code = """
        import os, socket
        for attempt in (socket.socket, lambda: os.setuid(0), lambda: os.chroot("/"), lambda: os.setgroups([])):
            try:
                attempt()
                print("DID", attempt)
            except OSError:
                pass
        print("done")
    """
    assert (await run(pool, code)).stdout == "done\n"


@pytest.fixture
def service() -> Iterator[str]:
    """URL of a service whose API key is in its environment, together with another secret."""
    command = [sys.executable, "-c", "from tirjudge.cli import main; main()", "sandbox", "serve", "--port", "0"]
    options = ["--slots", "1", "--level", "unsafe", "--allow-unsafe"]
    environment = {**os.environ, "TIRJUDGE_SANDBOX_KEYS": "key-7731", "TIRJUDGE_ENGINE_KEY": "other-7731"}
    with subprocess.Popen(
        [*command, *options], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
        process.terminate()


@pytest.mark.slow
def test_a_program_cannot_read_the_keys_of_the_service(service: str) -> None:
    code = """
import os
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("environ", "cmdline"):
        try:
            if b"-" b"7731" in open(f"/proc/{pid}/{name}", "rb").read():
                print("FOUND", pid, name)
        except OSError:
            pass
print("done")
"""
    answer = httpx2.post(f"{service}/v1/execute", json={"code": code}, headers={"authorization": "Bearer key-7731"})
    assert answer.json()["stdout"] == "done\n", answer.text

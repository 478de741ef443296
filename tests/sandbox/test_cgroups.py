"""Control groups: limits on the total use of all processes of a program."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tirjudge.types import Outcome
from tirjudge_sandbox import IsolationLevel, Limits, SandboxPool
from tirjudge_sandbox.cgroups import MemoryKill, num_oom_kills, open_tree
from tirjudge_sandbox.fork_server import start_fork_server
from tirjudge_sandbox.slot_process import LevelUnavailable


def peaks_bytes(*, besides: set[str]) -> list[int]:
    """Return the peak memory of each group that is not in `besides`. Empty if the kernel does not report it."""
    files = [Path(path, name) for path in groups() - besides for name in ("memory.max_usage_in_bytes", "memory.peak")]
    return [int(file.read_text()) for file in files if file.exists()]


HUNGRY = "input(); kept = bytearray(256 << 20); kept[::4096] = b'x' * len(kept[::4096])"
WITH_CGROUP = pytest.mark.parametrize("level", [IsolationLevel.NAMESPACES_CGROUP], indirect=True)


def groups(pid: int | None = None) -> set[str]:
    """Return the paths of the control groups that a process has created. None: this process."""
    prefix = f"tirjudge-{pid or os.getpid()}-"
    # `os.walk` continues if a group of another process disappears during the walk.
    return {
        f"{parent}/{name}"
        for parent, names, _ in os.walk("/sys/fs/cgroup")
        for name in names
        if name.startswith(prefix)
    }


@WITH_CGROUP
async def test_forks_and_multiprocessing_work(pool):
    code = """
        import multiprocessing, os
        read_end, write_end = os.pipe()
        if not (child := os.fork()):
            os.write(write_end, b"from the child")
            os._exit(7)
        print(os.read(read_end, 100), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        with multiprocessing.get_context("fork").Pool(2) as workers:
            print(workers.map(abs, [-1, 2, -3]))
    """
    result = await pool.run(textwrap.dedent(code))
    assert result.stdout == "b'from the child' 7\n[1, 2, 3]\n", result


@WITH_CGROUP
async def test_a_fork_bomb_is_limited_and_ends_with_its_program(own_pool, staying):
    before = await staying(slots=2)
    code = """
        import os, time
        end = time.monotonic() + 0.3
        count = 0
        while time.monotonic() < end:
            try:
                if os.fork() == 0:
                    time.sleep(600)
                count += 1
            except OSError:
                time.sleep(0.01)
        print(count)
    """
    result = await own_pool.run(textwrap.dedent(code))
    assert result.outcome is Outcome.OK, result
    assert 2 <= int(result.stdout) <= 64
    assert await staying(slots=2) == before


@pytest.mark.slow
@WITH_CGROUP
async def test_endless_forking_is_a_timeout_and_leaves_no_process(level, staying):
    async with SandboxPool(slots=1, limits=Limits(cpu_s=0.5, wall_s=3), level=level) as pool:
        before = await staying(slots=1)
        code = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
        assert (await pool.run(code)).outcome is Outcome.TIMEOUT
        assert await staying(slots=1) == before
        assert (await pool.run("print('next')")).stdout == "next\n"


@pytest.mark.slow
@WITH_CGROUP
async def test_total_memory_of_many_processes_is_limited(level):
    code = """
        import os, time
        for _ in range(12):
            if os.fork() == 0:
                hoard = bytearray(100 << 20)
                time.sleep(600)
        for _ in range(12):
            os.wait()
    """
    before = groups()
    async with SandboxPool(slots=1, limits=Limits(memory_mb=256, wall_s=3), level=level) as pool:
        result = await pool.run(textwrap.dedent(code))
        assert result.outcome in (Outcome.OOM, Outcome.TIMEOUT)
        assert all(peak < 400 << 20 for peak in peaks_bytes(besides=before))
        assert (await pool.run("print('next')")).stdout == "next\n"


@WITH_CGROUP
@pytest.mark.slow
async def test_a_kill_by_the_oom_killer_is_reported_as_oom(level):
    code = """
        import os
        for _ in range(6):
            if os.fork() == 0:
                break
        hoard = bytearray(90 << 20)
        while True:
            pass
    """
    async with SandboxPool(slots=1, limits=Limits(memory_mb=128, cpu_s=20, wall_s=30), level=level) as pool:
        result = await pool.run(textwrap.dedent(code))
        assert (result.outcome, result.exit_code, result.signal) == (Outcome.OOM, None, None), result
        assert result.error == "MemoryLimit: more than 128 MiB in all"
        assert (await pool.run("print('next')")).outcome is Outcome.OK


@pytest.mark.slow
@WITH_CGROUP
async def test_cpu_time_of_children_counts(pool):
    code = "import os\nif os.fork(): os.wait()\nwhile True: pass"  # the parent itself uses no CPU time
    result = await pool.run(code, limits=Limits(cpu_s=0.5, wall_s=60))
    assert (result.outcome, result.error) == (Outcome.TIMEOUT, "TimeLimit: more than 0.5 s of processor time")


@pytest.mark.parametrize("level", [IsolationLevel.NAMESPACES_CGROUP, IsolationLevel.NAMESPACES], indirect=True)
async def test_unlinked_files_count_toward_the_scratch_limit(pool):
    code = """
        import os
        kept = written = 0
        try:
            for number in range(60):
                kept = os.open(f"file{number}", os.O_RDWR | os.O_CREAT)
                os.unlink(f"file{number}")
                written += os.write(kept, bytes(1 << 20))
        except OSError as error:
            print(error.strerror)
        print(written >> 20)
    """
    assert (await pool.run(textwrap.dedent(code))).stdout == "No space left on device\n16\n"


async def test_memory_files_cannot_be_created(pool):
    code = "import os\nos.memfd_create('x')"
    assert (await pool.run(code)).error == "PermissionError: [Errno 1] Operation not permitted"


@WITH_CGROUP
async def test_clone_cannot_create_namespaces(pool):
    code = """
        import ctypes, errno, platform
        libc = ctypes.CDLL(None, use_errno=True)
        clone, clone3 = (56, 435) if platform.machine() == "x86_64" else (220, 435)
        for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000, 0x8000, 0x2000):
            result = libc.syscall(clone, flag | 17, 0, 0, 0, 0)
            if result == 0:
                libc._exit(0)
            if result != -1 or ctypes.get_errno() != errno.EPERM:
                print("MADE", hex(flag))
        print(libc.syscall(clone3, 0, 0), ctypes.get_errno() == errno.ENOSYS)
    """
    assert (await pool.run(textwrap.dedent(code))).stdout == "-1 True\n"


@WITH_CGROUP
async def test_signals_to_groups_are_refused_and_to_children_allowed(own_pool, staying):
    code = """
        import os, signal
        for pid in (0, -1, -2, -os.getpgrp()):
            try:
                os.kill(pid, signal.SIGKILL)
                print("SENT", pid)
            except OSError:
                pass
        if not (child := os.fork()):
            signal.pause()
        os.kill(child, signal.SIGKILL)
        print(os.waitpid(child, 0)[1])
    """
    before = await staying(slots=2)
    assert (await own_pool.run(textwrap.dedent(code))).stdout == "9\n"
    assert await staying(slots=2) == before


@WITH_CGROUP
def test_a_memory_kill_is_not_reported_for_the_next_process(level):
    group = open_tree().make()
    try:
        with subprocess.Popen([sys.executable, "-c", HUNGRY], stdin=subprocess.PIPE) as victim:
            group.add(victim.pid, base_bytes=32 << 20)
            group.limit(32 << 20)
            victim.communicate(b"\n")
        assert victim.returncode == -signal.SIGKILL
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as next_one:
            group.add(next_one.pid, base_bytes=32 << 20)
            assert group.memory_kill() is MemoryKill.NONE
            next_one.communicate(b"\n")
    finally:
        group.close()
        asyncio.run(group.remove())


@WITH_CGROUP
def test_a_memory_kill_in_a_child_group_is_not_a_kill_around(level):
    before = num_oom_kills()
    group = open_tree().make()
    try:
        with subprocess.Popen([sys.executable, "-c", HUNGRY], stdin=subprocess.PIPE) as victim:
            group.add(victim.pid, base_bytes=32 << 20)
            group.limit(32 << 20)
            victim.communicate(b"\n")
        assert group.memory_kill() is MemoryKill.OWN_LIMIT
        assert num_oom_kills() == before
    finally:
        group.close()
        asyncio.run(group.remove())


@WITH_CGROUP
async def test_closing_a_pool_removes_its_groups(level):
    before = groups()
    async with SandboxPool(slots=2, level=level) as pool:
        await asyncio.gather(*(pool.run("print(1)") for _ in range(4)))
        assert groups() > before
    assert groups() == before


@WITH_CGROUP
async def test_a_failed_level_leaves_no_groups_for_the_next_level(level, monkeypatch):
    async def start_without(at, **options):
        if at.has_cgroup:
            raise LevelUnavailable("namespace", "not available in this test")
        return await start_fork_server(at, **options)

    monkeypatch.setattr("tirjudge_sandbox.pool.start_fork_server", start_without)
    before = groups()
    async with SandboxPool(slots=1) as pool:
        assert pool.level in (IsolationLevel.NAMESPACES, IsolationLevel.LANDLOCK)
        assert (await pool.run("print(1)")).stdout == "1\n"
        assert groups() == before


@pytest.mark.slow
@WITH_CGROUP
def test_groups_of_a_killed_service_are_removed_by_the_next_pool(level):
    script = f"""
import asyncio
from tirjudge_sandbox import SandboxPool

async def main():
    async with SandboxPool(slots=2, level="{level}") as pool:
        await pool.run("print(1)")
        print("running", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"running\n"
        assert groups(server.pid)
        open_tree()
        assert groups(server.pid), "removed while the service was alive"
        server.kill()
    deadline = time.monotonic() + 60
    while groups(server.pid) and time.monotonic() < deadline:
        open_tree()
        time.sleep(0.05)
    assert not groups(server.pid)

"""The seccomp profile of sandbox workers, loaded into the kernel around a real pool."""

from __future__ import annotations

import ctypes.util
import errno
import json
import resource
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tirjudge_sandbox import seccomp

PROFILE = Path(__file__).parents[2] / "deploy" / "seccomp" / "sandbox.json"
BUILDING_BETTER_WALLS = {"mount", "umount2", "unshare", "setns", "move_mount"}
"""What a pool would use for a level that a container without capabilities does not allow anyway."""

PROGRAMS = {
    "print(6 * 7)": ("ok", "42"),
    "import numpy; print(int(numpy.linalg.inv(numpy.eye(3)).sum()))": ("ok", "3"),
    "import threading; t = threading.Thread(target=print, args=('hi',)); t.start(); t.join()": ("ok", "hi"),
    "import socket; socket.socket()": ("error", ""),
    "open('/etc/passwd')": ("error", ""),
    "import os; os.fork()": ("error", ""),
    "bytearray(10**11)": ("oom", ""),
}

needs_libseccomp = pytest.mark.skipif(
    ctypes.util.find_library("seccomp") is None and not Path("/lib/x86_64-linux-gnu/libseccomp.so.2").exists(),
    reason="there is no libseccomp here, which compiles profiles",
)


@pytest.fixture(scope="module")
def profile() -> dict[str, Any]:
    return json.loads(PROFILE.read_text(encoding="utf-8"))


def allowed(profile: dict[str, Any]) -> set[str]:
    return {name for rule in profile["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}


def confined(code: str, *, profile: Path = PROFILE) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(Path(__file__).with_name("confined.py")), str(profile), sys.executable, "-c"]
    return subprocess.run([*command, textwrap.dedent(code)], capture_output=True, text=True, check=False)


def test_all_that_programs_and_slots_may_do_is_let_through(profile: dict[str, Any]) -> None:
    tables = (
        seccomp._NUMBERS,
        seccomp._NUMBERS_THAT_OPEN,
        seccomp._NUMBERS_OF_PROCESSES,
        seccomp._NUMBERS_OF_SLOTS,
    )
    needed = {row.split()[0] for table in tables for row in table.split(",")} - BUILDING_BETTER_WALLS
    assert len(needed) > 100
    assert needed - allowed(profile) == set()


def test_what_is_not_needed_is_refused(profile: dict[str, Any]) -> None:
    dangerous = {"ptrace", "bpf", "io_uring_setup", "keyctl", "perf_event_open", "process_vm_writev", "userfaultfd"}
    dangerous |= {"init_module", "kexec_load", "open_by_handle_at", "pivot_root", "chroot", "fanotify_init"}
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    assert not allowed(profile) & (dangerous | BUILDING_BETTER_WALLS)


def test_the_documentation_counts_right(profile: dict[str, Any]) -> None:
    docs = PROFILE.parents[2] / "docs" / "deploy.md"
    assert f": {len(allowed(profile))} system calls." in docs.read_text(encoding="utf-8")


@needs_libseccomp
def test_a_pool_runs_programs_behind_the_profile_and_its_walls_stand() -> None:
    done = confined(f"""
        import asyncio, json
        from tirjudge_sandbox import Limits, SandboxPool

        async def main():
            limits = Limits(cpu_s=20, wall_s=60, memory_mb=256)
            async with SandboxPool(slots=1, limits=limits) as pool:
                found = {{code: await pool.run(code) for code in {list(PROGRAMS)!r}}}
                ends = {{code: (result.outcome, result.stdout.strip()) for code, result in found.items()}}
                print(json.dumps([pool.level, ends]))

        asyncio.run(main())
    """)
    assert done.returncode == 0, done.stderr
    level, ends = json.loads(done.stdout)
    assert level == "landlock"
    assert {code: tuple(end) for code, end in ends.items()} == PROGRAMS


@needs_libseccomp
def test_the_process_around_programs_is_confined_itself() -> None:
    done = confined("""
        import ctypes, errno, os, socket
        library = ctypes.CDLL(None, use_errno=True)

        def refusal(call):
            try:
                result = call()
            except OSError as error:
                return error.errno
            return ctypes.get_errno() if result == -1 else 0

        CLONE_NEWUSER, PTRACE_TRACEME, AF_NETLINK = 0x10000000, 0, 16
        print([
            refusal(lambda: library.unshare(CLONE_NEWUSER)),
            refusal(lambda: library.ptrace(PTRACE_TRACEME, 0, 0, 0)),
            refusal(lambda: socket.socket(AF_NETLINK, socket.SOCK_RAW).close()),
            refusal(lambda: socket.socket(socket.AF_INET).close()),
            refusal(lambda: os.chroot("/")),
        ])
    """)
    assert done.stdout.strip() == "[1, 1, 1, 0, 1]", done.stderr


@needs_libseccomp
def test_where_gvisor_is_the_only_wall_programs_run_if_that_is_allowed(tmp_path: Path) -> None:
    """gVisor in a pod: no Landlock, no namespaces, and limits that it does not know."""
    unknown = [resource.RLIMIT_MSGQUEUE, resource.RLIMIT_SIGPENDING]
    missing = ["unshare", "landlock_create_ruleset"]
    like_gvisor = {
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [
            {"names": missing, "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS},
            *[
                {
                    "names": ["prlimit64"],
                    "action": "SCMP_ACT_ERRNO",
                    "args": [{"index": 1, "value": kind, "op": "SCMP_CMP_EQ"}],
                }
                for kind in unknown
            ],
        ],
    }
    profile = tmp_path / "gvisor.json"
    profile.write_text(json.dumps(like_gvisor))
    done = confined(
        """
        import asyncio
        from tirjudge_sandbox import SandboxPool

        async def main():
            async with SandboxPool(slots=1, allow_unsafe=True) as pool:
                result = await pool.run("print(6 * 7)")
                print(result.level, result.outcome, result.stdout)

        asyncio.run(main())
        """,
        profile=profile,
    )
    assert done.stdout.strip() == "unsafe ok 42", done.stderr

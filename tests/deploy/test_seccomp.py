"""The seccomp profile of sandbox workers: its contents, and a real pool behind it."""

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

from tirjudge_sandbox.seccomp import call_names

PROFILE = Path(__file__).parents[2] / "deploy" / "seccomp" / "sandbox.json"
FOR_NAMESPACES = {"mount", "umount2", "unshare", "setns", "move_mount"}
"""System calls of the levels with namespaces, which need capabilities that the container does not have."""

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
    reason="libseccomp, which compiles profiles, is not installed",
)


@pytest.fixture(scope="module")
def profile() -> dict[str, Any]:
    return json.loads(PROFILE.read_text(encoding="utf-8"))


def allowed(profile: dict[str, Any]) -> set[str]:
    """Return the system calls that a profile allows."""
    return {name for rule in profile["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}


def confined(code: str, *, profile: Path = PROFILE) -> subprocess.CompletedProcess[str]:
    """Run Python code behind a profile."""
    command = [sys.executable, str(Path(__file__).with_name("confined.py")), str(profile), sys.executable, "-c"]
    return subprocess.run([*command, textwrap.dedent(code)], capture_output=True, text=True, check=False)


def test_the_profile_allows_all_calls_of_slots_and_programs(profile: dict[str, Any]) -> None:
    needed = call_names() - FOR_NAMESPACES
    assert len(needed) > 100
    assert needed - allowed(profile) == set()


def test_the_profile_refuses_dangerous_calls(profile: dict[str, Any]) -> None:
    dangerous = {"ptrace", "bpf", "io_uring_setup", "keyctl", "perf_event_open", "process_vm_writev", "userfaultfd"}
    dangerous |= {"init_module", "kexec_load", "open_by_handle_at", "pivot_root", "chroot", "fanotify_init"}
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    assert not allowed(profile) & (dangerous | FOR_NAMESPACES)


def test_the_documented_number_of_calls_is_right(profile: dict[str, Any]) -> None:
    docs = PROFILE.parents[2] / "docs" / "deploy.md"
    assert f": {len(allowed(profile))} system calls." in docs.read_text(encoding="utf-8")


@pytest.mark.slow
@needs_libseccomp
def test_a_pool_behind_the_profile_runs_and_isolates_programs() -> None:
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
def test_the_profile_confines_the_process_around_programs() -> None:
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


@pytest.mark.slow
@needs_libseccomp
def test_level_unsafe_works_where_gvisor_lacks_landlock_and_namespaces(tmp_path: Path) -> None:
    """Simulate gVisor in a pod, which has no Landlock, no namespaces, and only some of the resource limits."""
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

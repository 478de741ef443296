"""Test each kernel feature that isolation uses, for `doctor`. Each test uses the feature in a separate child process,
because on some systems `unshare` succeeds without giving the expected rights.

This module imports only the standard library: `main` runs in an interpreter without site-packages, and prints JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable

from tirjudge_sandbox import kernel, landlock, seccomp


def main() -> None:
    """Print feature -> reason why it does not work. The reason is empty if the feature works."""
    print(json.dumps({name: _try(attempt) for name, attempt in _ATTEMPTS.items()}))


def _try(attempt: Callable[[], None]) -> str:
    """Run an attempt in a child process. Return an error message, empty if the attempt succeeded."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        try:
            attempt()
            os._exit(0)
        except OSError as error:
            os.write(write_end, str(error.strerror or error).encode())
        finally:
            os._exit(1)
    os.close(write_end)
    with open(read_end) as file:
        reason = file.read()
    _, status = os.waitpid(child, 0)
    return reason or ("" if status == 0 else "the test process died")


def _user_namespace() -> None:
    kernel.unshare(kernel.CLONE_NEWUSER)


def _mount_namespace() -> None:
    kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", "/tmp", kind="tmpfs")


def _pid_namespace() -> None:
    kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWPID)
    child = os.fork()
    if not child:
        os._exit(0 if os.getpid() == 1 else 1)
    if os.waitpid(child, 0)[1]:
        raise OSError("the child is not process 1 of its namespace")


def _network_namespace() -> None:
    kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNET)


def _landlock() -> None:
    version = landlock.abi()
    if not version:
        raise OSError("not in this kernel, or not enabled at boot")
    kernel.set_no_new_privileges()
    landlock.restrict(landlock.make_ruleset(version=version, readable=("/dev",), writable=()))
    try:
        os.listdir("/")
    except PermissionError:
        return
    raise OSError("the root directory can still be read")


def _seccomp() -> None:
    kernel.set_no_new_privileges()
    seccomp.install_for_slot(own_files=False, may_truncate=False)
    seccomp.install_for_program(own_pid=os.getpid(), may_fork=False, may_thread=True, own_pids=False)
    try:
        os.kill(os.getppid(), 0)
    except PermissionError:
        return
    raise OSError("another process can still be signalled")


def _thread_listener() -> None:
    kernel.set_no_new_privileges()
    os.close(seccomp.install_thread_listener())


def _memory_priority() -> None:
    """Raise the OOM score of the child process, which needs no privilege."""
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def _pidfd() -> None:
    os.close(os.pidfd_open(os.getpid()))


_ATTEMPTS = {
    "user namespace": _user_namespace,
    "mount namespace": _mount_namespace,
    "pid namespace": _pid_namespace,
    "network namespace": _network_namespace,
    "landlock": _landlock,
    "seccomp": _seccomp,
    "thread listener": _thread_listener,
    "memory priority": _memory_priority,
    "pidfd": _pidfd,
}

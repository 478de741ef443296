"""Runs one command, and kills all its processes when it ends or when the parent of this process ends.

    python -I -S worker_guard.py PARENT_PID GRACE_S COMMAND...

A killed engine leaves child processes that hold its GPU. The guard is a subreaper: it becomes the parent of these
processes and kills them. The guard runs as a file without imports from this package, so that it starts fast and uses
little memory.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

ENDING = frozenset({signal.SIGTERM, signal.SIGINT})
HEARD = ENDING | {signal.SIGCHLD}

_libc = ctypes.CDLL(None)


def guard(command: list[str], *, parent: int, grace_s: float) -> int:
    """Run a command to its end.

    Args:
        command: the command line.
        parent: process id of the expected parent process.
        grace_s: seconds that the command gets to end after SIGTERM or SIGINT.

    Returns:
        the exit status of the command, or 128 plus the number of the signal that killed it.
    """
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:  # the parent ended before the line above
        return 0
    worker = subprocess.Popen(command, preexec_fn=_in_the_worker)
    ended = _reap()
    while worker.pid not in ended:
        if signal.sigwait(HEARD) in ENDING:
            os.kill(worker.pid, signal.SIGTERM)  # not Popen.send_signal(), which reaps a process that has just ended
            ended |= _wait(worker.pid, grace_s=grace_s)
            break
        ended |= _reap()
    ended |= _kill_all()
    code = os.waitstatus_to_exitcode(ended[worker.pid]) if worker.pid in ended else 1
    return code if code >= 0 else 128 - code


def _in_the_worker() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)
    _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _wait(pid: int, *, grace_s: float) -> dict[int, int]:
    """Wait until the process has ended or the time is up; return all children that ended: process id -> status."""
    ends_at, ended = time.monotonic() + grace_s, dict[int, int]()
    while pid not in ended and (left_s := ends_at - time.monotonic()) > 0:
        signal.sigtimedwait({signal.SIGCHLD}, left_s)
        ended |= _reap()
    return ended


def _reap() -> dict[int, int]:
    """Reap all children that have ended, including orphans: process id -> status."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if not pid:
            return ended
        ended[pid] = status


def _kill_all() -> dict[int, int]:
    """Kill all children until none is left. The children of a killed process become children of the guard."""
    ended: dict[int, int] = {}
    while children := _children():
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        for pid in children:
            ended[pid] = os.waitpid(pid, 0)[1]
    return ended


def _children() -> list[int]:
    own = os.getpid()
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
            except OSError:
                continue
            if parent == own:
                found.append(int(entry.name))
    return found


if __name__ == "__main__":
    sys.exit(guard(sys.argv[3:], parent=int(sys.argv[1]), grace_s=float(sys.argv[2])))

"""Tells a slot that its program has ended, through a descriptor, so that it can wait for other things too.

Standard library only: the isolated interpreter reads this file too.
"""

from __future__ import annotations

import contextlib
import os
import signal


class ProgramEnd:
    """Made once in a slot, and used for each of its programs. The kernel has a descriptor for each process."""

    _pidfd = -1

    def watch(self, program: int) -> int:
        """A descriptor to poll for reading. The program, a child of ours, may be dead already."""
        self._pidfd = os.pidfd_open(program)
        return self._pidfd

    def has_come(self) -> bool:
        """To be asked when that descriptor is readable. It does not wait."""
        return True

    def kill(self) -> None:
        """Sends SIGKILL."""
        signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def release(self) -> None:
        """When the program was waited for."""
        os.close(self._pidfd)

    def forget(self) -> None:
        """In the program's own process. The descriptor was never there: it was made after the fork."""


class _EndBySignal(ProgramEnd):
    """A byte comes through a pipe whenever the state of a child changes, also if it only stops."""

    _program = 0

    def __init__(self) -> None:
        self._read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)  # the default is not to be told at all
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)

    def watch(self, program: int) -> int:
        self._program = program
        return self._read_end

    def has_come(self) -> bool:
        self._drain()
        return os.waitid(os.P_PID, self._program, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def kill(self) -> None:
        os.kill(self._program, signal.SIGKILL)  # nobody has waited for it yet, so the number is still its own

    def release(self) -> None:
        self._drain()

    def forget(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read_end, 4096):
                pass


def program_end() -> ProgramEnd:
    """The better one of those that work with this kernel (gVisor's has no descriptors of processes)."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return _EndBySignal()
    return ProgramEnd()

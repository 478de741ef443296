"""Notify a slot through a descriptor when its program has ended, so that the slot can poll several descriptors.

This module imports only the standard library, because the isolated interpreter imports it too.
"""

from __future__ import annotations

import contextlib
import os
import signal


class ProgramEnd:
    """Detects the end of a program with a pidfd. A slot creates one instance and uses it for all its programs."""

    _pidfd = -1

    def watch(self, program: int) -> int:
        """Return a descriptor that becomes readable when the program ends. The program is a child process, and may
        already be dead."""
        self._pidfd = os.pidfd_open(program)
        return self._pidfd

    def has_come(self) -> bool:
        """Whether the program has ended. Call this when the descriptor is readable. Does not block."""
        return True

    def kill(self) -> None:
        """Send SIGKILL to the program."""
        signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def release(self) -> None:
        """Release the descriptor after the program was waited for."""
        os.close(self._pidfd)

    def forget(self) -> None:
        """Clean up in the program's own process. A pidfd needs no clean-up there: it is created after the fork."""


class _EndBySignal(ProgramEnd):
    """Detects the end of a program with SIGCHLD, for kernels without pidfds. Every state change of a child, even a
    stop, writes a byte to a pipe."""

    _program = 0

    def __init__(self) -> None:
        self._read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(
            signal.SIGCHLD, lambda _number, _frame: None
        )  # without a handler, the wakeup descriptor gets no byte
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)

    def watch(self, program: int) -> int:
        self._program = program
        return self._read_end

    def has_come(self) -> bool:
        self._drain()
        return os.waitid(os.P_PID, self._program, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def kill(self) -> None:
        os.kill(self._program, signal.SIGKILL)  # safe: the pid cannot be reused before the child is waited for

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
    """Return a `ProgramEnd` with pidfds if the kernel has them (gVisor does not), else with SIGCHLD."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return _EndBySignal()
    return ProgramEnd()

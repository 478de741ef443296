"""Limit the number of a program's threads: its slot allows or refuses each new one (seccomp user notification, Linux
5.5).

RLIMIT_NPROC is not suitable: it counts all processes of a user, and without privileges all programs and the service
have the same user. Polling is too slow: a program can start 3,000 threads in 0.2 s.

This module imports only the standard library, because the isolated interpreter imports it too.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct

from tirjudge_sandbox import seccomp

_NOTIFICATION = struct.Struct("=QIIi4x56x")
"""`struct seccomp_notif`: id, pid, flags, number of the system call; instruction pointer and arguments are not read."""
_RESPONSE = struct.Struct("=QqiI")
"""`struct seccomp_notif_resp`: id, value, error, flags."""
_CONTINUE = 1
_SET_FLAGS, _SYNC_WAKE_UP = 0x4008_2104, 1
"""Flag for faster answers: the kernel schedules the asking thread and the slot on the same CPU."""


class ThreadLimit:
    """Counts and limits the threads of a slot's programs, one program at a time."""

    def __init__(self, *, max_threads: int) -> None:
        """Install a listener filter on this process and all processes that it forks. Requires no_new_privs.

        Args:
            max_threads: maximum number of threads of one program, including its main thread.

        Raises:
            OSError: the kernel has no such listeners, or another one applies to this process.
        """
        self._listener = seccomp.install_thread_listener()
        with contextlib.suppress(OSError):  # not available before Linux 6.6; answers are then slightly slower
            fcntl.ioctl(self._listener, _SET_FLAGS, struct.pack("=Q", _SYNC_WAKE_UP))
        self._max_threads = max_threads
        self._num_threads = 1

    def fileno(self) -> int:
        """Return the descriptor that is readable when a thread is about to start or end."""
        return self._listener

    def begin(self) -> None:
        """Reset the count for the next program."""
        self._num_threads = 1

    def answer(self) -> None:
        """Answer one notification: let a thread start or end. If the limit is reached, the start fails with EAGAIN."""
        notification = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(self._listener, seccomp.LISTENER_RECEIVE, notification)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):  # the thread was killed in the meantime
                return
            raise
        call, _, _, number = _NOTIFICATION.unpack(notification)
        starts = number == seccomp.CLONE
        if starts and self._num_threads >= self._max_threads:
            self._respond(call, error=-errno.EAGAIN, flags=0)
        elif self._respond(call, error=0, flags=_CONTINUE):
            self._num_threads += 1 if starts else -1

    def forget(self) -> None:
        """Close the listener in the program's own process, which must not answer its own notifications."""
        os.close(self._listener)

    def _respond(self, call: int, *, error: int, flags: int) -> bool:
        """Send an answer. Return whether the thread was still waiting for it."""
        try:
            fcntl.ioctl(self._listener, seccomp.LISTENER_SEND, _RESPONSE.pack(call, 0, error, flags))
        except OSError as problem:
            if problem.errno != errno.ENOENT:
                raise
            return False
        return True

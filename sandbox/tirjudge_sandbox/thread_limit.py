"""Bounds the threads of a program at their creation, by asking its slot (seccomp user notification, Linux 5.5).

RLIMIT_NPROC cannot: it counts all processes of a user, and without privileges every program and the service are the same
user. Polling cannot either: a program starts 3,000 threads in 0.2 s.

Standard library only: the isolated interpreter reads this file too.
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
"""Who asks and who answers take turns on one processor."""


class ThreadLimit:
    """The listener of one slot, which all of its programs in turn report to."""

    def __init__(self, *, max_threads: int) -> None:
        """Filters the calling process, which must have no new privileges, and all that it forks.

        Args:
            max_threads: of one program, its first one included.

        Raises:
            OSError: this kernel has no such listeners, or there is one around us already.
        """
        self._listener = seccomp.install_thread_listener()
        with contextlib.suppress(OSError):  # before Linux 6.6, where each answer takes somewhat longer
            fcntl.ioctl(self._listener, _SET_FLAGS, struct.pack("=Q", _SYNC_WAKE_UP))
        self._max_threads = max_threads
        self._num_threads = 1

    def fileno(self) -> int:
        """Readable when a thread wants to start or to end."""
        return self._listener

    def begin(self) -> None:
        """For the next program."""
        self._num_threads = 1

    def answer(self) -> None:
        """Lets a thread start or end, or fails its start as a kernel without room for it does: with EAGAIN."""
        notification = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(self._listener, seccomp.LISTENER_RECEIVE, notification)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):  # it was killed meanwhile
                return
            raise
        call, _, _, number = _NOTIFICATION.unpack(notification)
        starts = number == seccomp.CLONE
        if starts and self._num_threads >= self._max_threads:
            self._respond(call, error=-errno.EAGAIN, flags=0)
        elif self._respond(call, error=0, flags=_CONTINUE):
            self._num_threads += 1 if starts else -1

    def forget(self) -> None:
        """In the program's own process, which must not answer for itself."""
        os.close(self._listener)

    def _respond(self, call: int, *, error: int, flags: int) -> bool:
        """Whether anybody was still waiting for it."""
        try:
            fcntl.ioctl(self._listener, seccomp.LISTENER_SEND, _RESPONSE.pack(call, 0, error, flags))
        except OSError as problem:
            if problem.errno != errno.ENOENT:
                raise
            return False
        return True

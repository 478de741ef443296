"""Protect the secrets of a service from other processes of the same user, such as programs at the level `unsafe`.

/proc shows a process's memory, descriptors and environment to its user, and its command line to all users. Two measures
are needed, because neither works everywhere. First, the process becomes non-dumpable, so that the kernel denies access
(gVisor of 2022 does not). Second, the memory that /proc shows as environment and command line is overwritten.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
from collections.abc import Iterable, Iterator

_PR_SET_DUMPABLE = 4
_ARGUMENTS_START, _ARGUMENTS_END = 45, 46
"""Fields of /proc/self/stat after the command's name, which ends with the last parenthesis."""


def seal_process(secrets: Iterable[str] = ()) -> None:
    """Hide this process's memory, environment and secrets from other processes of its user.

    Call this before other threads start, because it replaces the C library's environment. Environment variables keep
    their values for this process and its children. Debuggers of the same user and core dumps stop working. Does nothing
    on systems other than Linux.

    Args:
        secrets: texts to blank on the command line.

    Raises:
        OSError: the kernel refused to make the process non-dumpable.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, *[ctypes.c_ulong(0)] * 4):
        raise OSError(ctypes.get_errno(), "PR_SET_DUMPABLE")
    _move_environment(libc)
    _blank_arguments([os.fsencode(secret) for secret in secrets if secret])


def _move_environment(libc: ctypes.CDLL) -> None:
    """Move each variable to memory that /proc does not show, and blank the old memory."""
    before = _variables(libc)
    for name, value in os.environb.items():
        os.unsetenv(name)  # removes duplicates too
        os.putenv(name, value)
    for address in before - _variables(libc):
        ctypes.memset(address, 0, len(ctypes.string_at(address)))


def _variables(libc: ctypes.CDLL) -> set[int]:
    """Return the addresses of the strings `NAME=value`."""
    array = ctypes.POINTER(ctypes.c_void_p).in_dll(libc, "environ")
    addresses: Iterator[int] = map(array.__getitem__, itertools.count())
    return set(itertools.takewhile(bool, addresses)) if array else set()


def _blank_arguments(secrets: Iterable[bytes]) -> None:
    """Overwrite secrets on the command line, if the kernel reports its address (gVisor does not)."""
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end = int(fields[_ARGUMENTS_START]), int(fields[_ARGUMENTS_END])
    arguments = ctypes.string_at(start, end - start)
    for secret in secrets:
        arguments = arguments.replace(secret, b"*" * len(secret))
    ctypes.memmove(start, arguments, len(arguments))

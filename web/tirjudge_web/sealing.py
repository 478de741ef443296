"""Keeps the secrets of a service out of the reach of other processes of its user, such as programs at the level `unsafe`.

/proc shows a process's memory, descriptors and environment to its user, and its command line to everybody. There are two
steps, because neither is enough everywhere. The process becomes non-dumpable, so the kernel refuses; gVisor of 2022 does not.
The memory that /proc shows as environment and command line is overwritten.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
from collections.abc import Iterable

_PR_SET_DUMPABLE = 4
_ARGUMENTS_START, _ARGUMENTS_END = 45, 46
"""Fields of /proc/self/stat after the command's name, which ends with the last parenthesis."""


def seal_process(secrets: Iterable[str] = ()) -> None:
    """Call before other threads start: the C library's environment is replaced. Variables keep their values for this process
    and for the processes that it starts. Debuggers of the same user, and core dumps, no longer work. Linux only; elsewhere
    nothing happens.

    Args:
        secrets: texts that may stand on the command line.

    Raises:
        OSError: the kernel refused.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, *[ctypes.c_ulong(0)] * 4):
        raise OSError(ctypes.get_errno(), "PR_SET_DUMPABLE")
    _move_environment(libc)
    _blank_arguments([os.fsencode(secret) for secret in secrets if secret])


def _move_environment(libc: ctypes.CDLL) -> None:
    """Gives each variable a new place, which /proc does not show, and blanks the old one."""
    before = _variables(libc)
    for name, value in os.environb.items():
        os.unsetenv(name)  # all of them, if it is there twice
        os.putenv(name, value)
    for address in before - _variables(libc):
        ctypes.memset(address, 0, len(ctypes.string_at(address)))


def _variables(libc: ctypes.CDLL) -> set[int]:
    """Addresses of the texts `NAME=value`."""
    array = ctypes.POINTER(ctypes.c_void_p).in_dll(libc, "environ")
    return set(itertools.takewhile(bool, map(array.__getitem__, itertools.count()))) if array else set()


def _blank_arguments(secrets: Iterable[bytes]) -> None:
    """Overwrites them on the command line, where the kernel tells the place (gVisor does not)."""
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end = int(fields[_ARGUMENTS_START]), int(fields[_ARGUMENTS_END])
    arguments = ctypes.string_at(start, end - start)
    for secret in secrets:
        arguments = arguments.replace(secret, b"*" * len(secret))
    ctypes.memmove(start, arguments, len(arguments))

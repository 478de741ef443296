"""Landlock: lets an unprivileged process give up access to the file system, to TCP, and to signaling other processes.

Reading a path needs a rule. Checking whether a path exists does not, because the kernel has no rule for that.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Iterable

from tirjudge_sandbox import kernel

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 10, 1 << 11
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
_TCP = 0b11
_SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11

_READ = _READ_FILE | _READ_DIR
_NEVER = _EXECUTE | _MAKE_CHAR | _MAKE_SOCK | _MAKE_FIFO | _MAKE_BLOCK | _IOCTL_DEVICE
"""Access rights that are granted on no path."""


FIRST_ABI_WITH_TRUNCATE = 3
"""First version of Landlock that restricts truncation."""


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("tcp", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"  # Python 3.14 requires it for packed structs
    _fields_ = [("allowed", ctypes.c_uint64), ("descriptor", ctypes.c_int32)]


def abi() -> int:
    """Return the kernel's version of Landlock. 0: not available."""
    try:
        return kernel.syscall("landlock", _CREATE_RULESET, None, 0, _VERSION_FLAG)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EOPNOTSUPP):
            return 0
        raise


def make_ruleset(*, version: int, readable: Iterable[str], writable: Iterable[str]) -> int:
    """Return the descriptor of a ruleset that allows only reading below `readable`, and reading and writing below
    `writable`. `restrict` may apply it any number of times.

    Args:
        version: result of `abi`. Rights that this version does not have are left out.
        readable: directories or files.
        writable: directories or files. Creating devices, pipes or sockets in them stays forbidden.

    Raises:
        OSError: the kernel refused.
    """
    handled = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1
    attributes = _Ruleset(handled, _TCP if version >= 4 else 0, _SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS)
    num_bytes = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = kernel.syscall("landlock_create_ruleset", _CREATE_RULESET, ctypes.byref(attributes), num_bytes, 0)
    for path in readable:
        _allow(ruleset, path, rights=_READ & handled)
    for path in writable:
        _allow(ruleset, path, rights=handled & ~_NEVER)
    return ruleset


def restrict(ruleset: int) -> None:
    """Restrict this process to a ruleset. The process must have the attribute no_new_privs. Raises OSError."""
    kernel.syscall("landlock_restrict_self", _RESTRICT_SELF, ruleset, 0)


def part_from_other_processes() -> None:
    """Forbid this process to read the memory, environment and descriptors of processes outside its Landlock domain.

    The ruleset handles only the right to create block devices, which programs do not have, so nothing else changes.
    Raises OSError."""
    attributes = _Ruleset(_MAKE_BLOCK, 0, 0)
    ruleset = kernel.syscall("landlock_create_ruleset", _CREATE_RULESET, ctypes.byref(attributes), 8, 0)
    restrict(ruleset)
    os.close(ruleset)


def _allow(ruleset: int, path: str, *, rights: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
        rights &= _WRITE_FILE | _READ_FILE | _TRUNCATE
    rule = _PathBeneath(rights, descriptor)
    kernel.syscall("landlock_add_rule", _ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    os.close(descriptor)

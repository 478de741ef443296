"""Linux system calls that Python does not wrap. Each raises OSError with the name of the call in the message."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import struct

IS_X86 = platform.machine() == "x86_64"

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x4_0000

_MNT_DETACH = 0x2
_AT_FDCWD, _AT_RECURSIVE, _AT_EMPTY_PATH = -100, 0x8000, 0x1000
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_OPEN_TREE_CLONE, _MOVE_MOUNT_F_EMPTY_PATH = 0x1, 0x4
_MOUNT_ATTR_READ_ONLY_DATA = 0x1 | 0x2 | 0x4 | 0x8
"""Mount attributes: read-only, no set-user-id, no devices, no execution."""

CAP_KILL, CAP_SETGID, CAP_SETUID, CAP_SYS_CHROOT, CAP_SYS_ADMIN = 5, 6, 7, 18, 21

_SYSLOG_READ_ALL = 3

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_PIVOT_ROOT = 155 if IS_X86 else 41
_CAPABILITY_VERSION_3 = 0x2008_0522

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def address_of_libc() -> int:
    """Return an address inside the C library's code."""
    return ctypes.cast(_libc.getpid, ctypes.c_void_p).value or 0


class _CapabilityHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _CapabilityData(ctypes.Structure):
    _fields_ = [("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32)]


def _check(name: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def syscall(name: str, number: int, *args: object) -> int:
    """Make a system call by number. Integers are passed as C longs, other arguments by ctypes' default conversion."""
    return _check(name, _libc.syscall(number, *(ctypes.c_long(a) if isinstance(a, int) else a for a in args)))


def unshare(flags: int) -> None:
    """unshare(2). Raises OSError."""
    _check("unshare", _libc.unshare(flags))


def setns(descriptor: int, flags: int) -> None:
    """setns(2). Raises OSError."""
    _check("setns", _libc.setns(descriptor, flags))


def mount(source: str, target: str, *, kind: str = "none", flags: int = 0, options: str = "") -> None:
    """mount(2). Raises OSError."""
    arguments = (source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode())
    _check(f"mount {target}", _libc.mount(*arguments))


def pivot_root_here() -> None:
    """Make the working directory the root, and unmount the old root."""
    syscall("pivot_root", _PIVOT_ROOT, b".", b".")
    unmount(".")


def unmount(target: str) -> None:
    """Unmount a directory and all mounts below it. Files that are open there stay usable until they are closed."""
    _check("umount2", _libc.umount2(target.encode(), _MNT_DETACH))


def copy_mount(path: str) -> int:
    """Return the descriptor of a detached read-only copy of the mount at a path. Needs Linux 5.12."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_RECURSIVE
    descriptor = syscall("open_tree", _OPEN_TREE, _AT_FDCWD, os.fsencode(path), flags)
    attributes = struct.pack("QQQQ", _MOUNT_ATTR_READ_ONLY_DATA, 0, MS_PRIVATE, 0)
    try:
        arguments = (descriptor, b"", _AT_EMPTY_PATH | _AT_RECURSIVE, attributes, len(attributes))
        syscall("mount_setattr", _MOUNT_SETATTR, *arguments)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def attach_mount(descriptor: int, target: str) -> None:
    """Mount a copy made by `copy_mount`."""
    arguments = (descriptor, b"", _AT_FDCWD, target.encode(), _MOVE_MOUNT_F_EMPTY_PATH)
    syscall("move_mount", _MOVE_MOUNT, *arguments)


def log() -> str:
    """Return the kernel log, at most 64 KiB."""
    buffer = ctypes.create_string_buffer(65_536)
    num_bytes = _check("syslog", _libc.klogctl(_SYSLOG_READ_ALL, buffer, len(buffer)))
    return buffer.raw[:num_bytes].decode(errors="replace")


@functools.cache
def is_gvisor() -> bool:
    """Whether this process runs in gVisor, whose kernel log names it in the first line."""
    try:
        return "Starting gVisor" in log().partition("\n")[0]
    except OSError:
        return False


_ZERO = ctypes.c_ulong(0)


def _prctl(name: str, option: int, value: int) -> None:
    _check(name, _libc.prctl(option, ctypes.c_ulong(value), _ZERO, _ZERO, _ZERO))


def set_parent_death_signal(signal: int) -> None:
    """Set the signal that this process gets when its parent dies. A change of user clears it, so call this
    afterwards."""
    _prctl("PR_SET_PDEATHSIG", _PR_SET_PDEATHSIG, signal)


def forbid_core_dumps() -> None:
    """Forbid core dumps, including those piped to a program of the host, which RLIMIT_CORE does not prevent."""
    _prctl("PR_SET_DUMPABLE", _PR_SET_DUMPABLE, 0)


def set_no_new_privileges() -> None:
    """Set PR_SET_NO_NEW_PRIVS, so that no execve of this process can add privileges. Raises OSError."""
    _prctl("PR_SET_NO_NEW_PRIVS", _PR_SET_NO_NEW_PRIVS, 1)


def has_capability(number: int) -> bool:
    """Whether this process has a capability in its effective set. Raises OSError."""
    data = (_CapabilityData * 2)()
    _check("capget", _libc.capget(ctypes.byref(_CapabilityHeader(_CAPABILITY_VERSION_3, 0)), data))
    return bool(data[number // 32].effective >> number % 32 & 1)


def drop_capabilities() -> None:
    """Remove every capability from this process. Raises OSError."""
    _check("capset", _libc.capset(_OF_THIS_PROCESS, _NO_CAPABILITIES))


_OF_THIS_PROCESS = ctypes.byref(_CapabilityHeader(_CAPABILITY_VERSION_3, 0))
_NO_CAPABILITIES = (_CapabilityData * 2)()

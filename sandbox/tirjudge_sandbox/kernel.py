"""The Linux calls that Python does not wrap, each raising OSError with its own name in the message."""

from __future__ import annotations

import ctypes
import os
import platform

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
MNT_DETACH = 0x2

CAP_SYS_ADMIN = 21

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_PIVOT_ROOT = 155 if IS_X86 else 41
_CAPABILITY_VERSION_3 = 0x2008_0522

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


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
    """A system call by number; integers are passed as C longs, everything else as ctypes would."""
    return _check(name, _libc.syscall(number, *(ctypes.c_long(a) if isinstance(a, int) else a for a in args)))


def unshare(flags: int) -> None:
    _check("unshare", _libc.unshare(flags))


def setns(descriptor: int, flags: int) -> None:
    _check("setns", _libc.setns(descriptor, flags))


def mount(source: str, target: str, *, kind: str = "none", flags: int = 0, options: str = "") -> None:
    arguments = (source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode())
    _check(f"mount {target}", _libc.mount(*arguments))


def pivot_root_here() -> None:
    """Makes the working directory the root; the old root is gone, since nothing else holds it."""
    syscall("pivot_root", _PIVOT_ROOT, b".", b".")
    _check("umount2", _libc.umount2(b".", MNT_DETACH))


def _prctl(name: str, option: int, value: int) -> None:
    _check(name, _libc.prctl(option, ctypes.c_ulong(value), *(ctypes.c_ulong(0) for _ in range(3))))


def set_parent_death_signal(signal: int) -> None:
    """Forgotten by the kernel at a change of user: set it after that."""
    _prctl("PR_SET_PDEATHSIG", _PR_SET_PDEATHSIG, signal)


def forbid_core_dumps() -> None:
    """Even to a program that the host set up to receive them, which RLIMIT_CORE does not stop."""
    _prctl("PR_SET_DUMPABLE", _PR_SET_DUMPABLE, 0)


def set_no_new_privileges() -> None:
    _prctl("PR_SET_NO_NEW_PRIVS", _PR_SET_NO_NEW_PRIVS, 1)


def has_capability(number: int) -> bool:
    data = (_CapabilityData * 2)()
    _check("capget", _libc.capget(ctypes.byref(_CapabilityHeader(_CAPABILITY_VERSION_3, 0)), data))
    return bool(data[number // 32].effective >> number % 32 & 1)


def drop_capabilities() -> None:
    header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
    _check("capset", _libc.capset(ctypes.byref(header), (_CapabilityData * 2)()))

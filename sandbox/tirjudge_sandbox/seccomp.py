"""The seccomp filter: an allow-list of system calls, compiled to classic BPF.

A call that is not listed fails with EPERM before the kernel looks at its arguments. Some calls are allowed only with
certain arguments. Calls of another architecture kill the process. x86-64's x32 calls fail with EPERM.

Compiling a long filter takes as long as a fork, so there are two filters. A slot installs the long one once; it allows
the calls of programs and the additional calls of the slot. Each program then installs a short filter that removes the
slot's calls. The kernel applies both. Where no other mechanism limits threads, a third filter asks the slot at each
start and end of a thread (`install_thread_listener`).
"""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Sequence
from typing import NamedTuple

from tirjudge_sandbox import kernel

_NUMBERS = """
read 0 63, write 1 64, close 3 57, fstat 5 80, lseek 8 62, mmap 9 222, mprotect 10 226, munmap 11 215, brk 12 214,
rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139, pread64 17 67, pwrite64 18 68, readv 19 65,
writev 20 66, sched_yield 24 124, mremap 25 216, madvise 28 233, dup 32 23, nanosleep 35 101, getitimer 36 102,
setitimer 38 103, getpid 39 172, recvfrom 45 207, shutdown 48 210, getsockname 51 204,
getpeername 52 205, getsockopt 55 209, exit 60 93, wait4 61 260, uname 63 160, fsync 74 82, fdatasync 75 83,
ftruncate 77 46, getcwd 79 17, chdir 80 49, fchdir 81 50, umask 95 166, gettimeofday 96 169, getrlimit 97 163,
getrusage 98 165, sysinfo 99 179, times 100 153, getuid 102 174, getgid 104 176, geteuid 107 175, getegid 108 177,
getppid 110 173, getgroups 115 158, getresuid 118 148, getresgid 120 150, getpgid 121 155, getsid 124 156,
rt_sigpending 127 136, rt_sigtimedwait 128 137, rt_sigsuspend 130 133, sigaltstack 131 132, statfs 137 43,
fstatfs 138 44, getpriority 140 141, setrlimit 160 164, gettid 186 178, listxattr 194 11, llistxattr 195 12,
futex 202 98, sched_getaffinity 204 123, getdents64 217 61, set_tid_address 218 96, restart_syscall 219 128,
fadvise64 221 223, clock_gettime 228 113, clock_getres 229 114, clock_nanosleep 230 115, exit_group 231 94,
epoll_ctl 233 21, newfstatat 262 79, readlinkat 267 78, faccessat 269 48, pselect6 270 72, ppoll 271 73,
set_robust_list 273 99, epoll_pwait 281 22, fallocate 285 47, eventfd2 290 19, epoll_create1 291 20, dup3 292 24,
pipe2 293 59, getcpu 309 168, getrandom 318 278, membarrier 324 283, statx 332 291, rseq 334 293,
faccessat2 439 439, stat 4 -1, lstat 6 -1, poll 7 -1, access 21 -1, pipe 22 -1, select 23 -1, dup2 33 -1, pause 34 -1,
alarm 37 -1, readlink 89 -1, getpgrp 111 -1, time 201 -1, getdents 78 -1, epoll_create 213 -1, epoll_wait 232 -1
"""
"""Name, number on x86-64, number on aarch64 (-1: no such call) of the calls that are allowed with any arguments."""

_NUMBERS_THAT_OPEN = "open 2 -1, openat 257 56"
_NUMBERS_THAT_CHANGE_FILES = """
truncate 76 45, rename 82 -1, renameat 264 38, renameat2 316 276, mkdir 83 -1, mkdirat 258 34,
rmdir 84 -1, creat 85 -1, link 86 -1, linkat 265 37, unlink 87 -1, unlinkat 263 35, symlink 88 -1, symlinkat 266 36,
chmod 90 -1, fchmod 91 52,
fchmodat 268 53, utime 132 -1, utimes 235 -1, utimensat 280 88
"""
"""Calls that are allowed only where all reachable files belong to the program. Landlock has no rules for modes and
times."""

_NUMBERS_OF_PROCESSES = "fork 57 -1, vfork 58 -1, waitid 247 95"
"""Calls that programs may use only where the total number of processes is limited."""

_NUMBERS_OF_SLOTS = """
sendmsg 46 211, recvmsg 47 212, setsid 112 157, setresuid 117 147, setresgid 119 149, capset 126 91, mount 165 40,
umount2 166 39, unshare 272 97, setns 308 268, seccomp 317 277, pidfd_send_signal 424 424, move_mount 429 429,
pidfd_open 434 434, sendfile 40 71, landlock_create_ruleset 444 444, landlock_add_rule 445 445, landlock_restrict_self 446 446
"""
"""Calls of a slot, and of a program's process before its isolation is complete. The program's filter forbids them.
`sendfile` is among them: it charges a socket for the bytes sent, while the kernel keeps whole pages."""

_KILL_PROCESS = 0x8000_0000
_ALLOW = 0x7FFF_0000
_NOTIFY = 0x7FC0_0000
_REFUSE = 0x0005_0000 | errno.EPERM
_UNKNOWN = 0x0005_0000 | errno.ENOSYS

_AUDIT_ARCH = 0xC000_003E if kernel.IS_X86 else 0xC000_00B7
_FIRST_X32_NUMBER = 0x4000_0000
_SECCOMP = 317 if kernel.IS_X86 else 277
_CLONE3 = 435
_SET_MODE_FILTER = 1
_NEW_LISTENER, _WAIT_KILLABLE = 1 << 3, 1 << 5

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT = 0x15, 0x35, 0x45
_NUMBER_OFFSET, _ARCH_OFFSET = 0, 4
_ALL_BITS = 0xFFFF_FFFF

_O_TRUNC = 0x200
_O_WRITES = _O_TRUNC | 0x40 | 0x3
"""Flags of `open` that truncate, create, or write."""
_CLONE_FILES, _CLONE_THREAD = 0x0000_0400, 0x0001_0000
_CLONE_LIKE_PTHREAD = 0x0000_0100 | 0x0000_0200 | _CLONE_FILES | 0x0000_0800 | _CLONE_THREAD
"""Flags of a thread: it shares memory, working directory, descriptors and signal handlers. RLIMIT_NOFILE applies to
each descriptor table separately, so threads with separate tables could multiply a program's sockets and pipes in the
kernel."""
_CLOSE_RANGE_FLAGS = (0, 4)
"""Allowed flags of `close_range`: close now, or close at exec. The remaining flag would give the thread a separate
descriptor table."""
_CLONE_BEYOND_A_FORK = 0x7E02_0000 | 0x8000 | 0x2000 | 0x1000
"""Flags of `clone` that a fork does not need: new namespaces, a sibling instead of a child, a traced child, a pidfd."""
_SIGN_BIT = 0x8000_0000
_AF_UNIX, _SOCK_STREAM, _SOCK_TYPE_MASK = 1, 1, 0xF
_FCNTL_COMMANDS = (0, 1, 2, 3, 4, 1030, 1032)
"""Allowed commands of `fcntl`: duplicate, get and set flags, get the pipe size. Locks and signals on I/O are excluded,
because they affect other processes."""
LISTENER_RECEIVE, LISTENER_SEND = 0xC050_2100, 0xC018_2101
"""ioctl commands of a slot to the listener for its program's threads. The program never has the listener's
descriptor."""
_IOCTL_COMMANDS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451, LISTENER_RECEIVE, LISTENER_SEND)
"""Allowed commands of `ioctl`: terminal attributes, window size, number of readable bytes, non-blocking, close-on-exec;
and the listener's commands."""
_FUTEX_PRIVATE, _FUTEX_CLOCK_REALTIME, _FUTEX_WAIT, _FUTEX_WAIT_BITSET = 0x80, 0x100, 0, 9
_STATIC_CLOCKS = range(12)
"""Clocks that programs may read. All others measure the CPU time of a process or thread, possibly a foreign one."""
_PRCTL_OPTIONS = (15, 16)
"""Allowed options of `prctl`: set and get the name of a thread. The parent-death signal is excluded, because it ties a
program to its slot."""


class ArgumentCheck(NamedTuple):
    """Check that one half of an argument, masked, is among some values. Both supported architectures are
    little-endian."""

    argument: int
    """Index of the argument."""
    values: Sequence[int]
    """Allowed values."""
    mask: int = _ALL_BITS
    """Bits that are compared."""
    high: bool = False
    """Whether to check the upper 32 bits instead of the lower ones."""
    refused: bool = False
    """Whether the values are forbidden instead of allowed."""
    enough: int = 0
    """Bits of the unmasked half. If any of them is set, the check passes."""


def install_for_slot(*, own_files: bool, may_truncate: bool, may_write: bool = True) -> None:
    """Install the slot's filter on this process and all processes that it forks. Requires no_new_privs.

    Args:
        own_files: whether programs can reach only files that belong to them, as under a private root.
        may_truncate: whether opening a file may truncate it. Requires another protection of the host's files.
        may_write: whether files may be opened for writing. Requires another protection of the host's files.

    Raises:
        OSError: the kernel refused.
    """
    opens = _OPEN_TO_READ if not may_write else _OPEN if may_truncate else _OPEN_UNCUT
    files = opens + (_CHANGE_FILES if own_files else b"")
    _install(_HEAD + files + _TAIL)


def install_thread_listener() -> int:
    """Make each start and end of a thread wait for an answer, in this process and all processes that it forks. Requires
    no_new_privs.

    Returns:
        The descriptor (close-on-exec) over which to answer.

    Raises:
        OSError: the kernel has no listeners (before Linux 5.5), or another listener applies to this process (EBUSY).
    """
    try:
        # Without the second flag, a signal can interrupt the end of a thread after it was counted.
        return _install(_THREADS, flags=_NEW_LISTENER | _WAIT_KILLABLE)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return _install(_THREADS, flags=_NEW_LISTENER)  # before Linux 5.19


def install_for_program(*, own_pid: int, may_fork: bool, may_thread: bool, own_pids: bool) -> None:
    """Install the program's filter, which forbids the calls that only a slot may use.

    Args:
        own_pid: result of `os.getpid()` in this process. Without `may_fork`, the only pid that it may signal or query.
        may_fork: whether the program may create processes and signal visible ones. Requires a private pid namespace.
        may_thread: whether the program may start threads. Requires a limit on their number.
        own_pids: whether the program sees only its own processes.

    Raises:
        OSError: the kernel refused.
    """
    allowed = _MANY_PROCESSES if may_fork else _one_process(own_pid, may_thread=may_thread, own_pids=own_pids)
    _install(_PROGRAM_HEAD + allowed + _instruction(_RETURN, _ALLOW))


def _install(code: bytes, *, flags: int = 0) -> int:
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer))
    return kernel.syscall("seccomp", _SECCOMP, _SET_MODE_FILTER, flags, program)


def _instruction(code: int, value: int, *, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def _checked_call(number: int, checks: Sequence[ArgumentCheck]) -> bytes:
    """Return code that allows a call if all checks pass, refuses it otherwise, and skips other calls."""
    body = b"".join(map(_check, checks)) + _instruction(_RETURN, _ALLOW)
    return _instruction(_JUMP_EQUAL, number, if_false=len(body) // 8) + body


def _check(check: ArgumentCheck) -> bytes:
    code = _instruction(_LOAD, 16 + 8 * check.argument + 4 * check.high)
    if check.enough:
        code += _instruction(_JUMP_ANY_BIT, check.enough, if_true=len(check.values) + 1 + (check.mask != _ALL_BITS))
    if check.mask != _ALL_BITS:
        code += _instruction(_AND, check.mask)
    if check.refused:
        return code + b"".join(
            _instruction(_JUMP_EQUAL, value, if_false=1) + _instruction(_RETURN, _REFUSE) for value in check.values
        )
    for index, value in enumerate(check.values):
        code += _instruction(_JUMP_EQUAL, value, if_true=len(check.values) - index)
    return code + _instruction(_RETURN, _REFUSE)


def _numbers(table: str) -> list[int]:
    """Return the numbers of a table's calls on this machine's architecture."""
    rows = [row.split() for row in table.split(",")]
    numbers = [int(x86 if kernel.IS_X86 else aarch64) for _, x86, aarch64 in rows]
    return [number for number in numbers if number >= 0]


def _answer(table: str, answer: int) -> bytes:
    """Return code that gives the same answer to all calls of a table."""
    return b"".join(
        _instruction(_JUMP_EQUAL, number, if_false=1) + _instruction(_RETURN, answer) for number in _numbers(table)
    )


def _calls_with_checks() -> dict[int, list[ArgumentCheck]]:
    columns = {
        "socketpair": (53, 199, [ArgumentCheck(0, [_AF_UNIX]), ArgumentCheck(1, [_SOCK_STREAM], mask=_SOCK_TYPE_MASK)]),
        # Without a destination address: programs have only connected socket pairs.
        "sendto": (44, 206, [ArgumentCheck(4, [0]), ArgumentCheck(4, [0], high=True)]),
        "fcntl": (72, 25, [ArgumentCheck(1, _FCNTL_COMMANDS)]),
        "ioctl": (16, 29, [ArgumentCheck(1, _IOCTL_COMMANDS)]),
        # Slots fork. The program's filter checks further whether a program may start threads or processes.
        "clone": (56, 220, [ArgumentCheck(0, [0], mask=_CLONE_BEYOND_A_FORK)]),
        "close_range": (436, 436, [ArgumentCheck(2, _CLOSE_RANGE_FLAGS)]),
        "prlimit64": (302, 261, [ArgumentCheck(0, [0])]),
    }
    return {(x86 if kernel.IS_X86 else aarch64): checks for x86, aarch64, checks in columns.values()}


def _head() -> bytes:
    """Return the first part of the slot's filter: check the architecture, then allow the calls without conditions."""
    return (
        _instruction(_LOAD, _ARCH_OFFSET)
        + _instruction(_JUMP_EQUAL, _AUDIT_ARCH, if_true=1)
        + _instruction(_RETURN, _KILL_PROCESS)
        + _instruction(_LOAD, _NUMBER_OFFSET)
        + _instruction(_JUMP_AT_LEAST, _FIRST_X32_NUMBER, if_false=1)
        + _instruction(_RETURN, _REFUSE)
        + _answer(_NUMBERS, _ALLOW)
        + _answer(_NUMBERS_OF_PROCESSES, _ALLOW)
        + _answer(_NUMBERS_OF_SLOTS, _ALLOW)
        + _answer("kill 62 129, tgkill 234 131, prctl 157 167", _ALLOW)  # the program's filter checks their arguments
    )


def _open_without(forbidden: int) -> bytes:
    """Return code that allows opening files without the forbidden flags. (Landlock restricts truncation since version
    3.)"""
    flags_of = {257: 2, 2: 1} if kernel.IS_X86 else {56: 2}
    return b"".join(
        _checked_call(number, [ArgumentCheck(flags, [0], mask=forbidden)]) for number, flags in flags_of.items()
    )


def _tail() -> bytes:
    checked = b"".join(_checked_call(number, checks) for number, checks in _calls_with_checks().items())
    # On ENOSYS, glibc falls back to clone, whose flags can be checked.
    clone3 = _instruction(_JUMP_EQUAL, _CLONE3, if_false=1) + _instruction(_RETURN, _UNKNOWN)
    return checked + clone3 + _instruction(_RETURN, _REFUSE)


def _threads() -> bytes:
    """Return the filter that notifies the listener of the starts and ends of threads, but not of processes."""
    start = (
        _instruction(_LOAD, 16)
        + _instruction(_JUMP_ANY_BIT, _CLONE_THREAD, if_false=1)
        + _instruction(_RETURN, _NOTIFY)
        + _instruction(_RETURN, _ALLOW)
    )
    return (
        _instruction(_LOAD, _NUMBER_OFFSET)
        + _instruction(_JUMP_EQUAL, _EXIT, if_false=1)
        + _instruction(_RETURN, _NOTIFY)
        + _instruction(_JUMP_EQUAL, CLONE, if_false=len(start) // 8)
        + start
        + _instruction(_RETURN, _ALLOW)
    )


def _one_process(pid: int, *, may_thread: bool, own_pids: bool) -> bytes:
    """Return code for a program of one process: threads that share everything, signals to itself, queries about
    itself."""
    threads = (
        [ArgumentCheck(0, [_CLONE_LIKE_PTHREAD], mask=_CLONE_LIKE_PTHREAD)] if may_thread else [ArgumentCheck(0, [])]
    )
    calls = {
        CLONE: threads,
        **{number: [ArgumentCheck(0, [pid])] for number in _SIGNALS},
        **_PRIVATE_WAKING,
        **_OWN_MEMORY,
    }
    if not own_pids:
        calls |= {number: [ArgumentCheck(0, [0, pid])] for number in _ABOUT_A_PROCESS} | _OWN_PRIORITY_AND_CLOCKS
    return b"".join(_checked_call(number, checks) for number, checks in calls.items()) + _answer(
        _NUMBERS_OF_PROCESSES, _REFUSE
    )


def _many_processes() -> bytes:
    """Return code for a program of several processes. It may signal single processes, but no process groups, which may
    include processes outside the pid namespace."""
    one = [ArgumentCheck(0, [0], mask=_SIGN_BIT), ArgumentCheck(0, [0], refused=True)]
    threads = [ArgumentCheck(0, [0, _CLONE_FILES, _CLONE_FILES | _CLONE_THREAD], mask=_CLONE_FILES | _CLONE_THREAD)]
    calls = {CLONE: threads, **dict.fromkeys(_SIGNALS, one)}
    return b"".join(_checked_call(number, checks) for number, checks in calls.items())


CLONE, _EXIT, _PRCTL, _FUTEX = (56, 60, 157, 202) if kernel.IS_X86 else (220, 93, 167, 98)
_SIGNALS = (62, 234) if kernel.IS_X86 else (129, 131)
"""Numbers of kill and tgkill."""
_ABOUT_A_PROCESS = (121, 124, 204) if kernel.IS_X86 else (155, 156, 123)
"""Numbers of getpgid, getsid and sched_getaffinity."""
_GET_PRIORITY, *_CLOCKS = (140, 228, 229, 230) if kernel.IS_X86 else (141, 113, 114, 115)
_OWN_PRIORITY_AND_CLOCKS = {
    _GET_PRIORITY: [ArgumentCheck(0, [0]), ArgumentCheck(1, [0])],
    **{number: [ArgumentCheck(0, _STATIC_CLOCKS)] for number in _CLOCKS},
}
_LIBRARIES = kernel.address_of_libc() >> 32
_MAP_SHARED, _MAP_ANONYMOUS, _MREMAP_FIXED = 0x1, 0x20, 0x2
_MMAP, _MREMAP = (9, 25) if kernel.IS_X86 else (222, 216)
_OWN_MEMORY = {
    _MMAP: [
        ArgumentCheck(0, [0, _LIBRARIES - 1, _LIBRARIES, _LIBRARIES + 1], high=True),
        ArgumentCheck(3, [0, _MAP_SHARED, _MAP_ANONYMOUS], mask=_MAP_SHARED | _MAP_ANONYMOUS),
    ],
    _MREMAP: [ArgumentCheck(3, [0], mask=_MREMAP_FIXED)],
}
"""Memory that RLIMIT_AS does not limit. Shared anonymous memory stays allocated as a whole while one page of it is
mapped, so it is forbidden. Pages that are far apart each need a page table of the kernel, so fixed addresses are
allowed only near the libraries, within about 4 GiB."""
_PRIVATE_WAKING = {
    _FUTEX: [
        ArgumentCheck(
            1, [_FUTEX_WAIT, _FUTEX_WAIT_BITSET], mask=_ALL_BITS & ~_FUTEX_CLOCK_REALTIME, enough=_FUTEX_PRIVATE
        )
    ]
}
"""Shared futexes may only be waited on. They could be on a page of a library that concurrent programs share, so waking
is forbidden. Waiting is harmless, and joining a thread needs it."""
_HEAD, _TAIL, _THREADS = _head(), _tail(), _threads()
_OPEN, _OPEN_UNCUT, _OPEN_TO_READ = (
    _answer(_NUMBERS_THAT_OPEN, _ALLOW),
    _open_without(_O_TRUNC),
    _open_without(_O_WRITES),
)
_CHANGE_FILES = _answer(_NUMBERS_THAT_CHANGE_FILES, _ALLOW)
_PROGRAM_HEAD = (
    _instruction(_LOAD, _NUMBER_OFFSET)
    + _answer(_NUMBERS_OF_SLOTS, _REFUSE)
    + _checked_call(_PRCTL, [ArgumentCheck(0, _PRCTL_OPTIONS)])
)
_MANY_PROCESSES = _many_processes()


def call_names() -> set[str]:
    """Return the names of the system calls that slots and programs need, so that a container's profile can allow them."""
    tables = (_NUMBERS, _NUMBERS_THAT_OPEN, _NUMBERS_OF_PROCESSES, _NUMBERS_OF_SLOTS)
    return {row.split()[0] for table in tables for row in table.split(",")}

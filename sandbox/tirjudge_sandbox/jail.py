"""Walls around a process: once around the fork-server (`enter`), then more tightly around each program (`close_in`).

Every step that fails raises `JailError` with its name. Nothing here goes on with less than it was asked for.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tirjudge_sandbox import kernel, landlock, seccomp
from tirjudge_sandbox.levels import Level
from tirjudge_sandbox.protocol import Job

NUM_FILES = 64
"""Open files a program may have."""

NUM_THREADS = 64
"""Threads a program may have, where programs have a user of their own."""

SCRATCH = "/tmp"

_NAMESPACES = (
    kernel.CLONE_NEWUSER
    | kernel.CLONE_NEWPID
    | kernel.CLONE_NEWNS
    | kernel.CLONE_NEWNET
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_MOUNT_POINTS = ("/mnt", "/media", "/srv", "/run", "/tmp", "/opt")
"""Where the new root is put together; the first that has no Python beneath it."""

_FIRST_HOST_ID, _NUM_IDS = 200_000, 65_536
"""Started by root, the users inside are these on the host: nobody there has them."""
_FIRST_PROGRAM_ID = 1000


class JailError(Exception):
    """A wall could not be put up."""

    def __init__(self, step: str, reason: str) -> None:
        super().__init__(f"{step}: {reason}")
        self.step = step
        """Which wall, in the words of `doctor`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Jail:
    """What `enter` set up, as `close_in` needs it."""

    level: Level
    readable: tuple[str, ...]
    """What Landlock lets programs read."""
    writable: tuple[str, ...]
    landlock_abi: int
    """0: this kernel has no Landlock, and the level does without."""
    user_per_slot: bool
    """Whether each slot's programs have a user of their own (the server is root), or share one."""
    num_threads: int | None
    """None where the kernel would count every process of the user, not only ours."""
    base_bytes: int
    """Address space of the fork-server, on top of which programs get theirs."""


def enter(level: Level, *, num_slots: int) -> Jail:
    """Puts the fork-server into its jail. At the namespaces level it returns in a new process, the first of its pid
    namespace; the old one waits for that one, and ends with it.

    Raises:
        JailError: this machine does not let us.
    """
    python = _python_directories()
    base_bytes = _address_space()
    abi = landlock.abi() if level.isolates else 0
    if level is Level.LANDLOCK and not abi:
        raise JailError("landlock", "this kernel has no Landlock, or it was not enabled at boot")
    namespaces = level is Level.NAMESPACES
    is_root = namespaces and _is_root_of_the_host()
    if namespaces:
        _enter_namespaces(python, is_root=is_root)
    return Jail(
        level=level,
        readable=("/",) if namespaces else (*python, *_DEVICES),
        writable=(SCRATCH, "/dev/null") if namespaces else ("/dev/null",),
        landlock_abi=abi,
        user_per_slot=is_root,
        num_threads=(NUM_THREADS if is_root else NUM_THREADS * num_slots) if namespaces else None,
        base_bytes=base_bytes,
    )


def close_in(jail: Jail, *, slot: int, job: Job) -> None:
    """Shuts the calling process in for good; next comes the stranger's code.

    Raises:
        JailError: a wall could not be put up, so nothing may be run.
    """
    if jail.level is Level.NAMESPACES:
        with _step("private /tmp"):
            _mount_scratch(job.scratch_bytes)
    if jail.user_per_slot:
        with _step("user of the slot"):
            os.setresgid(*[_FIRST_PROGRAM_ID + slot] * 3)
            os.setresuid(*[_FIRST_PROGRAM_ID + slot] * 3)
            kernel.set_parent_death_signal(signal.SIGKILL)  # the change of user undid it
    with _step("resource limits"):
        _limit_resources(job, jail=jail)
        kernel.forbid_core_dumps()
    if not jail.level.isolates:
        return
    with _step("capabilities"):
        kernel.drop_capabilities()
        kernel.set_no_new_privileges()
    if jail.landlock_abi:
        with _step("landlock"):
            landlock.restrict(version=jail.landlock_abi, readable=jail.readable, writable=jail.writable)
    with _step("seccomp"):
        own_files = jail.level is Level.NAMESPACES
        may_truncate = own_files or jail.landlock_abi >= landlock.FIRST_ABI_WITH_TRUNCATE
        seccomp.install(own_pid=os.getpid(), own_files=own_files, may_truncate=may_truncate)


def die_with(parent: int) -> None:
    """Ties the calling process to its parent, which must be who it was forked from (or 0: outside our pid namespace)."""
    kernel.set_parent_death_signal(signal.SIGKILL)
    if os.getppid() not in (parent, 0):
        os._exit(1)


@contextlib.contextmanager
def _step(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise JailError(name, error.strerror or str(error)) from error


# ------------------------------------------------------------------------------------------------- around the fork-server


def _enter_namespaces(python: tuple[str, ...], *, is_root: bool) -> None:
    """Root builds the new tree while it can still read all of Python, an ordinary user after it became root inside."""
    if is_root:
        with _step("mount namespace"):
            release_mapper = _start_id_mapper()  # first: it needs the /proc that we are about to leave
            kernel.unshare(kernel.CLONE_NEWNS)
        with _step("root file system"):
            _change_root(python)
        with _step("user namespace"):
            kernel.unshare(_NAMESPACES)
            release_mapper()
            os.setgroups([])
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
    else:
        with _step("user namespace"):
            _unshare_as_user()
        with _step("root file system"):
            _change_root(python)
    with _step("pid namespace"):
        _continue_as_first_process()


def _is_root_of_the_host() -> bool:
    """Root in a container that maps its users has no spare ids to hand on, and goes the way of an ordinary user."""
    with open("/proc/self/uid_map") as file:
        first, _, num_ids = map(int, file.readline().split())
    has_spare_ids = first == 0 and num_ids >= _FIRST_HOST_ID + _NUM_IDS
    return os.geteuid() == 0 and has_spare_ids and kernel.has_capability(kernel.CAP_SYS_ADMIN)


def _start_id_mapper() -> Callable[[], None]:
    """A helper that stays outside: only from there can more than one's own id be mapped. Call the result to let it."""
    target = os.getpid()
    wait_end, go_end = os.pipe()
    helper = os.fork()
    if not helper:
        os.close(go_end)  # so that it reads the end of the pipe if we die
        try:
            if os.read(wait_end, 1):
                for name in ("uid_map", "gid_map"):
                    _write(f"/proc/{target}/{name}", f"0 {_FIRST_HOST_ID} {_NUM_IDS}")
                os._exit(0)
        finally:
            os._exit(1)

    def release() -> None:
        os.write(go_end, b"!")
        os.close(go_end)
        os.close(wait_end)
        if os.waitpid(helper, 0)[1]:
            raise OSError(errno.EPERM, "the id maps could not be written")

    return release


def _unshare_as_user() -> None:
    """Inside, we are root; on the host, still who we were."""
    uid, gid = os.geteuid(), os.getegid()
    kernel.unshare(_NAMESPACES)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"0 {uid} 1")
    _write("/proc/self/gid_map", f"0 {gid} 1")


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _continue_as_first_process() -> None:
    """A new pid namespace begins with one's next child. When its first process dies, the kernel kills all the others."""
    kernel.set_parent_death_signal(signal.SIGKILL)
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os._exit(0)
    kernel.set_parent_death_signal(signal.SIGKILL)


def _change_root(python: Sequence[str]) -> None:
    """A root with Python's own library, five devices and an empty /tmp, all read-only. No /proc."""
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    root = _mount_point(python)
    kernel.mount("tmpfs", root, kind="tmpfs", flags=kernel.MS_NOSUID | kernel.MS_NODEV, options="size=1m,mode=755")
    for path in python:
        os.makedirs(root + path, exist_ok=True)
        _bind(path, root + path, flags=kernel.MS_NODEV)
        for packages in ("site-packages", "dist-packages"):
            if os.path.isdir(f"{path}/{packages}"):
                kernel.mount("tmpfs", f"{root}{path}/{packages}", kind="tmpfs", flags=kernel.MS_RDONLY)
    os.mkdir(f"{root}/dev")
    for path in _DEVICES:
        _write(root + path, "")
        _bind(path, root + path, flags=kernel.MS_NOEXEC)
    os.mkdir(root + SCRATCH)
    os.chdir(root)
    kernel.pivot_root_here()
    os.chdir("/")
    kernel.mount("none", "/", flags=kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kernel.MS_NOSUID)


def _mount_point(python: Sequence[str]) -> str:
    for candidate in _MOUNT_POINTS:
        if os.path.isdir(candidate) and not any(path.startswith(f"{candidate}/") for path in python):
            return candidate
    raise OSError(errno.ENOENT, f"none of {', '.join(_MOUNT_POINTS)} is there and free of Python")


def _bind(source: str, target: str, *, flags: int) -> None:
    """Read-only. What the original mount forbids stays forbidden: in a user namespace the kernel insists on it."""
    kept = os.statvfs(source).f_flag & (kernel.MS_NODEV | kernel.MS_NOEXEC)
    kernel.mount(source, target, flags=kernel.MS_BIND | kernel.MS_REC)
    read_only = kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kernel.MS_NOSUID
    kernel.mount("none", target, flags=read_only | kept | flags)


def _python_directories() -> tuple[str, ...]:
    """The standard library. Its shared libraries are loaded before the walls go up, so their files are not needed."""
    directories = {os.path.realpath(path) for path in sys.path if os.path.isdir(path)}
    nested = {path for path in directories for other in directories if path.startswith(f"{other}/")}
    return tuple(sorted(directories - nested))


def _address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


# ---------------------------------------------------------------------------------------------------- around one program


def _mount_scratch(num_bytes: int) -> None:
    kernel.unshare(kernel.CLONE_NEWNS)
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    kernel.mount("tmpfs", SCRATCH, kind="tmpfs", flags=flags, options=f"size={num_bytes},nr_inodes=1024,mode=1777")
    os.chdir(SCRATCH)


def _limit_resources(job: Job, *, jail: Jail) -> None:
    """Hard limits, which only tighten: where the server itself is held to less, less it is."""
    wanted = {
        resource.RLIMIT_CPU: math.ceil(job.cpu_s) + 1,  # a backstop: the slot reads a finer clock
        resource.RLIMIT_AS: jail.base_bytes + job.memory_bytes,
        resource.RLIMIT_FSIZE: job.file_bytes,
        resource.RLIMIT_NOFILE: NUM_FILES,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: NUM_FILES,
    }
    if jail.num_threads is not None:
        wanted[resource.RLIMIT_NPROC] = jail.num_threads
    for kind, value in wanted.items():
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))

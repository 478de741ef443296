"""Walls around a process: around the fork-server (`enter`), each slot (`enter_slot`), each program (`close_in`, `shut`).

Every step that fails raises `JailError` with its name. Nothing here goes on with less than it was asked for.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import resource
import select
import signal
import socket
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

from tirjudge_sandbox import kernel, landlock, seccomp
from tirjudge_sandbox.levels import IsolationLevel
from tirjudge_sandbox.protocol import ATTACHMENTS, PACKET_BYTES, SCRATCH, ProgramJob
from tirjudge_sandbox.thread_limit import ThreadLimit

NUM_FILES = 64
"""Open files a program may have."""

NUM_THREADS = 64
"""Threads a program may have."""

_SCRATCH_FLAGS = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC

_KEPT = "/.kept"
"""Where the parts of Python lie whose own place is beneath `SCRATCH`, until they are mounted into each private one."""

_NAMESPACES = (
    kernel.CLONE_NEWUSER
    | kernel.CLONE_NEWPID
    | kernel.CLONE_NEWNS
    | kernel.CLONE_NEWNET
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_DATA = ("/usr/share/zoneinfo",)
"""What the standard library reads outside its own directories."""
_MOUNT_POINTS = ("/mnt", "/media", "/srv", "/run", "/tmp", "/opt")
"""Where the new root is put together; the first that has no Python beneath it."""

_UNKNOWN_TO_GVISOR = frozenset({resource.RLIMIT_MSGQUEUE, resource.RLIMIT_SIGPENDING})
"""Limits that cannot be set there; the system call filter refuses what they are about."""
_NEEDED_IN_GVISOR = {
    "SYS_ADMIN": kernel.CAP_SYS_ADMIN,
    "SYS_CHROOT": kernel.CAP_SYS_CHROOT,
    "SETUID": kernel.CAP_SETUID,
    "SETGID": kernel.CAP_SETGID,
    "KILL": kernel.CAP_KILL,
}
"""Capabilities over gVisor's own kernel, for the walls around programs."""

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
    """What `enter` set up, as the walls further in need it."""

    level: IsolationLevel
    readable: tuple[str, ...]
    """What Landlock lets programs read."""
    writable: tuple[str, ...]
    landlock_abi: int
    """0: this kernel has no Landlock, and the level does without."""
    user_per_slot: bool
    """Whether each slot's programs have a user of their own (the server is root), so that RLIMIT_NPROC bounds their threads,
    or share one."""
    base_bytes: int
    """Address space of the fork-server, on top of which programs get theirs."""
    writable_bytes: int
    """What of that is its own to write to."""
    covered: tuple[str, ...]
    """Names in `SCRATCH` of what is kept in `_KEPT`."""
    mounter: int
    """Socket to a helper that copies mounts of the host for the pool; -1: the pool has the right to do that itself."""


def enter(level: IsolationLevel, *, packages: Sequence[str]) -> Jail:
    """Puts the fork-server into its jail. At the namespaces levels it returns in a new process, the first of its pid
    namespace; the old one waits for that one, and ends with it.

    Args:
        level: of isolation.
        packages: files and directories that programs may read, besides Python's own.

    Raises:
        JailError: this machine does not let us.
    """
    python = _python_directories()
    packages = (*packages, *filter(os.path.isdir, _DATA))
    base_bytes, writable_bytes = _address_space()
    abi = landlock.abi() if level.isolates else 0
    if level.needs_landlock and not abi:
        raise JailError("landlock", "this kernel has no Landlock, or it was not enabled at boot")
    namespaces = level.has_namespaces
    is_root = namespaces and _is_root_of_the_host()
    mounter = -1
    if is_root:
        _enter_namespaces_as_root(python, packages, may_fork=level.has_cgroup)
    elif namespaces:
        mounter = _enter_namespaces_as_user(python, packages, may_fork=level.has_cgroup)
    elif level is IsolationLevel.GVISOR:
        _enter_gvisor(python, packages)
    else:
        kernel.forbid_core_dumps()  # nor may programs, which may be the same user, look into us through /proc
    user_per_slot = is_root or level is IsolationLevel.GVISOR
    return Jail(
        level=level,
        readable=("/",) if namespaces else (*python, *packages, *_DEVICES),
        writable=(SCRATCH, "/dev/null") if namespaces else ("/dev/null",),
        landlock_abi=abi,
        user_per_slot=user_per_slot,
        base_bytes=base_bytes,
        writable_bytes=writable_bytes,
        covered=tuple(sorted({path.split("/")[2] for path in (*python, *packages) if path.startswith(f"{SCRATCH}/")})),
        mounter=mounter,
    )


def enter_slot(jail: Jail) -> ThreadLimit | None:
    """Gives the calling process mounts of its own, which its programs see and no other slot's, and all walls that are the
    same for each program.

    Returns:
        What bounds the threads of its programs; None where something else does, or nothing can.

    Raises:
        JailError: a wall could not be put up.
    """
    if jail.level.has_namespaces:
        with _step("mount namespace"):
            kernel.unshare(kernel.CLONE_NEWNS)
    with _step("resource limits"):
        for kind in (resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE):
            if _can_be_set(kind, jail=jail):
                resource.setrlimit(kind, (0, 0))
    threads = None
    with _step("seccomp"):
        kernel.set_no_new_privileges()
        if not (jail.level.has_cgroup or jail.user_per_slot):
            with contextlib.suppress(OSError):  # then programs get no threads (see `shut`)
                threads = ThreadLimit(max_threads=NUM_THREADS)
        own_files = jail.level.has_namespaces
        may_truncate = (
            own_files
            or jail.landlock_abi >= landlock.FIRST_ABI_WITH_TRUNCATE
            or jail.level is IsolationLevel.GVISOR  # there, no file is the user's to change
        )
        seccomp.install_for_slot(own_files=own_files, may_truncate=may_truncate, may_write=jail.level.isolates)
    return threads


@dataclass(slots=True, kw_only=True)
class ProgramSetup:
    """What is prepared for the next program of a slot."""

    scratch_bytes: int
    """Size of its private directory; 0 at levels without one."""
    ruleset: int
    """Descriptor of its Landlock rules; -1 where there are none."""


def prepare(jail: Jail, *, scratch_bytes: int) -> ProgramSetup:
    """Lays out what does not depend on the program, before there is one.

    Args:
        jail: around the fork-server.
        scratch_bytes: what the program is likely to want.

    Raises:
        JailError: the kernel refused.
    """
    if jail.level.has_namespaces:
        with _step("private /tmp"):
            kernel.mount("tmpfs", SCRATCH, kind="tmpfs", flags=_SCRATCH_FLAGS, options=_scratch_options(scratch_bytes))
            for name in jail.covered:
                os.mkdir(f"{SCRATCH}/{name}")
                kernel.mount(f"{_KEPT}/{name}", f"{SCRATCH}/{name}", flags=kernel.MS_BIND | kernel.MS_REC)
    ruleset = -1
    if jail.landlock_abi:
        with _step("landlock"):
            ruleset = landlock.make_ruleset(version=jail.landlock_abi, readable=jail.readable, writable=jail.writable)
    return ProgramSetup(scratch_bytes=scratch_bytes if jail.level.has_namespaces else 0, ruleset=ruleset)


def adapt(jail: Jail, setup: ProgramSetup, *, job: ProgramJob, mounts: Sequence[int]) -> None:
    """Lays out the rest for a program.

    Args:
        jail: around the fork-server.
        setup: as prepared.
        job: of the program.
        mounts: what is attached, by descriptor, in the order of the job. Closed.

    Raises:
        JailError: the kernel refused.
    """
    if not jail.level.has_namespaces:
        return
    if setup.scratch_bytes != job.scratch_bytes:
        with _step("private /tmp"):
            flags = _SCRATCH_FLAGS | kernel.MS_REMOUNT
            kernel.mount("none", SCRATCH, kind="tmpfs", flags=flags, options=_scratch_options(job.scratch_bytes))
    if mounts:
        with _step("attachments"):
            _mount_attachments([name for name, _ in job.attachments], mounts)


def clear_away(jail: Jail, setup: ProgramSetup, *, job: ProgramJob) -> None:
    """Undoes `prepare` and `adapt` when the program is dead."""
    if jail.level.has_namespaces:
        kernel.unmount(SCRATCH)
        if job.attachments:
            kernel.unmount(ATTACHMENTS)
    if setup.ruleset >= 0:
        os.close(setup.ruleset)


def close_in(jail: Jail, setup: ProgramSetup, *, slot: int) -> None:
    """Puts up, around the calling process, the walls that are the same for each program of a slot. It is still trusted, and
    waits for its program then; `shut` must follow.

    Raises:
        JailError: a wall could not be put up, so nothing may be run.
    """
    if jail.level.has_namespaces:
        os.setsid()  # signals to "my process group" would reach the slot and the fork-server
        os.chdir(SCRATCH)
    if jail.user_per_slot:
        with _step("user of the slot"):
            os.setresgid(*[_FIRST_PROGRAM_ID + slot] * 3)
            os.setresuid(*[_FIRST_PROGRAM_ID + slot] * 3)
            kernel.set_parent_death_signal(signal.SIGKILL)  # the change of user undid it
    with _step("resource limits"):
        kernel.forbid_core_dumps()
    with _step("capabilities"):
        kernel.drop_capabilities()
    if not jail.level.isolates and landlock.abi():
        with _step("landlock"):
            landlock.part_from_other_processes()
    if jail.level.has_namespaces and setup.ruleset >= 0:
        with _step("landlock"):
            landlock.restrict(setup.ruleset)


def shut(jail: Jail, setup: ProgramSetup, *, job: ProgramJob, has_thread_limit: bool) -> None:
    """Puts up the last walls, which are those that depend on the program; next comes the stranger's code.

    Args:
        jail: around the fork-server.
        setup: as prepared.
        job: of the program.
        has_thread_limit: whether `enter_slot` returned one.

    Raises:
        JailError: a wall could not be put up, so nothing may be run.
    """
    with _step("resource limits"):
        _limit_resources(job, jail=jail)
    if not jail.level.has_namespaces and setup.ruleset >= 0:
        with _step("landlock"):
            ruleset = setup.ruleset
            if job.attachments:  # the host's own paths
                readable = (*jail.readable, *(path for _, path in job.attachments))
                ruleset = landlock.make_ruleset(version=jail.landlock_abi, readable=readable, writable=jail.writable)
            landlock.restrict(ruleset)
    with _step("seccomp"):
        seccomp.install_for_program(
            own_pid=os.getpid(),
            may_fork=jail.level.has_cgroup,
            may_thread=jail.user_per_slot or has_thread_limit,
            own_pids=jail.level.has_namespaces,
        )


def die_first_of_memory() -> None:
    """Has the kernel end the calling process, and those that it forks, before the service when memory runs out. This is the
    last line: limits come first, and socket buffers are in no process's resident memory."""
    with contextlib.suppress(OSError):  # a container may have no writable /proc
        _write("/proc/self/oom_score_adj", "1000")


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


def _enter_namespaces_as_root(python: Sequence[str], packages: Sequence[str], *, may_fork: bool) -> None:
    """Builds the new tree while we can still read all of Python."""
    with _step("mount namespace"):
        release_mapper = _start_id_mapper()  # first: it needs the /proc that we are about to leave
        kernel.unshare(kernel.CLONE_NEWNS)
    with _step("root file system"):
        _change_root(python, packages, may_fork=may_fork)
    with _step("user namespace"):
        kernel.unshare(_NAMESPACES)
        release_mapper()
        os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
    with _step("pid namespace"):
        child = _fork_first_process()
        if child:
            os.waitpid(child, 0)
            os._exit(0)


def _enter_namespaces_as_user(python: Sequence[str], packages: Sequence[str], *, may_fork: bool) -> int:
    """Builds the new tree as root of the new user namespace. The old process keeps its view of the host: it is the only
    one of ours that sees the host's files and may mount. Returns a socket to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with _step("user namespace"):
        uid, gid = os.geteuid(), os.getegid()
        kernel.unshare(_NAMESPACES)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"0 {uid} 1")  # inside, we are root; on the host, still who we were
        _write("/proc/self/gid_map", f"0 {gid} 1")
    with _step("pid namespace"):
        child = _fork_first_process()
    if child:
        theirs.close()
        _serve_mounts(ours, until_end_of=child)
    ours.close()
    with _step("mount namespace"):
        kernel.unshare(kernel.CLONE_NEWNS)
    with _step("root file system"):
        _change_root(python, packages, may_fork=may_fork)
    return theirs.detach()


def _serve_mounts(pool: socket.socket, *, until_end_of: int) -> NoReturn:
    """Answers each path with a copy of its mount, or with the reason why not."""
    pidfd = os.pidfd_open(until_end_of)
    while pidfd not in select.select([pool, pidfd], [], [])[0]:
        path = pool.recv(PACKET_BYTES)
        if not path:
            break
        try:
            descriptor = kernel.copy_mount(os.fsdecode(path))
        except OSError as error:
            pool.send(str(error).encode())
        else:
            socket.send_fds(pool, [b"mounted"], [descriptor])
            os.close(descriptor)
    os.waitpid(until_end_of, 0)
    os._exit(0)


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


def _enter_gvisor(python: Sequence[str], packages: Sequence[str]) -> None:
    """Changes to a root with Python alone and without /proc, and returns in the first process of a new pid namespace.

    We are root of a kernel that serves this container only. gVisor of 2022 knows neither mount namespaces nor read-only
    binds. So the old process stays outside, and removes the mounts when the new one has ended; and files are safe because
    none belongs to a user that programs run as."""
    with _step("gvisor"):
        if not kernel.is_gvisor():
            raise OSError(errno.ENOSYS, "this kernel is not gVisor")
        missing = [name for name, number in _NEEDED_IN_GVISOR.items() if not kernel.has_capability(number)]
        if os.geteuid() or missing:
            raise OSError(errno.EPERM, f"needs root in the container, with {', '.join(missing or _NEEDED_IN_GVISOR)}")
    root = f"{SCRATCH}/tirjudge-{os.getpid()}"
    with _step("root file system"):
        os.setgroups([])
        kernel.unshare(kernel.CLONE_NEWNS)
        os.makedirs(root, exist_ok=True)
        kernel.mount("tmpfs", root, kind="tmpfs", flags=kernel.MS_NOSUID | kernel.MS_NODEV, options="size=4m,mode=755")
        os.mkdir(root + SCRATCH)
        for path in (*_outermost((*python, *packages)), *_DEVICES):
            _make_mount_target(path, at=root + path)
            kernel.mount(path, root + path, flags=kernel.MS_BIND)
    with _step("pid namespace"):
        kernel.unshare(kernel.CLONE_NEWPID)
        child = _fork_first_process()
        if child:
            os.waitpid(child, 0)
            kernel.unmount(root)
            os.rmdir(root)
            os._exit(0)
    with _step("root file system"):
        os.chroot(root)
        os.chdir("/")


def _outermost(paths: Sequence[str]) -> list[str]:
    """Those that are not beneath another one."""
    return sorted(path for path in set(paths) if not any(path.startswith(f"{other}/") for other in paths))


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _fork_first_process() -> int:
    """A new pid namespace begins with one's next child. When its first process dies, the kernel kills all the others."""
    kernel.set_parent_death_signal(signal.SIGKILL)
    child = os.fork()
    if not child:
        kernel.set_parent_death_signal(signal.SIGKILL)
    return child


def _change_root(python: Sequence[str], packages: Sequence[str], *, may_fork: bool) -> None:
    """A root with Python's own library, packages, five devices and an empty /tmp, all read-only. No /proc."""
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    root = _mount_point((*python, *packages))
    kernel.mount("tmpfs", root, kind="tmpfs", flags=kernel.MS_NOSUID | kernel.MS_NODEV, options="size=4m,mode=755")
    for directory in (SCRATCH, ATTACHMENTS, _KEPT, "/dev"):
        os.mkdir(root + directory)
    for path in python:
        _bind(path, root + _path_in_root(path), flags=kernel.MS_NODEV)
    _replace_packages(root, python, packages)
    for path in _DEVICES:
        _bind(path, root + path, flags=kernel.MS_NOEXEC)
    if may_fork:
        os.symlink(SCRATCH, f"{root}/dev/shm")  # the semaphores of multiprocessing are files there
    os.chdir(root)
    kernel.pivot_root_here()
    os.chdir("/")
    kernel.mount("none", "/", flags=kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kernel.MS_NOSUID)


def _replace_packages(root: str, python: Sequence[str], packages: Sequence[str]) -> None:
    """Hides what was installed into Python's own directories, and puts the offered packages where they were."""
    candidates = [f"{path}/{name}" for path in python for name in ("site-packages", "dist-packages")]
    hidden = [path for path in candidates if os.path.isdir(path)]
    for path in hidden:
        kernel.mount("tmpfs", root + _path_in_root(path), kind="tmpfs", options="size=4m,mode=755")
    for path in packages:
        _bind(path, root + _path_in_root(path), flags=kernel.MS_NODEV)
    for path in hidden:
        kernel.mount("none", root + _path_in_root(path), flags=kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY)


def _path_in_root(path: str) -> str:
    """Where something of the host lies in the new root: at its own path, unless private directories would cover that."""
    return _KEPT + path.removeprefix(SCRATCH) if path.startswith(f"{SCRATCH}/") else path


def _mount_point(visible: Sequence[str]) -> str:
    for candidate in _MOUNT_POINTS:
        if os.path.isdir(candidate) and not any(path.startswith(f"{candidate}/") for path in visible):
            return candidate
    raise OSError(errno.ENOENT, f"none of {', '.join(_MOUNT_POINTS)} is there and free of Python")


def _bind(source: str, target: str, *, flags: int) -> None:
    """Read-only. What the original mount forbids stays forbidden: in a user namespace the kernel insists on it."""
    _make_mount_target(source, at=target)
    kept = os.statvfs(source).f_flag & (kernel.MS_NODEV | kernel.MS_NOEXEC)
    kernel.mount(source, target, flags=kernel.MS_BIND | kernel.MS_REC)
    read_only = kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kernel.MS_NOSUID
    kernel.mount("none", target, flags=read_only | kept | flags)


def _make_mount_target(source: str, *, at: str) -> None:
    """What it can be mounted on: a directory, or an empty file."""
    if os.path.isdir(source):
        os.makedirs(at, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(at), exist_ok=True)
        _write(at, "")


def _python_directories() -> tuple[str, ...]:
    """The standard library. Its shared libraries are loaded before the walls go up, so their files are not needed."""
    return tuple(_outermost([os.path.realpath(path) for path in sys.path if os.path.isdir(path)]))


def _address_space() -> tuple[int, int]:
    """Of the calling process: all of it, and what is its own to write to."""
    with open("/proc/self/statm") as file:
        fields = [int(field) * resource.getpagesize() for field in file.read().split()]
    return fields[0], fields[5]


# ---------------------------------------------------------------------------------------------------- around one program


def _scratch_options(num_bytes: int) -> str:
    return f"size={num_bytes},nr_inodes=1024,mode=1777"


def _mount_attachments(names: Sequence[str], mounts: Sequence[int]) -> None:
    """Each on a mount point of its own, in a directory that then cannot be changed."""
    flags = _SCRATCH_FLAGS
    kernel.mount("tmpfs", ATTACHMENTS, kind="tmpfs", flags=flags, options="size=256k,nr_inodes=128,mode=755")
    for name, descriptor in zip(names, mounts, strict=True):
        target = f"{ATTACHMENTS}/{name}"
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            os.mkdir(target)
        else:
            _write(target, "")
        kernel.attach_mount(descriptor, target)
        os.close(descriptor)
    kernel.mount("none", ATTACHMENTS, flags=flags | kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY)


def _can_be_set(kind: int, *, jail: Jail) -> bool:
    return kind not in _UNKNOWN_TO_GVISOR or (jail.level.isolates and not kernel.is_gvisor())


def _limit_resources(job: ProgramJob, *, jail: Jail) -> None:
    """Hard limits, which only tighten: where the server itself is held to less, less it is."""
    wanted = {
        resource.RLIMIT_CPU: math.ceil(job.cpu_s) + 1,  # a backstop: the slot reads a finer clock
        resource.RLIMIT_AS: jail.base_bytes + job.memory_bytes,
        # Else a program could put memory in the place of libraries that it does not need.
        resource.RLIMIT_DATA: jail.writable_bytes + job.memory_bytes,
        resource.RLIMIT_FSIZE: job.file_bytes,
        resource.RLIMIT_NOFILE: NUM_FILES,
        resource.RLIMIT_SIGPENDING: NUM_FILES,
    }
    if jail.user_per_slot:
        wanted[resource.RLIMIT_NPROC] = NUM_THREADS
    for kind, value in wanted.items():
        if not _can_be_set(kind, jail=jail):
            continue
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def capabilities_for_gvisor() -> tuple[str, ...]:
    """Return the names of the capabilities that the level `gvisor` needs in its container, without the prefix CAP_."""
    return tuple(_NEEDED_IN_GVISOR)

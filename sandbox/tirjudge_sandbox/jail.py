"""Isolate a process: the fork server (`enter`), each slot (`enter_slot`) and each program (`close_in`, `shut`).

A failing step raises `JailError` with the name of the step. No function continues with weaker isolation than requested.
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
"""Maximum number of open files of a program."""

NUM_THREADS = 64
"""Maximum number of threads of a program."""

_SCRATCH_FLAGS = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC

_KEPT = "/.kept"
"""Directory in the new root for the parts of Python that are below `SCRATCH` on the host. They are mounted from here
into each private `SCRATCH`."""

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
"""Directories that the standard library reads although they are not part of it."""
_MOUNT_POINTS = ("/mnt", "/media", "/srv", "/run", "/tmp", "/opt")
"""Directories in which the new root may be built. The first one without Python below it is used."""

_UNKNOWN_TO_GVISOR = frozenset({resource.RLIMIT_MSGQUEUE, resource.RLIMIT_SIGPENDING})
"""Limits that gVisor does not support. The seccomp filter blocks the system calls that they limit."""
_NEEDED_IN_GVISOR = {
    "SYS_ADMIN": kernel.CAP_SYS_ADMIN,
    "SYS_CHROOT": kernel.CAP_SYS_CHROOT,
    "SETUID": kernel.CAP_SETUID,
    "SETGID": kernel.CAP_SETGID,
    "KILL": kernel.CAP_KILL,
}
"""Capabilities that the isolation of programs needs. They apply to gVisor's own kernel, not to the host's."""

_FIRST_HOST_ID, _NUM_IDS = 200_000, 65_536
"""Range of host ids to which the user ids inside are mapped when root starts the pool. No user of the host has these
ids."""
_FIRST_PROGRAM_ID = 1000
"""User id of the programs of slot 0, if each slot has a user."""


class JailError(Exception):
    """An isolation step failed."""

    def __init__(self, step: str, reason: str) -> None:
        super().__init__(f"{step}: {reason}")
        self.step = step
        """Name of the step, as in the output of `doctor`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Jail:
    """Result of `enter`, which the later steps need."""

    level: IsolationLevel
    readable: tuple[str, ...]
    """Paths that Landlock lets programs read."""
    writable: tuple[str, ...]
    """Paths that Landlock lets programs read and write."""
    landlock_abi: int
    """Version of Landlock. 0: this kernel has no Landlock, and the level does not need it."""
    user_per_slot: bool
    """Whether each slot has its own user, so that RLIMIT_NPROC limits its programs' threads. Requires root."""
    base_bytes: int
    """Address space of the fork server. A program's limit is added to it."""
    writable_bytes: int
    """Writable private part of that address space."""
    covered: tuple[str, ...]
    """Names of the directories in `_KEPT` that are mounted into each `SCRATCH`."""
    mounter: int
    """Socket to a helper that copies mounts of the host for the pool. -1: the pool copies them itself."""


def enter(level: IsolationLevel, *, packages: Sequence[str]) -> Jail:
    """Isolate the fork server. At the levels with namespaces, return in a new process, the first of its pid namespace.
    The old process waits for the new one and then ends.

    Args:
        level: isolation level.
        packages: files and directories that programs may read in addition to Python's standard library.

    Raises:
        JailError: an isolation step failed.
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
        kernel.forbid_core_dumps()  # also keeps programs of the same user from reading our memory through /proc
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
    """Give the slot's process a separate mount namespace, and apply the restrictions that all its programs share.

    Returns:
        The thread limit for its programs. None if another mechanism limits threads, or if no mechanism is available.

    Raises:
        JailError: an isolation step failed.
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
            with contextlib.suppress(OSError):  # without a thread limit, `shut` forbids threads
                threads = ThreadLimit(max_threads=NUM_THREADS)
        own_files = jail.level.has_namespaces
        may_truncate = (
            own_files
            or jail.landlock_abi >= landlock.FIRST_ABI_WITH_TRUNCATE
            or jail.level is IsolationLevel.GVISOR  # programs own no file in gVisor
        )
        seccomp.install_for_slot(own_files=own_files, may_truncate=may_truncate, may_write=jail.level.isolates)
    return threads


@dataclass(slots=True, kw_only=True)
class ProgramSetup:
    """Resources prepared for the next program of a slot."""

    scratch_bytes: int
    """Size of the private directory. 0 at levels without one."""
    ruleset: int
    """Descriptor of the Landlock ruleset. -1: none."""


def prepare(jail: Jail, *, scratch_bytes: int) -> ProgramSetup:
    """Prepare everything that does not depend on the program, before a program arrives.

    Args:
        jail: result of `enter`.
        scratch_bytes: expected size of the private directory; `adapt` changes it if the program needs a different size.

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
    """Prepare everything that depends on the program.

    Args:
        jail: result of `enter`.
        setup: result of `prepare`.
        job: the program's job.
        mounts: a mount descriptor for each attachment of the job, in the same order. The descriptors are closed.

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
    """Undo `prepare` and `adapt` after the program has ended."""
    if jail.level.has_namespaces:
        kernel.unmount(SCRATCH)
        if job.attachments:
            kernel.unmount(ATTACHMENTS)
    if setup.ruleset >= 0:
        os.close(setup.ruleset)


def close_in(jail: Jail, setup: ProgramSetup, *, slot: int) -> None:
    """Apply to the calling process the restrictions that are the same for all programs of a slot. The process still
    runs trusted code while it waits for its program. `shut` must follow before untrusted code runs.

    Raises:
        JailError: an isolation step failed, so no program may run.
    """
    if jail.level.has_namespaces:
        os.setsid()  # signals to "my process group" would reach the slot and the fork-server
        os.chdir(SCRATCH)
    if jail.user_per_slot:
        with _step("user of the slot"):
            os.setresgid(*[_FIRST_PROGRAM_ID + slot] * 3)
            os.setresuid(*[_FIRST_PROGRAM_ID + slot] * 3)
            kernel.set_parent_death_signal(signal.SIGKILL)  # the change of user cleared the signal
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
    """Apply the last restrictions, which depend on the program. Untrusted code runs next.

    Args:
        jail: result of `enter`.
        setup: result of `prepare`.
        job: the program's job.
        has_thread_limit: whether `enter_slot` returned a thread limit.

    Raises:
        JailError: an isolation step failed, so no program may run.
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
    """Make the OOM killer prefer the calling process and its children over the service. This is the last line of
    defense: the limits come first, and the OOM killer does not count socket buffers, which belong to no process's
    resident memory."""
    with contextlib.suppress(OSError):  # a container may have no writable /proc
        _write("/proc/self/oom_score_adj", "1000")


def die_with(parent: int) -> None:
    """Kill the calling process when its parent dies. Exit if the parent is already dead: `os.getppid()` is then neither
    `parent` nor 0 (a parent outside the pid namespace)."""
    kernel.set_parent_death_signal(signal.SIGKILL)
    if os.getppid() not in (parent, 0):
        os._exit(1)


@contextlib.contextmanager
def _step(name: str) -> Iterator[None]:
    """Turn an OSError in the block into a `JailError` with the name of the step."""
    try:
        yield
    except OSError as error:
        raise JailError(name, error.strerror or str(error)) from error


# ------------------------------------------------------------------------------------------------------- the fork server


def _enter_namespaces_as_root(python: Sequence[str], packages: Sequence[str], *, may_fork: bool) -> None:
    """Build the new root first, while this process can still read all of Python, then change the user."""
    with _step("mount namespace"):
        release_mapper = _start_id_mapper()  # must come first: it needs the host's /proc
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
    """Build the new root as root of a new user namespace. The old process keeps its view of the host: it is the only
    process that both sees the host's files and may mount. Return a socket to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with _step("user namespace"):
        uid, gid = os.geteuid(), os.getegid()
        kernel.unshare(_NAMESPACES)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"0 {uid} 1")  # root inside, the original user on the host
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
    """Answer each requested path with a copy of its mount, or with an error message."""
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
    """Whether this process is root with a range of unused ids to map. Root in a container with mapped users has none,
    and is treated as an ordinary user."""
    with open("/proc/self/uid_map") as file:
        first, _, num_ids = map(int, file.readline().split())
    has_spare_ids = first == 0 and num_ids >= _FIRST_HOST_ID + _NUM_IDS
    return os.geteuid() == 0 and has_spare_ids and kernel.has_capability(kernel.CAP_SYS_ADMIN)


def _start_id_mapper() -> Callable[[], None]:
    """Start a helper process outside the user namespace, which alone may map a range of ids. Return a function that
    makes the helper write the maps."""
    target = os.getpid()
    wait_end, go_end = os.pipe()
    helper = os.fork()
    if not helper:
        os.close(go_end)  # so that the helper sees end of file if this process dies
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
    """Change to a root with only Python and without /proc. Return in the first process of a new pid namespace.

    This process is root of gVisor's kernel, which serves this container only. gVisor of 2022 supports neither mount
    namespaces nor read-only bind mounts. The old process therefore stays outside and removes the mounts after the new
    process ends. Files are protected by ownership: none belongs to a user that programs run as."""
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
    """Return the paths that are not below another one of the paths."""
    return sorted(path for path in set(paths) if not any(path.startswith(f"{other}/") for other in paths))


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _fork_first_process() -> int:
    """Fork the first process of the new pid namespace. When it dies, the kernel kills all others of the namespace."""
    kernel.set_parent_death_signal(signal.SIGKILL)
    child = os.fork()
    if not child:
        kernel.set_parent_death_signal(signal.SIGKILL)
    return child


def _change_root(python: Sequence[str], packages: Sequence[str], *, may_fork: bool) -> None:
    """Change to a read-only root with Python's standard library, packages, five devices and an empty /tmp, without
    /proc."""
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
    """Hide the site-packages directories inside Python's own directories, and mount only the offered packages there."""
    candidates = [f"{path}/{name}" for path in python for name in ("site-packages", "dist-packages")]
    hidden = [path for path in candidates if os.path.isdir(path)]
    for path in hidden:
        kernel.mount("tmpfs", root + _path_in_root(path), kind="tmpfs", options="size=4m,mode=755")
    for path in packages:
        _bind(path, root + _path_in_root(path), flags=kernel.MS_NODEV)
    for path in hidden:
        kernel.mount("none", root + _path_in_root(path), flags=kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY)


def _path_in_root(path: str) -> str:
    """Return the path in the new root of a host path: the same path, or one in `_KEPT` if `SCRATCH` will cover it."""
    return _KEPT + path.removeprefix(SCRATCH) if path.startswith(f"{SCRATCH}/") else path


def _mount_point(visible: Sequence[str]) -> str:
    """Return a directory to build the new root in. It contains none of the visible paths."""
    for candidate in _MOUNT_POINTS:
        if os.path.isdir(candidate) and not any(path.startswith(f"{candidate}/") for path in visible):
            return candidate
    raise OSError(
        errno.ENOENT, f"none of the directories {', '.join(_MOUNT_POINTS)} exists and contains no part of Python"
    )


def _bind(source: str, target: str, *, flags: int) -> None:
    """Bind-mount a path read-only. Flags that restrict the original mount are kept, as the kernel requires in a user
    namespace."""
    _make_mount_target(source, at=target)
    kept = os.statvfs(source).f_flag & (kernel.MS_NODEV | kernel.MS_NOEXEC)
    kernel.mount(source, target, flags=kernel.MS_BIND | kernel.MS_REC)
    read_only = kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kernel.MS_NOSUID
    kernel.mount("none", target, flags=read_only | kept | flags)


def _make_mount_target(source: str, *, at: str) -> None:
    """Create a mount target for a path: a directory, or an empty file."""
    if os.path.isdir(source):
        os.makedirs(at, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(at), exist_ok=True)
        _write(at, "")


def _python_directories() -> tuple[str, ...]:
    """Return the directories of the standard library. The fork server loads shared libraries before its root changes,
    so their files are not needed."""
    return tuple(_outermost([os.path.realpath(path) for path in sys.path if os.path.isdir(path)]))


def _address_space() -> tuple[int, int]:
    """Return the address space of the calling process and its writable private part, in bytes."""
    with open("/proc/self/statm") as file:
        fields = [int(field) * resource.getpagesize() for field in file.read().split()]
    return fields[0], fields[5]


# ----------------------------------------------------------------------------------------------------------- one program


def _scratch_options(num_bytes: int) -> str:
    return f"size={num_bytes},nr_inodes=1024,mode=1777"


def _mount_attachments(names: Sequence[str], mounts: Sequence[int]) -> None:
    """Mount each attachment in `ATTACHMENTS`, then make that directory read-only."""
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
    """Set hard resource limits. A limit of the service itself that is lower stays in force."""
    wanted = {
        resource.RLIMIT_CPU: math.ceil(job.cpu_s) + 1,  # a backstop: the slot measures CPU time more precisely
        resource.RLIMIT_AS: jail.base_bytes + job.memory_bytes,
        # Without this limit, a program could replace mapped libraries with writable memory.
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

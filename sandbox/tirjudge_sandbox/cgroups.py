"""Control groups (cgroups): limits on the total use of all processes of one slot.

A slot's process joins its group once. The programs that it forks start in the same group. Groups are created below the
group of this process (version 1), or below the nearest ancestor that delegates the memory and pids controllers (version
2). Limits set on this process therefore apply to them too. A group's name is `tirjudge-<pid>-<start of that
process>-<number>`, so that the next pool can recognize and remove the groups of dead processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

_PREFIX = "tirjudge"
_V1_CONTROLLERS = ("memory", "pids", "cpuacct")
_V2_CONTROLLERS = frozenset({"memory", "pids"})
_NUM_TASKS = 64
"""Maximum number of processes and threads of a program."""
_SLACK_BYTES = 16 << 20
"""Memory added to the limit for kernel overhead: page tables, pipes, copied pages of the interpreter."""
_REMOVAL_S = 2.0
"""Maximum time in seconds for the kernel to release the dead processes of a group."""

_numbers = itertools.count()


class CgroupError(Exception):
    """This process cannot create control groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """File names of one cgroup version."""

    memory: str
    """Memory limit."""
    swap: tuple[tuple[str, str], ...]
    """Files that disable swapping, each with the value to write. Files that do not exist are skipped."""
    kills: str
    """Contains a line `oom_kill <number>`: processes of the group that the kernel killed, whichever group was out of
    memory."""
    full: str
    """Number of times the group reached its own limit: a line `max <number>`, or the number alone."""
    clock: str
    """CPU time used by the group."""


_V1 = _Files(
    memory="memory.limit_in_bytes",
    swap=(("memory.swappiness", "0"),),
    kills="memory.oom_control",
    full="memory.failcnt",
    clock="cpuacct.usage",
)
_V2 = _Files(
    memory="memory.max", swap=(("memory.swap.max", "0"),), kills="memory.events", full="memory.events", clock="cpu.stat"
)
_LIMIT_FILES = (
    ("memory", "memory", _V1.memory),
    ("pids", "pids", "pids.max"),
    ("", "memory", _V2.memory),
    ("", "pids", "pids.max"),
)
"""Hierarchy, controller, and the file with its limit."""
_OWN_KILLS = (("memory", "memory.oom_control"), ("", "memory.events.local"))
"""Hierarchy, and the file with the kills in one group, without those in its child groups."""


class MemoryKill(Enum):
    """Why the kernel killed a process of a group."""

    NONE = "none"
    """No process was killed."""
    OWN_LIMIT = "own limit"
    """The group reached its own limit."""
    LIMIT_AROUND = "limit around"
    """A parent group or the machine was out of memory. The group's processes did not cause it."""


class Cgroup:
    """The control group of one process of a slot and of all programs that this process runs."""

    def __init__(self, directories: Mapping[str, Path], *, files: _Files) -> None:
        """Create the group, one directory per controller. Raises OSError."""
        self._directories = directories
        self._files = files
        self._base_bytes = self._memory_bytes = 0
        self._num_kills = self._num_full = 0
        for directory in set(directories.values()):
            directory.mkdir()
        self._write("pids", "pids.max", str(_NUM_TASKS + 1))  # plus the process of the slot
        for name, value in files.swap:
            with contextlib.suppress(FileNotFoundError, PermissionError):  # a kernel without swap accounting
                self._write("memory", name, value)
        self._kills = os.open(directories["memory"] / files.kills, os.O_RDONLY | os.O_CLOEXEC)
        self._full = os.open(directories["memory"] / files.full, os.O_RDONLY | os.O_CLOEXEC)
        self.clock = os.open(directories["cpuacct"] / files.clock, os.O_RDONLY | os.O_CLOEXEC)
        """Descriptor of the file with the CPU time used."""

    def add(self, pid: int, *, base_bytes: int) -> None:
        """Move a slot's process into the group. Raises OSError.

        Args:
            pid: process id in the pid namespace of this process.
            base_bytes: memory of the warm interpreter. A program that writes to all of it gets a private copy of this
                size.
        """
        self.hold(pid)
        self._base_bytes, self._memory_bytes = base_bytes, 0
        self.memory_kill()  # reset the counters: earlier kills belong to the group's previous process

    def hold(self, pid: int) -> None:
        """Move a process into the group. Raises OSError."""
        for directory in set(self._directories.values()):
            (directory / "cgroup.procs").write_text(str(pid))

    def set_limits(self, *, memory_bytes: int, num_tasks: int) -> None:
        """Limit the total of all processes in the group. Raises OSError."""
        self._write("memory", self._files.memory, str(memory_bytes))
        self._write("pids", "pids.max", str(num_tasks))

    @property
    def memory_folder(self) -> Path:
        """Directory with the kernel's memory statistics of the group."""
        return self._directories["memory"]

    def limit(self, memory_bytes: int) -> None:
        """Set the memory limit of the next program. Raises OSError."""
        if memory_bytes != self._memory_bytes:
            self._write("memory", self._files.memory, str(self._base_bytes + memory_bytes + _SLACK_BYTES))
            self._memory_bytes = memory_bytes

    def memory_kill(self) -> MemoryKill:
        """Return why the kernel killed a process of the group since the previous call."""
        num_kills, num_full = _count(self._kills, b"oom_kill"), _count(self._full, b"max")
        was_killed, was_full = num_kills > self._num_kills, num_full > self._num_full
        self._num_kills, self._num_full = num_kills, num_full
        if not was_killed:
            return MemoryKill.NONE
        return MemoryKill.OWN_LIMIT if was_full else MemoryKill.LIMIT_AROUND

    def close(self) -> None:
        """Close the descriptors. Call `remove` once the processes are dead."""
        for descriptor in (self._kills, self._full, self.clock):
            os.close(descriptor)

    async def remove(self) -> None:
        """Remove the group's directories. Raises TimeoutError if the kernel does not release them within 2 s."""
        async with asyncio.timeout(_REMOVAL_S):
            for directory in set(self._directories.values()):
                while not _is_removed(directory):  # noqa: ASYNC110 - the kernel sets no asyncio.Event
                    await asyncio.sleep(0.005)

    def _write(self, controller: str, name: str, value: str) -> None:
        (self._directories[controller] / name).write_text(value)


def _count(descriptor: int, name: bytes) -> int:
    """Return the number after a name in a file, or the file's only number."""
    words = os.pread(descriptor, 1024, 0).split()
    return int(words[words.index(name) + 1] if name in words else words[0])


class CgroupTree:
    """The parent directories in which groups can be created. Returned by `open_tree`."""

    def __init__(self, parents: Mapping[str, Path], *, files: _Files) -> None:
        self._parents = parents
        self._files = files

    def make(self) -> Cgroup:
        """Create a group. Raises OSError."""
        name = f"{_PREFIX}-{os.getpid()}-{start_of(os.getpid())}-{next(_numbers)}"
        return Cgroup({controller: parent / name for controller, parent in self._parents.items()}, files=self._files)

    def sweep(self) -> None:
        """Remove the groups of dead processes' pools. A group that still contains processes stays."""
        for parent in set(self._parents.values()):
            for directory in parent.glob(f"{_PREFIX}-*-*-*"):
                if not _is_alive(directory.name):
                    _is_removed(directory)


def open_tree() -> CgroupTree:
    """Return the place for this process's control groups, after creating one as a test.

    Raises:
        CgroupError: this process cannot create control groups; the message has the reason.
    """
    try:
        tree = _find_tree()
        tree.sweep()
        trial = tree.make()
    except OSError as error:
        raise CgroupError(str(error)) from error
    trial.close()
    for directory in trial._directories.values():
        _is_removed(directory)
    return tree


def limits_around(process: int | str = "self") -> dict[str, int]:
    """Return the tightest limits of a process's groups and their ancestors: "memory" in bytes, "pids" in processes and
    threads. A missing entry means no limit. Raises OSError if /proc cannot be read."""
    mounts, own = _mounts(), _paths_of(process)
    found: dict[str, int] = {}
    for hierarchy, controller, name in _LIMIT_FILES:
        if hierarchy not in mounts or hierarchy not in own:
            continue
        for directory in _upwards(_beneath(mounts[hierarchy], own[hierarchy]), top=mounts[hierarchy][1]):
            with contextlib.suppress(OSError, ValueError):  # no such file in the root group; "max" means no limit
                limit = int((directory / name).read_text())
                found[controller] = min(limit, found.get(controller, limit))
    return found


def num_oom_kills() -> int:
    """Return the number of processes that the OOM killer has killed in this process's group. Child groups do not count:
    a pool may limit the memory of a program there. Where the group has no counter, return that of the whole machine, and
    0 if the kernel does not count."""
    with contextlib.suppress(OSError):
        mounts, own = _mounts(), _paths_of("self")
        for hierarchy, name in _OWN_KILLS:
            if hierarchy in mounts and hierarchy in own:
                counted = _kills_in(_beneath(mounts[hierarchy], own[hierarchy]) / name)
                if counted is not None:
                    return counted
    return _kills_in(Path("/proc/vmstat")) or 0


def _kills_in(path: Path) -> int | None:
    """Return the number in a file's line `oom_kill <number>`. None without the line."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)


def _find_tree() -> CgroupTree:
    mounts, own = _mounts(), _paths_of("self")
    if all(name in mounts and name in own for name in _V1_CONTROLLERS):
        parents = {name: _beneath(mounts[name], own[name]) for name in _V1_CONTROLLERS}
        return CgroupTree(parents, files=_V1)
    if "" not in mounts or "" not in own:
        raise CgroupError("no control groups are mounted that limit memory and number of processes")
    parent = _delegated(_beneath(mounts[""], own[""]), top=mounts[""][1])
    return CgroupTree(dict.fromkeys(_V1_CONTROLLERS, parent), files=_V2)


def _mounts() -> dict[str, tuple[str, Path]]:
    """Return controller -> (mounted subtree of the hierarchy, mount point). The key "" is version 2."""
    found: dict[str, tuple[str, Path]] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        place = (fields.split()[3], Path(fields.split()[4]))
        if kind == "cgroup2":
            found[""] = place
        elif kind == "cgroup":
            found.update(dict.fromkeys(set(options.split(",")) & set(_V1_CONTROLLERS), place))
    return found


def _paths_of(process: int | str) -> dict[str, str]:
    """Return controller -> path of a process's group. The key "" is version 2."""
    found: dict[str, str] = {}
    for line in Path(f"/proc/{process}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        found.update(dict.fromkeys(controllers.split(","), path))
    return found


def _beneath(mount: tuple[str, Path], own: str) -> Path:
    """Return the directory of a group, given its path within the hierarchy."""
    root, directory = mount
    return directory / os.path.relpath(own, root) if own.startswith(root) else directory


def _delegated(own: Path, *, top: Path) -> Path:
    """Return the nearest group, from this process's upwards, that delegates memory and pids and is writable."""
    for directory in _upwards(own, top=top):
        handed_down = set((directory / "cgroup.subtree_control").read_text().split())
        if handed_down >= _V2_CONTROLLERS and os.access(directory / "cgroup.procs", os.W_OK):
            return directory
    if not set((own / "cgroup.controllers").read_text().split()) >= _V2_CONTROLLERS:
        raise CgroupError(f"the controllers memory and pids are not delegated to {own}")
    _make_room(own)
    (own / "cgroup.subtree_control").write_text("+memory +pids")
    return own


def _upwards(own: Path, *, top: Path) -> Iterator[Path]:
    yield own
    for parent in own.parents:
        if not parent.is_relative_to(top):
            return
        yield parent


def _make_room(own: Path) -> None:
    """Move this process into a child group if it is the only process of its group: a group that delegates controllers
    must not contain processes."""
    if (own / "cgroup.procs").read_text().split() == [str(os.getpid())]:
        inner = own / f"{_PREFIX}-server"
        inner.mkdir(exist_ok=True)
        (inner / "cgroup.procs").write_text(str(os.getpid()))


def _is_alive(name: str) -> bool:
    """Whether the process in a group's name still runs."""
    _, pid, start, _ = name.split("-", 3)
    return pid.isdecimal() and start_of(int(pid)) == start


def start_of(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot. Empty if the process does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _is_removed(directory: Path) -> bool:
    """Remove a group if it is empty. Return whether it no longer exists."""
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True

"""Control groups: what all processes of one slot may use together.

A slot's process is put into its group once; the programs that it forks are born there. Groups are made beneath the one
that this process is in itself (version 1), or beneath the nearest that hands memory and pids down (version 2), so that
whoever limits us limits them. They are called `tirjudge-<pid>-<start of that process>-<number>`: what a killed server left
behind is told apart from what belongs to a living one, and removed by the next pool that starts.
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
"""Processes and threads of a program."""
_SLACK_BYTES = 16 << 20
"""For what a program does not know that it uses: page tables, pipes, pages of the interpreter that it writes to."""
_REMOVAL_S = 2.0
"""How long the kernel may take to let go of processes that are dead."""

_numbers = itertools.count()


class CgroupError(Exception):
    """There are no control groups that we may use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """What the two versions call the same thing."""

    memory: str
    swap: tuple[tuple[str, str], ...]
    """Files, and what to write there, so that memory is not had by swapping; where they exist."""
    kills: str
    """Holds a line `oom_kill <number>`, of processes in the group, for whichever group's lack of memory."""
    full: str
    """Says how often the group reached its own limit: a line `max <number>`, or the number alone."""
    clock: str


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
"""Hierarchy, what it limits, and in which file."""


class MemoryKill(Enum):
    """Why the kernel killed something in a group."""

    NONE = "none"
    """It did not."""
    OWN_LIMIT = "own limit"
    """The group had reached its limit."""
    LIMIT_AROUND = "limit around"
    """A group around it, or the machine, was full: its processes may be blamed for nothing."""


class Cgroup:
    """Around one process of a slot, and all programs that it runs."""

    def __init__(self, directories: Mapping[str, Path], *, files: _Files) -> None:
        """Raises OSError."""
        self._directories = directories
        self._files = files
        self._base_bytes = self._memory_bytes = 0
        self._num_kills = self._num_full = 0
        for directory in set(directories.values()):
            directory.mkdir()
        self._write("pids", "pids.max", str(_NUM_TASKS + 1))  # the slot itself is one
        for name, value in files.swap:
            with contextlib.suppress(FileNotFoundError, PermissionError):  # a kernel without swap accounting
                self._write("memory", name, value)
        self._kills = os.open(directories["memory"] / files.kills, os.O_RDONLY | os.O_CLOEXEC)
        self._full = os.open(directories["memory"] / files.full, os.O_RDONLY | os.O_CLOEXEC)
        self.clock = os.open(directories["cpuacct"] / files.clock, os.O_RDONLY | os.O_CLOEXEC)
        """Descriptor of the file that tells the processor time used."""

    def add(self, pid: int, *, base_bytes: int) -> None:
        """Takes in a slot's process. Raises OSError.

        Args:
            pid: as we see it.
            base_bytes: of the warm interpreter, which a program may come to have all to itself by writing to it.
        """
        self.hold(pid)
        self._base_bytes, self._memory_bytes = base_bytes, 0
        self.memory_kill()  # what was killed in here before is not this one's

    def hold(self, pid: int) -> None:
        """Takes in any process. Raises OSError."""
        for directory in set(self._directories.values()):
            (directory / "cgroup.procs").write_text(str(pid))

    def set_limits(self, *, memory_bytes: int, num_tasks: int) -> None:
        """In sum, whatever is in here. Raises OSError."""
        self._write("memory", self._files.memory, str(memory_bytes))
        self._write("pids", "pids.max", str(num_tasks))

    @property
    def memory_folder(self) -> Path:
        """Where the kernel tells of the memory used."""
        return self._directories["memory"]

    def limit(self, memory_bytes: int) -> None:
        """For the next program. Raises OSError."""
        if memory_bytes != self._memory_bytes:
            self._write("memory", self._files.memory, str(self._base_bytes + memory_bytes + _SLACK_BYTES))
            self._memory_bytes = memory_bytes

    def memory_kill(self) -> MemoryKill:
        """Whether the kernel has killed a process in here since this was asked last, and for whose lack of memory."""
        num_kills, num_full = _count(self._kills, b"oom_kill"), _count(self._full, b"max")
        was_killed, was_full = num_kills > self._num_kills, num_full > self._num_full
        self._num_kills, self._num_full = num_kills, num_full
        if not was_killed:
            return MemoryKill.NONE
        return MemoryKill.OWN_LIMIT if was_full else MemoryKill.LIMIT_AROUND

    def close(self) -> None:
        """`remove` must follow, when the processes are dead."""
        for descriptor in (self._kills, self._full, self.clock):
            os.close(descriptor)

    async def remove(self) -> None:
        async with asyncio.timeout(_REMOVAL_S):
            for directory in set(self._directories.values()):
                while not _is_removed(directory):  # noqa: ASYNC110 - the kernel sets no asyncio.Event
                    await asyncio.sleep(0.005)

    def _write(self, controller: str, name: str, value: str) -> None:
        (self._directories[controller] / name).write_text(value)


def _count(descriptor: int, name: bytes) -> int:
    """The number behind a name in a file, or the only thing in it."""
    words = os.pread(descriptor, 1024, 0).split()
    return int(words[words.index(name) + 1] if name in words else words[0])


class CgroupTree:
    """Where groups can be made. Found by `open_tree`."""

    def __init__(self, parents: Mapping[str, Path], *, files: _Files) -> None:
        self._parents = parents
        self._files = files

    def make(self) -> Cgroup:
        """Raises OSError."""
        name = f"{_PREFIX}-{os.getpid()}-{start_of(os.getpid())}-{next(_numbers)}"
        return Cgroup({controller: parent / name for controller, parent in self._parents.items()}, files=self._files)

    def sweep(self) -> None:
        """Removes what pools of dead processes left behind. Groups with processes in them cannot be removed."""
        for parent in set(self._parents.values()):
            for directory in parent.glob(f"{_PREFIX}-*-*-*"):
                if not _is_alive(directory.name):
                    _is_removed(directory)


def open_tree() -> CgroupTree:
    """The control groups of this machine, after trying to make one.

    Raises:
        CgroupError: there are none that we may use; says why.
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
    """The tightest limits of the groups that a process is in and of those above: "memory" in bytes, "pids" in processes and
    threads; without those that nothing limits. Raises OSError where /proc cannot be read."""
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
    """Controller -> what of the hierarchy is mounted, and where; "" is version 2."""
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
    """Controller -> path of the group that a process is in; "" is version 2."""
    found: dict[str, str] = {}
    for line in Path(f"/proc/{process}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        found.update(dict.fromkeys(controllers.split(","), path))
    return found


def _beneath(mount: tuple[str, Path], own: str) -> Path:
    root, directory = mount
    return directory / os.path.relpath(own, root) if own.startswith(root) else directory


def _delegated(own: Path, *, top: Path) -> Path:
    """The nearest group above us that hands down what we need, and that we may make groups in."""
    for directory in _upwards(own, top=top):
        handed_down = set((directory / "cgroup.subtree_control").read_text().split())
        if handed_down >= _V2_CONTROLLERS and os.access(directory / "cgroup.procs", os.W_OK):
            return directory
    if not set((own / "cgroup.controllers").read_text().split()) >= _V2_CONTROLLERS:
        raise CgroupError(f"{own} was given no control over memory and pids")
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
    """A group that hands control down may hold no processes, so we move into one of our own, if we are alone there."""
    if (own / "cgroup.procs").read_text().split() == [str(os.getpid())]:
        inner = own / f"{_PREFIX}-server"
        inner.mkdir(exist_ok=True)
        (inner / "cgroup.procs").write_text(str(os.getpid()))


def _is_alive(name: str) -> bool:
    """Whether the process is there that a group is named after."""
    _, pid, start, _ = name.split("-", 3)
    return pid.isdecimal() and start_of(int(pid)) == start


def start_of(pid: int) -> str:
    """Clock ticks from boot to the start of a process; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _is_removed(directory: Path) -> bool:
    """Removes a group if nothing is in it."""
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True

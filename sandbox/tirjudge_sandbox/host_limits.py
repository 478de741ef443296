"""What the machine, and the control groups that the service itself runs in, leave to a pool.

Standard library only: the relay in a container reads this file too.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tirjudge_sandbox.cgroups import limits_around
from tirjudge_sandbox.limits import Limits

_KERNEL_BYTES = 80 << 20
"""The most that a program makes the kernel hold beside its own memory: buffers of sockets, mappings, page tables, threads."""
_NUM_OUTPUTS = 2

_NUM_TASKS_PER_SLOT = 64 + 2 * 4
"""Threads of a program, and the slot's process and the one that waits in each warm interpreter."""
_NUM_TASKS_BESIDE = 64
"""Threads of the service, and its fork-servers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLimits:
    """The tightest of those around this process."""

    memory_bytes: int
    num_tasks: int | None
    """Processes and threads; None: no group limits them."""


def host_limits() -> HostLimits:
    """Of the machine and of all groups above this process. Raises OSError where /proc cannot be read."""
    around = limits_around()
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return HostLimits(memory_bytes=min(machine, around.get("memory", machine)), num_tasks=around.get("pids"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a pool takes if every slot runs a program that takes all it may."""

    limits: Limits
    """Of each program."""
    num_slots: int
    base_bytes: int
    """Of the service and its fork-servers."""
    warm_bytes: int = 0
    """Writable memory of the largest warm interpreter, which a program can come to have all to itself."""

    @property
    def num_bytes(self) -> int:
        """Memory and files of programs, and what the kernel holds for them, beside the service."""
        files_mb = self.limits.scratch_mb + _NUM_OUTPUTS * self.limits.file_mb
        program_bytes = (self.limits.memory_mb + files_mb << 20) + self.warm_bytes
        return self.base_bytes + self.num_slots * (program_bytes + _KERNEL_BYTES)

    @property
    def num_tasks(self) -> int:
        return self.num_slots * _NUM_TASKS_PER_SLOT + _NUM_TASKS_BESIDE

    def most_memory_mb(self, *, host: HostLimits) -> int:
        """What each program can have at once, MiB; never less than the limits say."""
        spare_bytes = max(0, host.memory_bytes - self.num_bytes)
        return self.limits.memory_mb + (spare_bytes // self.num_slots >> 20)

    def shortages(self, *, host: HostLimits) -> list[str]:
        """What there is too little of, in a sentence each: then programs could have the kernel end the service."""
        found = []
        if self.num_bytes > host.memory_bytes:
            found.append(
                f"{self.num_slots} slots of {self.limits.memory_mb} MiB, with their files and the service, can take "
                f"{self.num_bytes >> 20} MiB, and there are {host.memory_bytes >> 20} MiB; give fewer slots, a lower memory "
                "limit for programs, or more memory"
            )
        if host.num_tasks is not None and self.num_tasks > host.num_tasks:
            found.append(
                f"{self.num_slots} slots can start up to {self.num_tasks} processes and threads, and {host.num_tasks} are "
                "allowed around the service; give fewer slots, or a higher limit of pids"
            )
        return found


def resident_bytes(pid: int) -> int:
    """Memory of a process; 0 if it is gone."""
    return _bytes_of(pid, place=1)


def writable_bytes(pid: int) -> int:
    """Address space of a process that is its own to write to; 0 if it is gone."""
    return _bytes_of(pid, place=5)


def _bytes_of(pid: int, *, place: int) -> int:
    try:
        num_pages = int(Path(f"/proc/{pid}/statm").read_text().split()[place])
    except OSError:
        return 0
    return num_pages * os.sysconf("SC_PAGE_SIZE")


def num_oom_kills() -> int:
    """How many processes this machine's kernel has ended for lack of memory since it started; 0 if it does not tell."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)

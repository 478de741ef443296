"""Memory and process limits that the machine and the service's own control groups impose on a pool.

This module imports only the standard library, because the relay in a container imports it too.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tirjudge_sandbox.cgroups import limits_around
from tirjudge_sandbox.limits import Limits

_KERNEL_BYTES = 80 << 20
"""Upper bound on kernel memory that one program uses besides its own: socket buffers, mappings, page tables,
threads."""
_NUM_OUTPUTS = 2
"""Output files of a program: standard output and standard error."""

_NUM_TASKS_PER_SLOT = 64 + 2 * 4
"""Threads of a program, and per warm interpreter the slot's process and its waiting child."""
_NUM_TASKS_BESIDE = 64
"""Threads of the service and of its fork servers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLimits:
    """The tightest limits that apply to this process."""

    memory_bytes: int
    """Memory of the machine or of the tightest control group."""
    num_tasks: int | None
    """Maximum number of processes and threads. None: no group limits them."""


def host_limits() -> HostLimits:
    """Return the limits of the machine and of all control groups of this process. Raises OSError if /proc is
    unreadable."""
    around = limits_around()
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return HostLimits(memory_bytes=min(machine, around.get("memory", machine)), num_tasks=around.get("pids"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Resources that a pool needs if every slot runs a program that uses its full limits."""

    limits: Limits
    """Limits of each program."""
    num_slots: int
    """Number of programs that run concurrently."""
    base_bytes: int
    """Memory of the service and its fork servers."""
    warm_bytes: int = 0
    """Writable memory of the largest warm interpreter. A program that writes to it gets a private copy."""

    @property
    def num_bytes(self) -> int:
        """Memory of the service, and memory, files and kernel memory of the programs."""
        files_mb = self.limits.scratch_mb + _NUM_OUTPUTS * self.limits.file_mb
        program_bytes = (self.limits.memory_mb + files_mb << 20) + self.warm_bytes
        return self.base_bytes + self.num_slots * (program_bytes + _KERNEL_BYTES)

    @property
    def num_tasks(self) -> int:
        """Number of processes and threads."""
        return self.num_slots * _NUM_TASKS_PER_SLOT + _NUM_TASKS_BESIDE

    def most_memory_mb(self, *, host: HostLimits) -> int:
        """Return the memory in MiB that every program can use concurrently; at least the limit of `limits`."""
        spare_bytes = max(0, host.memory_bytes - self.num_bytes)
        return self.limits.memory_mb + (spare_bytes // self.num_slots >> 20)

    def shortages(self, *, host: HostLimits) -> list[str]:
        """Return a sentence for each resource that the host lacks. A shortage lets programs get the service killed."""
        found = []
        if self.num_bytes > host.memory_bytes:
            found.append(
                f"{self.num_slots} slots of {self.limits.memory_mb} MiB, with their files and the service, can use "
                f"{self.num_bytes >> 20} MiB, but only {host.memory_bytes >> 20} MiB are available; configure fewer slots, "
                "a lower memory limit for programs, or more memory"
            )
        if host.num_tasks is not None and self.num_tasks > host.num_tasks:
            found.append(
                f"{self.num_slots} slots can start up to {self.num_tasks} processes and threads, but the service's control "
                f"group allows {host.num_tasks}; configure fewer slots or a higher pids limit"
            )
        return found


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process. 0 if the process has ended."""
    return _bytes_of(pid, field=1)


def writable_bytes(pid: int) -> int:
    """Return the size of a process's writable private address space. 0 if the process has ended."""
    return _bytes_of(pid, field=5)


def _bytes_of(pid: int, *, field: int) -> int:
    try:
        num_pages = int(Path(f"/proc/{pid}/statm").read_text().split()[field])
    except OSError:
        return 0
    return num_pages * os.sysconf("SC_PAGE_SIZE")

"""Interfaces between the pool and its backends: the process of a slot, and the server that creates these processes.

This module imports only the standard library, because the relay in a container imports it too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection

from tirjudge_sandbox.cgroups import Cgroup
from tirjudge_sandbox.channel import Calls
from tirjudge_sandbox.protocol import ProgramJob, ProgramReport


class SlotLost(Exception):
    """A slot did not answer, because its process or its server is dead."""

    def __init__(self, reason: str, *, started: bool) -> None:
        super().__init__(reason)
        self.started = started
        """Whether the program may have started. If not, it can safely be run again."""


class LevelUnavailable(Exception):
    """An isolation level does not work on this machine."""

    def __init__(self, step: str, reason: str) -> None:
        super().__init__(reason)
        self.step = step
        """The isolation step that failed."""


class SlotProcess(ABC):
    """A process that runs programs one after the other: it takes a job and a payload, and returns a report."""

    server: SlotServer
    """Server that created this process."""
    is_open: bool
    """False once the process was closed or killed."""
    is_running: bool
    """Whether a program is running, so that a report is pending."""

    @abstractmethod
    async def run(self, job: ProgramJob, payload: bytes, *, calls: Calls | None = None) -> ProgramReport:
        """Run a program. Raises SlotLost if the slot fails, OSError if the host cannot provide what the job needs.

        Args:
            job: limits and channels of the program.
            payload: see `request.Program.payload`.
            calls: receives the function calls of the program. None: the job has no channel `CALLS`.
        """

    @abstractmethod
    async def cancel(self) -> None:
        """Kill the running program. Raises SlotLost."""

    @abstractmethod
    def hang_up(self) -> None:
        """End the process and its program. A pending `run` fails immediately. `close` must follow."""

    @abstractmethod
    def kill(self) -> None:
        """Kill and close a process that does not answer."""

    @abstractmethod
    def close(self) -> None:
        """Release the process. Does nothing if it is closed already."""


class SlotServer(ABC):
    """A warm interpreter of one preset that creates the processes of slots."""

    started_at: float
    """Start time on the monotonic clock, in seconds."""
    num_open: int
    """Number of open slot processes of this server."""
    offered: Collection[str]
    """Import names of the packages that programs can import."""

    @property
    @abstractmethod
    def is_alive(self) -> bool:
        """Whether the server can still create slot processes."""

    @property
    def resident_bytes(self) -> int:
        """Resident memory on this machine. 0 in a container, whose memory is limited separately."""
        return 0

    @property
    def writable_bytes(self) -> int:
        """Writable part of the address space. 0 in a container."""
        return 0

    @abstractmethod
    async def open_slot(self, number: int, *, cgroup: Cgroup | None) -> SlotProcess:
        """Create a process for a slot. Raises OSError if the server is dead."""

    @abstractmethod
    async def stop(self) -> None:
        """End the server and all processes forked from it. Slots that were hung up before have then reaped their
        programs."""

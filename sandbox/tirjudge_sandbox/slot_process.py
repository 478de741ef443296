"""What the pool asks of whatever runs programs: a process for each slot, and a server that makes these.

Standard library only: the relay in a container reads this file too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection

from tirjudge_sandbox.cgroups import Cgroup
from tirjudge_sandbox.protocol import ProgramJob, ProgramReport


class SlotLost(Exception):
    """A slot did not answer: it, or its server, is dead."""

    def __init__(self, reason: str, *, started: bool) -> None:
        super().__init__(reason)
        self.started = started
        """Whether the program may have started; if not, it can be run again."""


class LevelUnavailable(Exception):
    """This machine does not let a server isolate at a level."""

    def __init__(self, step: str, reason: str) -> None:
        super().__init__(reason)
        self.step = step
        """Which wall could not be put up."""


class SlotProcess(ABC):
    """What runs programs, one after the other, wherever it is: a job and a payload go in, a report comes out."""

    server: SlotServer
    """That it came from."""
    is_open: bool
    """Whether it was neither closed nor killed."""
    is_running: bool
    """Whether an answer is owed."""

    @abstractmethod
    async def run(self, job: ProgramJob, payload: bytes) -> ProgramReport:
        """Raises SlotLost; and OSError, if something that the job needs of the host cannot be had."""

    @abstractmethod
    async def cancel(self) -> None:
        """Kills the program that is running. Raises SlotLost."""

    @abstractmethod
    def hang_up(self) -> None:
        """Ends the process and its program; whoever waits for an answer is told at once. `close` must follow."""

    @abstractmethod
    def kill(self) -> None:
        """For a process that does not do as it is told. It is closed then."""

    @abstractmethod
    def close(self) -> None: ...


class SlotServer(ABC):
    """A warm interpreter of one preset, from which slots get their processes."""

    started_at: float
    """By the monotonic clock."""
    num_open: int
    """Slots' processes of it that are in use."""
    offered: Collection[str]
    """Import names of the packages that programs can import."""

    @property
    @abstractmethod
    def is_alive(self) -> bool: ...

    @property
    def resident_bytes(self) -> int:
        """Memory that it takes of this machine; 0 in a container, which has limits of its own."""
        return 0

    @property
    def writable_bytes(self) -> int:
        """Of its address space; 0 in a container."""
        return 0

    @abstractmethod
    async def open_slot(self, number: int, *, cgroup: Cgroup | None) -> SlotProcess:
        """A new process for a slot. Raises OSError if the server is dead."""

    @abstractmethod
    async def stop(self) -> None:
        """Ends it and everything forked from it. Slots that were hung up before have then reaped their programs."""

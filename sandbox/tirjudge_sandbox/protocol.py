"""What the pool and a slot say to each other: one `ProgramJob` goes in, one `Ending` comes out, each a packet of JSON.

The program itself, its variables and files, and its output are never in these packets: they are memory files whose
descriptors travel with the job, in the order of `Descriptors`. Only the program's own process opens the first three.
Standard library only: the isolated interpreter reads this file too.
"""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

PACKET_BYTES = 131_072
"""More than any packet of ours."""

HELLO = b"hello"
"""Sent by a slot's new process; the kernel tells from which process it came."""

ENTER = b"enter"
"""Sent to a slot when it is in its control group, before its first job: what it forks is in there too."""

CANCEL = b"cancel"
"""Sent to a slot that is running a program: kill it, then answer as usual."""

EXIT_MEMORY = 137
"""Exit code of a program that ended with an uncaught MemoryError."""

SCRATCH = "/tmp"
"""The working directory of programs; their own at the levels with namespaces."""

ATTACHMENTS = "/attachments"
"""Where they find what is attached, at the same levels."""

ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR", "VECLIB_MAXIMUM")}
"""Environment that keeps linear algebra from starting threads: they would not survive a fork, and one is quicker for
what programs compute."""

MAX_DESCRIPTORS = 64
"""The most that travel with one packet."""


class StoppedBy(StrEnum):
    """Who killed a program."""

    NOBODY = ""
    CPU = "cpu"
    WALL = "wall"
    MEMORY = "memory"
    CANCEL = "cancel"


class Descriptors(NamedTuple):
    """Memory files of one program."""

    source: int
    """See `request.Program.payload`."""
    stdout: int
    stderr: int
    fetched: int = -1
    """The files asked for in `ProgramJob.fetch`, one behind the other; written by the slot when the program is dead. Not
    there if none are asked for."""


class Attachment(NamedTuple):
    """Something of the host that a program may read."""

    name: str
    path: str
    """On the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramJob:
    """The limits of one program, in the units of the kernel, and what it needs of the outside."""

    cpu_s: float
    wall_s: float
    memory_bytes: int
    """On top of the warm interpreter's."""
    output_bytes: int
    """How much of what it prints is handed back, on each of its two outputs."""
    file_bytes: int
    scratch_bytes: int
    fetch: tuple[str, ...] = ()
    """Paths beneath the private directory, to be read when it has ended."""
    fetch_bytes: int = 0
    """Of all these together, at most."""
    attachments: tuple[Attachment, ...] = ()

    def to_packet(self) -> bytes:
        return json.dumps({name: getattr(self, name) for name in self.__slots__}).encode()

    @classmethod
    def from_packet(cls, packet: bytes) -> ProgramJob:
        fields = json.loads(packet)
        attachments = tuple(Attachment(*pair) for pair in fields.pop("attachments"))
        return cls(**{**fields, "fetch": tuple(fields["fetch"]), "attachments": attachments})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the process of a program ended, as the kernel told the slot."""

    failure: str = ""
    """Why the process could not be isolated, so that the program never started; empty when it did start."""
    wait_status: int
    """As `os.wait4` gives it."""
    stopped_by: StoppedBy
    cpu_s: float
    wall_s: float
    max_rss_kb: int
    fetched: tuple[int, ...] = ()
    """Size of each file of `ProgramJob.fetch`; -1: it is not there, no plain file, or too large."""

    @property
    def was_killed(self) -> bool:
        """Whether SIGKILL ended it that its slot did not send."""
        return self.stopped_by is StoppedBy.NOBODY and self.wait_status == signal.SIGKILL

    def to_packet(self) -> bytes:
        return json.dumps({name: getattr(self, name) for name in self.__slots__}).encode()

    @classmethod
    def from_packet(cls, packet: bytes) -> Ending:
        fields = json.loads(packet)
        stopped_by = StoppedBy(fields["stopped_by"])
        return cls(**{**fields, "stopped_by": stopped_by, "fetched": tuple(fields["fetched"])})


class Printed(NamedTuple):
    """What of a program's output is handed back."""

    num_bytes: int
    """Of all that was printed."""
    head: bytes
    """All of it, or the first three quarters of `ProgramJob.output_bytes`."""
    tail: bytes
    """Empty, or the last quarter of `ProgramJob.output_bytes`."""

    @property
    def is_cut(self) -> bool:
        return self.num_bytes > len(self.head) + len(self.tail)


class ProgramReport(NamedTuple):
    """All that comes back of a program."""

    ending: Ending
    stdout: Printed
    stderr: Printed
    files: dict[str, bytes]
    """Those of `ProgramJob.fetch` that there were."""

"""What the pool and a slot say to each other: one `Job` goes in, one `Ending` comes out, each a packet of JSON.

The program itself, its variables and its output are never in these packets: they are memory files whose descriptors
travel with the job, in the order of `Descriptors`, and only the program's own process opens them.
Standard library only: the isolated interpreter reads this file too.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import NamedTuple

PACKET_BYTES = 65_536
"""More than any packet of ours."""

CANCEL = b"cancel"
"""Sent to a slot that is running a program: kill it, then answer as usual."""

EXIT_MEMORY = 137
"""Exit code of a program that ended with an uncaught MemoryError."""


class StoppedBy(StrEnum):
    """Why a slot killed a program."""

    NOBODY = ""
    CPU = "cpu"
    WALL = "wall"
    CANCEL = "cancel"


class Descriptors(NamedTuple):
    """Memory files of one program."""

    source: int
    """JSON: `{"code": str, "bindings": {...}}`."""
    stdout: int
    stderr: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The limits of one program, in the units of the kernel."""

    cpu_s: float
    wall_s: float
    memory_bytes: int
    """Address space on top of the bare interpreter's."""
    file_bytes: int
    scratch_bytes: int

    def to_packet(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_packet(cls, packet: bytes) -> Job:
        return cls(**json.loads(packet))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the process of a program ended, as the kernel told the slot."""

    failure: str
    """Why the process could not be isolated, so that the program never started; empty when it did start."""
    wait_status: int
    """As `os.wait4` gives it."""
    stopped_by: StoppedBy
    cpu_s: float
    wall_s: float
    max_rss_kb: int

    def to_packet(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_packet(cls, packet: bytes) -> Ending:
        fields = json.loads(packet)
        return cls(**{**fields, "stopped_by": StoppedBy(fields["stopped_by"])})

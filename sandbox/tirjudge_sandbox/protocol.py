"""The messages between the pool and a slot: the pool sends a `ProgramJob`, the slot answers with an `Ending`, both as
JSON.

These messages do not contain the program's source, variables, files or output. This data is in memory files whose descriptors
are sent with the job: the source (see `request.Program.payload`), the standard output, the standard error, one for each of
`ProgramJob.channels`, the fetched files if `ProgramJob.fetch` is not empty (concatenated; the slot writes them after the
program has ended), and the mounts of the attachments. Only the program's own process reads or writes the files before those.
This module imports only the standard library, because the isolated interpreter imports it too.
"""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

PACKET_BYTES = 131_072
"""Receive buffer size, larger than any packet."""

HELLO = b"hello"
"""First message of a slot's new process. The kernel attaches the sender's pid."""

ENTER = b"enter"
"""Message to a slot after it was moved into its control group, before its first job. Processes that it forks from then
on are in the same group."""

CANCEL = b"cancel"
"""Message to a slot that runs a program: kill the program, then answer as usual."""

EXIT_MEMORY = 137
"""Exit code of a program that ended with an uncaught MemoryError."""

SCRATCH = "/tmp"
"""Working directory of programs, private at the levels with namespaces."""

ATTACHMENTS = "/attachments"
"""Directory with the attachments, at the levels with namespaces."""

ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR", "VECLIB_MAXIMUM")}
"""Environment variables that keep linear algebra libraries from starting threads. Threads do not survive a fork, and
for the small matrices of typical programs one thread is faster."""

MAX_DESCRIPTORS = 64
"""Maximum number of descriptors sent with one packet."""

REPORTS, CALLS, VALUE = "reports", "calls", "value"
"""Channels of a program: a packet socket on which `watching` reports, a stream socket for function calls, and a memory file
for the value that a candidate's function returns."""

PAUSE = b"pause"
"""Message to a slot that runs a program: a function call takes long, so the wall time stops."""

RESUME = b"resume "
"""Start of a message to a slot that runs a program: the calls have ended. The number of seconds follows that all calls of the
program have taken so far, which do not count as its wall time."""


class StoppedBy(StrEnum):
    """Reason why the slot killed a program."""

    NONE = ""
    """The slot did not kill the program."""
    CPU = "cpu"
    WALL = "wall"
    MEMORY = "memory"
    CANCEL = "cancel"


class Attachment(NamedTuple):
    """A file or directory of the host that a program may read."""

    name: str
    """Name under which the program finds it."""
    path: str
    """Absolute path on the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramJob:
    """Limits and files of one program."""

    cpu_s: float
    """CPU time limit in seconds."""
    wall_s: float
    """Wall time limit in seconds."""
    memory_bytes: int
    """Memory limit, in addition to the warm interpreter's memory."""
    output_bytes: int
    """Maximum number of bytes that are returned of the standard output."""
    file_bytes: int
    """Maximum size of a file."""
    scratch_bytes: int
    """Size of the private directory."""
    fetch: tuple[str, ...] = ()
    """Paths of the files to fetch after the program has ended, relative to the private directory."""
    fetch_bytes: int = 0
    """Maximum total size of the fetched files."""
    attachments: tuple[Attachment, ...] = ()
    """Files and directories of the host that the program may read."""
    channels: tuple[str, ...] = ()
    """Channels of the program, such as `REPORTS`. Their descriptors follow that of the standard error."""

    def to_packet(self) -> bytes:
        """Return the job as JSON."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__}).encode()

    @classmethod
    def from_packet(cls, packet: bytes) -> ProgramJob:
        """Convert the result of `to_packet` back."""
        fields = json.loads(packet)
        attachments = tuple(Attachment(*pair) for pair in fields.pop("attachments"))
        fetch, channels = tuple(fields["fetch"]), tuple(fields["channels"])
        return cls(**(fields | {"fetch": fetch, "attachments": attachments, "channels": channels}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the process of a program ended, as reported by the kernel to the slot."""

    failure: str = ""
    """Reason why the process could not be isolated, so that the program did not start. Empty if it started."""
    wait_status: int
    """Wait status, as returned by `os.wait4`."""
    stopped_by: StoppedBy
    """Reason why the slot killed the program, if it did."""
    cpu_s: float
    """CPU time used, in seconds."""
    wall_s: float
    """Wall time used, in seconds."""
    max_rss_kb: int
    """Maximum resident set size, KiB."""
    fetched: tuple[int, ...] = ()
    """Size of each file of `ProgramJob.fetch`. -1: missing, not a regular file, or too large."""

    @property
    def was_killed(self) -> bool:
        """Whether the program was ended by a SIGKILL that its slot did not send."""
        return self.stopped_by is StoppedBy.NONE and self.wait_status == signal.SIGKILL

    def to_packet(self) -> bytes:
        """Return the ending as JSON."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__}).encode()

    @classmethod
    def from_packet(cls, packet: bytes) -> Ending:
        """Convert the result of `to_packet` back."""
        fields = json.loads(packet)
        stopped_by = StoppedBy(fields["stopped_by"])
        return cls(**(fields | {"stopped_by": stopped_by, "fetched": tuple(fields["fetched"])}))


class Printed(NamedTuple):
    """The returned part of a program's output."""

    num_bytes: int
    """Size of the whole output."""
    head: bytes
    """The whole output. If it was cut: its beginning, three quarters of `ProgramJob.output_bytes`."""
    tail: bytes
    """If the output was cut: its end, a quarter of `ProgramJob.output_bytes`. Otherwise empty."""

    @property
    def is_cut(self) -> bool:
        """Whether part of the output is missing."""
        return self.num_bytes > len(self.head) + len(self.tail)


class ProgramReport(NamedTuple):
    """Everything that a slot reports about a program."""

    ending: Ending
    stdout: Printed
    stderr: Printed
    files: dict[str, bytes]
    """Path -> content of the files of `ProgramJob.fetch` that were found."""
    reports: tuple[str, ...] = ()
    """Reports of `watching`: how the program executed a candidate's text."""
    value: str | None = None
    """JSON of the value that a candidate's function returned. None: the job has no `VALUE`, or nothing was written."""

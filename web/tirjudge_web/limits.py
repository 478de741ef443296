"""Limits of connections: bytes and seconds of each, and how many are open at a time."""

from __future__ import annotations

import resource
from dataclasses import dataclass

from tirjudge.errors import TirjudgeError

MAX_CONNECTIONS = 2048
"""The default never exceeds it, however many files the process may open."""

MIN_RESERVED_FILES = 64
"""Descriptors that connections leave to the sandbox, the database and the engines; a quarter of all where that is more."""


class TooManyConnections(TirjudgeError, ValueError):
    """More connections were asked for than the process may have files open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    max_connections: int | None = None
    """Open at a time; None: as many as the limit of open files leaves room for, at most `MAX_CONNECTIONS`."""
    header_s: float = 20.0
    """For a TLS handshake, and from there, or from the first byte of a later request, until its header is whole."""
    header_bytes: int = 32 * 1024
    """Of a request line with its header fields and trailers; also of anything else that stands between bytes of a body."""
    header_fields: int = 100
    """Of a request, trailers included."""
    idle_s: float = 75.0
    """How long a connection stays open between two requests."""
    stall_s: float = 30.0
    """In each period of this length, a body that is sent, or an answer that is read, has to make progress."""
    min_bytes_per_s: int = 4096
    """How much progress that is, on average over `stall_s`."""

    @property
    def min_progress_bytes(self) -> int:
        return round(self.stall_s * self.min_bytes_per_s)


def connections_allowed(max_connections: int | None) -> int:
    """How many connections may be open at a time.

    Args:
        max_connections: as `ConnectionLimits.max_connections`.

    Raises:
        TooManyConnections: the process may not open that many files.
    """
    num_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if num_files == resource.RLIM_INFINITY:
        return max_connections or MAX_CONNECTIONS
    room = max(1, num_files - max(MIN_RESERVED_FILES, num_files // 4))
    if max_connections is not None and max_connections > room:
        num_needed = max(max_connections + MIN_RESERVED_FILES, -(-max_connections * 4 // 3))
        raise TooManyConnections(
            f"--max-connections: {max_connections} given, and {num_files} open files allow {room}; "
            f"`ulimit -n {num_needed}` first, or --max-connections {room}"
        )
    return max_connections or min(MAX_CONNECTIONS, room)

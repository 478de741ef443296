"""Limits of connections: their number, and the size and duration of each request."""

from __future__ import annotations

import resource
from dataclasses import dataclass

from tirjudge.errors import TirjudgeError

MAX_CONNECTIONS = 2048
"""Upper bound of the default maximum number of connections."""

MIN_RESERVED_FILES = 64
"""Minimum number of descriptors reserved for the sandbox, the database and the engines. If it is larger, a quarter of
all descriptors is reserved."""


class TooManyConnections(TirjudgeError, ValueError):
    """The requested maximum number of connections exceeds the limit of open files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits of a server's connections."""

    max_connections: int | None = None
    """Maximum number of open connections. None: derived from the limit of open files, at most `MAX_CONNECTIONS`."""
    header_s: float = 20.0
    """Maximum seconds for a TLS handshake, and for a complete header. The header's time starts after the
    handshake, or at the first byte of a later request."""
    header_bytes: int = 32 * 1024
    """Maximum size of the request line, header fields and trailers together, and of chunk metadata in a body."""
    header_fields: int = 100
    """Maximum number of header fields of a request, including trailers."""
    idle_s: float = 75.0
    """Maximum seconds between two requests of a connection."""
    stall_s: float = 30.0
    """Period in seconds over which the transfer rate of a request's body, or of a response, is measured."""
    min_bytes_per_s: int = 4096
    """Minimum transfer rate, averaged over `stall_s`."""

    @property
    def min_progress_bytes(self) -> int:
        """Minimum number of bytes transferred in `stall_s`."""
        return round(self.stall_s * self.min_bytes_per_s)


def connections_allowed(max_connections: int | None) -> int:
    """Return the maximum number of open connections.

    Args:
        max_connections: see `ConnectionLimits.max_connections`.

    Raises:
        TooManyConnections: the limit of open files is too low for this number.
    """
    num_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if num_files == resource.RLIM_INFINITY:
        return max_connections or MAX_CONNECTIONS
    room = max(1, num_files - max(MIN_RESERVED_FILES, num_files // 4))
    if max_connections is not None and max_connections > room:
        num_needed = max(max_connections + MIN_RESERVED_FILES, -(-max_connections * 4 // 3))
        raise TooManyConnections(
            f"--max-connections: {max_connections} given, but the limit of {num_files} open files allows only {room}; "
            f"run `ulimit -n {num_needed}` first, or give --max-connections {room}"
        )
    return max_connections or min(MAX_CONNECTIONS, room)

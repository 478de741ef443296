"""What one program may use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Applied to each program from the moment it starts; waiting for a slot costs it nothing."""

    cpu_s: float = 3.0
    """Processor time of all its threads. The limit that counts: it is fair on a busy machine."""
    wall_s: float = 9.0
    """Time on the clock, a backstop for programs that sleep."""
    memory_mb: int = 512
    """Address space on top of what the bare interpreter takes, MiB."""
    output_bytes: int = 65_536
    """Output handed back: the first three quarters and the last quarter of what was printed."""
    file_mb: int = 4
    """The largest file, MiB. Printing more than this is the outcome `output_limit`."""
    scratch_mb: int = 16
    """Size of the private /tmp, MiB (namespaces level; the landlock level has no writable directory)."""
    error_chars: int = 500
    """Length of the error line handed back."""
    source_bytes: int = 262_144
    """A longer program is refused unseen."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}: {getattr(self, name)} given, a limit is greater than 0")

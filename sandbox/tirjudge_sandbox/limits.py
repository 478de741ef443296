"""Resource limits of one program."""

from __future__ import annotations

from dataclasses import dataclass, replace

STDERR_BYTES = 16_384
"""Maximum length in bytes of the standard error that is returned."""

MOST = 1e9
"""Largest value of any limit. The kernel accepts it in every unit used here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one program, which apply from its start. Time in the queue does not count."""

    cpu_s: float = 3.0
    """CPU seconds of all threads and processes of the program. The main time limit: it is fair on a busy
    machine."""
    wall_s: float = 9.0
    """Wall time in seconds. A backstop for programs that sleep."""
    memory_mb: int = 512
    """Memory in MiB, in addition to the warm interpreter's. Limits the address space of each process. With a control
    group, also limits the total of all processes and of their files in /tmp."""
    output_bytes: int = 65_536
    """Maximum size of the returned output. Longer output is cut to its first three quarters and its last quarter of
    this."""
    file_mb: int = 4
    """Maximum size of a file in MiB. Printing more than this gives the outcome `output_limit`."""
    scratch_mb: int = 16
    """Size of the private /tmp in MiB. Only levels with namespaces have one."""
    fetch_bytes: int = 8_388_608
    """Maximum total size of the fetched files. A file that exceeds the rest counts as missing."""
    error_chars: int = 500
    """Maximum length of the returned error line."""
    source_bytes: int = 262_144
    """Maximum size of the program. A longer one is refused."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not 0 < value <= MOST:
                shown = (
                    value
                    if isinstance(value, float) or abs(value) <= MOST
                    else f"an integer of {value.bit_length()} bits"
                )
                raise ValueError(f"{name}: expected a number greater than 0 and at most {MOST:g}, got {shown}")

    def times(self, factor: int) -> Limits:
        """Return these limits, each multiplied by a factor."""
        return replace(self, **{name: factor * getattr(self, name) for name in self.__slots__})

    def check_within(self, largest: Limits) -> None:
        """Check that no limit exceeds the same field of `largest`. Raises ValueError, naming the field."""
        for name in self.__slots__:
            given, most = getattr(self, name), getattr(largest, name)
            if given > most:
                raise ValueError(f"limits: {name}: expected at most {most}, got {given}")

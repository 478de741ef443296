"""What one program may use."""

from __future__ import annotations

from dataclasses import dataclass, replace

STDERR_BYTES = 16_384
"""Most that is handed back of a program's standard error."""

MOST = 1e9
"""The largest value of any limit: the kernel takes it in every unit that is used here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Applied to each program from the moment it starts; waiting for a slot costs it nothing."""

    cpu_s: float = 3.0
    """Processor time of all its threads and processes. The limit that counts: it is fair on a busy machine."""
    wall_s: float = 9.0
    """Time on the clock, a backstop for programs that sleep."""
    memory_mb: int = 512
    """Memory on top of what the warm interpreter takes, MiB: address space of each process, and, in a control group, of
    all together with their files in /tmp."""
    output_bytes: int = 65_536
    """Output handed back: the first three quarters and the last quarter of what was printed."""
    file_mb: int = 4
    """The largest file, MiB. Printing more than this is the outcome `output_limit`."""
    scratch_mb: int = 16
    """Size of the private /tmp, MiB (namespaces levels; the landlock level has no writable directory)."""
    fetch_bytes: int = 8_388_608
    """Files handed back, all together; one that does not fit any more counts as not there."""
    error_chars: int = 500
    """Length of the error line handed back."""
    source_bytes: int = 262_144
    """A longer program is refused unseen."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not 0 < value <= MOST:
                shown = (
                    value
                    if isinstance(value, float) or abs(value) <= MOST
                    else f"an integer of {value.bit_length()} bits"
                )
                raise ValueError(f"{name}: {shown} given, a limit is a number greater than 0 and at most {MOST:g}")

    def times(self, factor: int) -> Limits:
        """All of them that many times as large."""
        return replace(self, **{name: factor * getattr(self, name) for name in self.__slots__})

    def check_within(self, largest: Limits) -> None:
        """Raises ValueError, naming the field, if any of these is larger than there."""
        for name in self.__slots__:
            given, most = getattr(self, name), getattr(largest, name)
            if given > most:
                raise ValueError(f"limits: {name} {given} given, at most {most} is allowed here")

"""How far a program is kept from the machine."""

from __future__ import annotations

from enum import StrEnum


class Level(StrEnum):
    """The kinds of isolation, strongest first. A pool runs at one of them and never quietly at a lower one."""

    NAMESPACES = "namespaces"
    """Own user, pid, mount, net, ipc and uts namespaces, a read-only root with Python alone, a private /tmp; and all of
    what `LANDLOCK` does."""
    LANDLOCK = "landlock"
    """Needs no privilege: Landlock over the file system, a system call filter, no capabilities, no new processes. There
    is no writable directory, and that a path exists (not what it holds) can be seen."""
    UNSAFE = "unsafe"
    """Resource limits alone: a program can do whatever the user who runs it can."""

    @property
    def isolates(self) -> bool:
        return self is not Level.UNSAFE

    def at_least(self, other: Level) -> bool:
        """Whether this level is as strong as `other`."""
        order = list(Level)
        return order.index(self) <= order.index(other)

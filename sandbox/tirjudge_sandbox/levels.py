"""How far a program is kept from the machine."""

from __future__ import annotations

from enum import StrEnum


class IsolationLevel(StrEnum):
    """The kinds of isolation, strongest first. A pool runs at one of them and never quietly at a lower one."""

    GVISOR = "gvisor"
    """A container whose system calls a second kernel, gVisor, answers: one that the pool starts, which needs an image, or
    the one that the pool itself runs in, as root. In it, programs see Python alone, and those of different slots are
    different users; the system call filter is there too."""
    NAMESPACES_CGROUP = "namespaces+cgroup"
    """All of `NAMESPACES`, and a control group around each slot: memory, processor time and number of processes are
    limited in sum, so a program may create processes (of Python; it cannot execute files)."""
    NAMESPACES = "namespaces"
    """Own user, pid, mount, net, ipc and uts namespaces, a read-only root with Python alone, a private /tmp; and all of
    what `LANDLOCK` does."""
    LANDLOCK = "landlock"
    """Needs no privilege: Landlock over the file system, a system call filter, no capabilities, no new processes. There
    is no writable directory, and that a path exists (not what it holds) can be seen."""
    DOCKER = "docker"
    """`LANDLOCK` in a container that shares the host's kernel. Needs an image."""
    UNSAFE = "unsafe"
    """The system call filter and resource limits alone. A program can read what the user who runs it can, but it writes no
    file, starts no process, and reaches no network and no process of others."""

    @property
    def isolates(self) -> bool:
        return self is not IsolationLevel.UNSAFE

    @property
    def needs_image(self) -> bool:
        """`GVISOR` does not where the pool runs in gVisor already."""
        return self in (IsolationLevel.GVISOR, IsolationLevel.DOCKER)

    @property
    def needs_landlock(self) -> bool:
        """Whether Landlock alone keeps programs from the files around them."""
        return self in (IsolationLevel.LANDLOCK, IsolationLevel.DOCKER)

    @property
    def has_namespaces(self) -> bool:
        """Whether programs have a root, a /tmp and process ids of their own."""
        return self in (IsolationLevel.NAMESPACES_CGROUP, IsolationLevel.NAMESPACES)

    @property
    def has_cgroup(self) -> bool:
        return self is IsolationLevel.NAMESPACES_CGROUP

    def at_least(self, other: IsolationLevel) -> bool:
        """Whether this level is as strong as `other`. `DOCKER` comes after `LANDLOCK` because it needs more, not because
        it holds less: all of that is in it."""
        order = list(IsolationLevel)
        strength = IsolationLevel.LANDLOCK if self is IsolationLevel.DOCKER else self
        return order.index(strength) <= order.index(other)

"""The isolation levels of the sandbox."""

from __future__ import annotations

from enum import StrEnum


class IsolationLevel(StrEnum):
    """Isolation levels, strongest first. A pool runs at one of them and never silently falls back to a weaker one."""

    GVISOR = "gvisor"
    """A container whose system calls are handled by a second kernel, gVisor. Either the pool starts the container,
    which needs an image, or the pool itself runs in one, as root. Programs see only Python, each slot has a separate
    user, and the seccomp filter applies too."""
    NAMESPACES_CGROUP = "namespaces+cgroup"
    """`NAMESPACES` plus a control group per slot, which limits total memory, CPU time and number of processes. Programs
    may therefore fork (with multiprocessing, for example), but they cannot execute files."""
    NAMESPACES = "namespaces"
    """`LANDLOCK` plus separate user, pid, mount, net, ipc and uts namespaces, a read-only root with only Python, and a
    private /tmp."""
    LANDLOCK = "landlock"
    """A level that needs no privileges: Landlock for the file system, a seccomp filter, no capabilities, no new
    processes. Programs have no writable directory. They can see whether a path exists, but not its contents."""
    DOCKER = "docker"
    """`LANDLOCK` in a container that shares the host's kernel. Needs an image."""
    UNSAFE = "unsafe"
    """Only the seccomp filter and resource limits. A program can read the files of the user who runs the pool. It
    cannot write files, start processes, use the network, or access other processes."""

    @property
    def isolates(self) -> bool:
        """Whether the level keeps programs from reading the host's files."""
        return self is not IsolationLevel.UNSAFE

    @property
    def needs_image(self) -> bool:
        """Whether the level needs an image. Exception: `GVISOR` does not if the pool itself runs in gVisor."""
        return self in (IsolationLevel.GVISOR, IsolationLevel.DOCKER)

    @property
    def needs_landlock(self) -> bool:
        """Whether Landlock is the only protection of the file system."""
        return self in (IsolationLevel.LANDLOCK, IsolationLevel.DOCKER)

    @property
    def has_namespaces(self) -> bool:
        """Whether programs have a private root, /tmp and pid namespace."""
        return self in (IsolationLevel.NAMESPACES_CGROUP, IsolationLevel.NAMESPACES)

    @property
    def has_cgroup(self) -> bool:
        """Whether each slot has a control group."""
        return self is IsolationLevel.NAMESPACES_CGROUP

    def at_least(self, other: IsolationLevel) -> bool:
        """Whether this level is at least as strong as `other`. `DOCKER` includes `LANDLOCK`, so both count as equally
        strong. `DOCKER` comes later in the order only because it needs an image."""
        order = list(IsolationLevel)
        strength = IsolationLevel.LANDLOCK if self is IsolationLevel.DOCKER else self
        return order.index(strength) <= order.index(other)

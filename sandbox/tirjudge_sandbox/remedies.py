"""What to do where a wall cannot be put up."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tirjudge.errors import SandboxUnavailable
from tirjudge_sandbox.fork_server import base_python
from tirjudge_sandbox.levels import IsolationLevel

_NAMESPACES = frozenset(
    {"user namespace", "mount namespace", "pid namespace", "network namespace", "root file system", "private /tmp"}
)
"""Walls that an ordinary user's Python has if it may have a user namespace, and capabilities in it."""

_REMEDIES = {
    "cgroup": (
        "To limit memory and processes in sum: run as root where the control groups are writable (in Docker they are not), "
        "or, as an ordinary user, under `systemd-run --user --scope -p Delegate=yes`."
    ),
    "landlock": (
        "Landlock needs Linux 5.13 or later with `landlock` in the kernel's `lsm=` list, and a container runtime whose "
        "system call filter lets it through (Docker since 2022)."
    ),
    "docker": (
        "Levels that are containers need `pip install 'tirjudge[docker]'`, and a Docker daemon that answers where "
        "DOCKER_HOST says, or at /var/run/docker.sock."
    ),
    "runtime": (
        "gVisor has to be installed, and known to Docker as the runtime `runsc`: `runsc install`, then restart the daemon. "
        "In a virtual machine its platform should be systrap (or ptrace in old versions), not kvm."
    ),
    "image": (
        "Levels that are containers need an image to be named that the daemon has, with Python 3.11 or later and no volumes: "
        "`docker build -t tirjudge-sandbox sandbox/image`, then `image='tirjudge-sandbox'`, or `--image` on the command line."
    ),
    "thread listener": (
        "Bounding threads without privileges needs Linux 5.5, and no other seccomp listener around this process (LXD has "
        "one); until then programs get no threads, unless the service runs as root."
    ),
    "memory priority": "The kernel may end the service instead of a program when memory runs out: mount /proc writable.",
    "gvisor": (
        "In a container of gVisor, programs can be isolated by its root user: `--user 0:0 --cap-drop ALL --cap-add SYS_ADMIN "
        "--cap-add SYS_CHROOT --cap-add SETUID --cap-add SETGID --cap-add KILL` (Docker), or the same in the pod's "
        "securityContext. These are rights over gVisor's kernel, not over the host."
    ),
    "seccomp": "The filter needs a kernel with CONFIG_SECCOMP_FILTER, and a container runtime that allows seccomp(2).",
}

_CONTAINERS = ("docker-", "nerdctl-", "containers-default", "cri-", "crio-")
"""What the AppArmor profiles of containers begin with."""
_IN_CONTAINER = (
    "To allow namespaces in this container: `--security-opt seccomp=unconfined --security-opt apparmor=unconfined` (Docker, "
    "Podman), or in the pod's securityContext `seccompProfile: {type: Unconfined}` and `appArmorProfile: {type: Unconfined}`."
)
_APPARMOR_PROFILE = (
    r"abi <abi/4.0>,\ninclude <tunables/global>\nprofile tirjudge %s flags=(unconfined) {\n  userns,\n}\n"
)
"""For printf. The path is that of the file itself: AppArmor does not know the links that lead to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelFailure:
    """Why a level does not work here, and what would change that."""

    level: IsolationLevel
    problem: str
    remedy: str


class NoLevelWorks(SandboxUnavailable):
    """No isolation that is allowed works on this machine."""

    def __init__(self, failures: Sequence[LevelFailure]) -> None:
        lines = [f"{failure.level}: {failure.problem}. {failure.remedy}" for failure in failures]
        super().__init__("\n".join(["no isolation that is allowed works here:", *lines]))
        self.failures = tuple(failures)
        """In the order in which the levels were tried."""


def remedy(step: str, *, reason: str) -> str:
    """A sentence or two for whoever runs the machine.

    Args:
        step: the wall, as `JailError.step` names it.
        reason: what was said when it failed; searched for the name of a step if `step` itself is not one.
    """
    known = next((name for name in (*_NAMESPACES, *_REMEDIES) if name == step or name in reason), None)
    if known is None:
        return "`tirjudge sandbox doctor` shows what works here."
    return remedy_for_namespaces(kernel=Path("/proc")) if known in _NAMESPACES else _REMEDIES[known]


def remedy_for_namespaces(*, kernel: Path) -> str:
    """Names the switch that this kernel has set against us, and what sets it back."""
    if _read(kernel / "sys/user/max_user_namespaces") == "0":
        return "User namespaces are switched off. As root: `sysctl -w user.max_user_namespaces=10000`."
    if _read(kernel / "sys/kernel/unprivileged_userns_clone") == "0":
        return "User namespaces are for root alone. Run as root, or, as root: `sysctl -w kernel.unprivileged_userns_clone=1`."
    label = _read(kernel / "self/attr/apparmor/current") or _read(kernel / "self/attr/current")
    if label.startswith(_CONTAINERS):
        return _IN_CONTAINER
    if _read(kernel / "sys/kernel/apparmor_restrict_unprivileged_userns") == "1" or label.endswith(
        ("(enforce)", "(kill)")
    ):
        profile = _APPARMOR_PROFILE % os.path.realpath(base_python())
        return (
            "AppArmor lets no ordinary user's Python have namespaces. Run as root, or allow this one, as root: "
            f"`printf '{profile}' > /etc/apparmor.d/tirjudge && apparmor_parser -r /etc/apparmor.d/tirjudge`."
        )
    return "To allow namespaces: run as root with CAP_SYS_ADMIN; in Docker `--security-opt seccomp=unconfined`."


def _read(file: Path) -> str:
    """Empty where this kernel has no such file, or does not let us read it."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""

"""Advice for failed isolation steps."""

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
"""Steps that work for an ordinary user who may create a user namespace with capabilities in it."""

_REMEDIES = {
    "cgroup": (
        "To limit total memory and processes: run as root where the control groups are writable (in Docker they are "
        "not), or as an ordinary user under `systemd-run --user --scope -p Delegate=yes`."
    ),
    "landlock": (
        "Landlock needs Linux 5.13 or later with `landlock` in the kernel's `lsm=` list, and a container runtime whose "
        "seccomp filter allows it (Docker since 2022)."
    ),
    "docker": (
        "Container levels need `pip install 'tirjudge[docker]'`, and a Docker daemon that is reachable at DOCKER_HOST "
        "or at /var/run/docker.sock."
    ),
    "runtime": (
        "Install gVisor and register it with Docker as the runtime `runsc`: `runsc install`, then restart the daemon. "
        "In a virtual machine, use the platform systrap (or ptrace in old versions), not kvm."
    ),
    "image": (
        "Container levels need an image that the daemon has, with Python 3.11 or later and no volumes: "
        "`docker build -t tirjudge-sandbox sandbox/image`, then `image='tirjudge-sandbox'`, or `--image` on the command "
        "line."
    ),
    "thread listener": (
        "Limiting threads without privileges needs Linux 5.5, and no other seccomp listener around this process (LXD "
        "has one). Without it, programs cannot start threads, unless the service runs as root."
    ),
    "memory priority": (
        "The kernel may kill the service instead of a program when memory runs out: mount /proc writable."
    ),
    "gvisor": (
        "In a container of gVisor, root can isolate programs: `--user 0:0 --cap-drop ALL --cap-add SYS_ADMIN "
        "--cap-add SYS_CHROOT --cap-add SETUID --cap-add SETGID --cap-add KILL` (Docker), or the same in the pod's "
        "securityContext. These capabilities apply to gVisor's kernel, not to the host."
    ),
    "seccomp": "The filter needs a kernel with CONFIG_SECCOMP_FILTER, and a container runtime that allows seccomp(2).",
}

_CONTAINERS = ("docker-", "nerdctl-", "containers-default", "cri-", "crio-")
"""Prefixes of the AppArmor profiles of containers."""
_IN_CONTAINER = (
    "To allow namespaces in this container: `--security-opt seccomp=unconfined --security-opt apparmor=unconfined` (Docker, "
    "Podman), or in the pod's securityContext `seccompProfile: {type: Unconfined}` and `appArmorProfile: {type: Unconfined}`."
)
_APPARMOR_PROFILE = (
    r"abi <abi/4.0>,\ninclude <tunables/global>\nprofile tirjudge %s flags=(unconfined) {\n  userns,\n}\n"
)
"""Argument of printf. `%s` is the path of the interpreter with links resolved, because AppArmor does not match
links."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelFailure:
    """Reason why a level does not work on this machine, and advice."""

    level: IsolationLevel
    """The level that failed."""
    problem: str
    """Why the level failed."""
    remedy: str
    """Advice for the operator."""


class NoLevelWorks(SandboxUnavailable):
    """No allowed isolation level works on this machine."""

    def __init__(self, failures: Sequence[LevelFailure]) -> None:
        lines = [f"{failure.level}: {failure.problem}. {failure.remedy}" for failure in failures]
        super().__init__("\n".join(["no allowed isolation level works on this machine:", *lines]))
        self.failures = tuple(failures)
        """The failed levels, in the order in which they were tried."""


def remedy(step: str, *, reason: str) -> str:
    """Return advice for the operator of the machine, in one or two sentences.

    Args:
        step: the step that failed, as in `JailError.step`.
        reason: the error message. It is searched for the name of a known step if `step` is not one.
    """
    known = next((name for name in (*_NAMESPACES, *_REMEDIES) if name == step or name in reason), None)
    if known is None:
        return "`tirjudge sandbox doctor` shows what works here."
    return remedy_for_namespaces(kernel=Path("/proc")) if known in _NAMESPACES else _REMEDIES[known]


def remedy_for_namespaces(*, kernel: Path) -> str:
    """Return the kernel setting that blocks user namespaces, and the command that changes it.

    Args:
        kernel: the directory /proc.
    """
    if _read(kernel / "sys/user/max_user_namespaces") == "0":
        return "User namespaces are disabled. As root: `sysctl -w user.max_user_namespaces=10000`."
    if _read(kernel / "sys/kernel/unprivileged_userns_clone") == "0":
        return (
            "Only root may create user namespaces. Run as root, or, as root: "
            "`sysctl -w kernel.unprivileged_userns_clone=1`."
        )
    label = _read(kernel / "self/attr/apparmor/current") or _read(kernel / "self/attr/current")
    if label.startswith(_CONTAINERS):
        return _IN_CONTAINER
    if _read(kernel / "sys/kernel/apparmor_restrict_unprivileged_userns") == "1" or label.endswith(
        ("(enforce)", "(kill)")
    ):
        profile = _APPARMOR_PROFILE % os.path.realpath(base_python())
        return (
            "AppArmor forbids namespaces for ordinary users. Run as root, or allow them for this Python, as root: "
            f"`printf '{profile}' > /etc/apparmor.d/tirjudge && apparmor_parser -r /etc/apparmor.d/tirjudge`."
        )
    return "To allow namespaces: run as root with CAP_SYS_ADMIN; in Docker `--security-opt seccomp=unconfined`."


def _read(file: Path) -> str:
    """Return the content of a file. Empty if the file does not exist or cannot be read."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""

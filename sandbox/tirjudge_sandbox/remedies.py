"""What to do where a wall cannot be put up."""

from __future__ import annotations

_USER_NAMESPACES = (
    "To allow namespaces: run as root with CAP_SYS_ADMIN; or `sysctl -w user.max_user_namespaces=10000` and, on Debian or "
    "Ubuntu, `sysctl -w kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0` (or an AppArmor "
    "profile for this Python with `userns,`); in Docker `--security-opt seccomp=unconfined`."
)
_REMEDIES = {
    "user namespace": _USER_NAMESPACES,
    "mount namespace": _USER_NAMESPACES,
    "pid namespace": _USER_NAMESPACES,
    "root file system": _USER_NAMESPACES,
    "private /tmp": _USER_NAMESPACES,
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
    "seccomp": "The filter needs a kernel with CONFIG_SECCOMP_FILTER, and a container runtime that allows seccomp(2).",
}

_OTHERWISE = "`tirjudge sandbox doctor` shows what works here."


def remedy(step: str, *, reason: str) -> str:
    """A sentence or two for whoever runs the machine.

    Args:
        step: the wall, as `JailError.step` names it.
        reason: what was said when it failed; searched for the name of a step if `step` itself is not one.
    """
    known = next((name for name in _REMEDIES if name == step or name in reason), None)
    return _REMEDIES[known] if known else _OTHERWISE


def remedy_in(message: str) -> str:
    """The remedy that a message ends with; empty if it ends with none."""
    return next((text for text in (*_REMEDIES.values(), _OTHERWISE) if message.endswith(text)), "")

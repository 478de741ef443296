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
    "landlock": (
        "Landlock needs Linux 5.13 or later with `landlock` in the kernel's `lsm=` list, and a container runtime whose "
        "system call filter lets it through (Docker since 2022)."
    ),
    "seccomp": "The filter needs a kernel with CONFIG_SECCOMP_FILTER, and a container runtime that allows seccomp(2).",
}


def remedy(step: str, *, reason: str) -> str:
    """A sentence or two for whoever runs the machine.

    Args:
        step: the wall, as `JailError.step` names it.
        reason: what was said when it failed; searched for the name of a step if `step` itself is not one.
    """
    known = next((name for name in _REMEDIES if name == step or name in reason), None)
    return _REMEDIES[known] if known else "`tirjudge sandbox doctor` shows what works here."

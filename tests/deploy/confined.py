"""Run a command behind a seccomp profile, as a container runtime does: `python confined.py PROFILE COMMAND...`

libseccomp compiles the profile, and the kernel enforces it.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import sys
from typing import Any

_ALLOW, _REFUSE = 0x7FFF_0000, 0x0005_0000
_COMPARE = {"SCMP_CMP_EQ": 4, "SCMP_CMP_MASKED_EQ": 7}


class Comparison(ctypes.Structure):
    """`struct scmp_arg_cmp` of libseccomp."""

    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


def confine(profile: dict[str, Any]) -> None:
    """Load a profile into this process. It cannot be removed.

    Raises:
        OSError: libseccomp or the kernel rejects the profile.
    """
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(_action(profile)))
    for rule in profile["syscalls"]:
        comparisons = [
            Comparison(check["index"], _COMPARE[check["op"]], check["value"], check.get("valueTwo", 0))
            for check in rule.get("args", ())
        ]
        array = (Comparison * len(comparisons))(*comparisons)
        for name in rule["names"]:
            number = library.seccomp_syscall_resolve_name(name.encode())
            if number == -1:
                continue  # libseccomp does not have this call; container runtimes skip it, too
            _check(
                library.seccomp_rule_add_array(context, ctypes.c_uint32(_action(rule)), number, len(comparisons), array)
            )
    _check(library.seccomp_load(context))


def _action(rule: dict[str, Any]) -> int:
    kind = rule.get("action") or rule["defaultAction"]
    return _ALLOW if kind == "SCMP_ACT_ALLOW" else _REFUSE | rule.get("errnoRet", errno.EPERM)


def _check(result: int) -> None:
    if result < 0:
        raise OSError(-result, os.strerror(-result))


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        wanted = json.load(file)
    confine(wanted)
    os.execvp(sys.argv[2], sys.argv[2:])

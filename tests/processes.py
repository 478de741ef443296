"""Which processes there are, as seen from outside."""

from __future__ import annotations

import psutil


def family(pid: int) -> dict[int, int]:
    """pid -> its parent's, of all processes below one; zombies too. None if it has ended."""
    found: dict[int, int] = {}
    try:
        for process in psutil.Process(pid).children(recursive=True):
            found[process.pid] = process.ppid()
    except psutil.NoSuchProcess:
        return family(pid) if psutil.pid_exists(pid) else {}
    return found


def descendants(pid: int, *, containing: str = "") -> set[int]:
    """The processes below one, with that in their command lines."""
    return {below for below in family(pid) if containing in command_of(below)}


def is_alive(pid: int) -> bool:
    """A zombie is not: whoever adopts what was left need not be quick."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def command_of(pid: int) -> str:
    """Its command line; empty once it has ended."""
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return ""

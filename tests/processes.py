"""Inspect processes from outside."""

from __future__ import annotations

import psutil


def family(pid: int) -> dict[int, int]:
    """Return pid -> parent's pid of all descendants of a process, including zombies. Empty if the process has ended."""
    found: dict[int, int] = {}
    try:
        for process in psutil.Process(pid).children(recursive=True):
            found[process.pid] = process.ppid()
    except psutil.NoSuchProcess:  # the process, or one of its descendants, ended meanwhile
        return family(pid) if psutil.pid_exists(pid) else {}
    return found


def descendants(pid: int, *, containing: str = "") -> set[int]:
    """Return the descendants of a process whose command line contains a text."""
    return {below for below in family(pid) if containing in command_of(below)}


def is_alive(pid: int) -> bool:
    """Whether a process runs. A zombie does not: its new parent may take time to reap it."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def command_of(pid: int) -> str:
    """Return the command line of a process. Empty if the process has ended."""
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return ""

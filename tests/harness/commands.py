"""Run `tirjudge` commands for tests: in this process, which is fast, or as a process that can be killed."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from unittest.mock import patch

from tirjudge.cli import main

MAIN = [sys.executable, "-c", "from tirjudge.cli import main; main()"]
"""Start of the command line of a process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """The result of a command."""

    status: int
    """Exit status."""
    stdout: str
    stderr: str


def run_command(arguments: Sequence[str]) -> CommandResult:
    """Run `tirjudge` with these arguments in this process. Do not call this inside an event loop."""
    stdout, stderr = io.StringIO(), io.StringIO()
    status = 0
    with patch.object(sys, "argv", ["tirjudge", *arguments]), redirect_stdout(stdout), redirect_stderr(stderr):
        try:
            main()
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return CommandResult(status=status, stdout=stdout.getvalue(), stderr=stderr.getvalue())


def start_command(arguments: Sequence[str]) -> subprocess.Popen[str]:
    """Start `tirjudge` with these arguments as a process. The process handles SIGINT even if the caller ignores it."""
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    command = [sys.executable, "-c", code + MAIN[2], *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def wait_until(condition: Callable[[], object], *, process: subprocess.Popen[str], timeout_s: float = 120.0) -> None:
    """Poll until the condition holds. Fail if the process ends first, or if `timeout_s` seconds pass."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert process.poll() is None, process.stderr.read() if process.stderr else "the process ended"
        assert time.monotonic() < deadline, "timeout"
        time.sleep(0.005)

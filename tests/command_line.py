"""Run `tirjudge` commands in the process of the test, without the start of another interpreter."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from unittest.mock import patch

from tirjudge.cli import main


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """The end of a command. The fields have the names of `subprocess.CompletedProcess`."""

    returncode: int
    stdout: str
    stderr: str


def run_command(*arguments: object) -> CommandResult:
    """Run `tirjudge ARGUMENTS`. Call it from a test that is not async, because commands start an event loop."""
    stdout, stderr, returncode = io.StringIO(), io.StringIO(), 0
    argv = ["tirjudge", *map(str, arguments)]
    with patch.object(sys, "argv", argv), redirect_stdout(stdout), redirect_stderr(stderr):
        try:
            main()
        except SystemExit as exit:
            returncode = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    return CommandResult(returncode=returncode, stdout=stdout.getvalue(), stderr=stderr.getvalue())

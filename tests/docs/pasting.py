"""Run the code blocks of documentation pages as a reader pastes them: all blocks of a page, in one shell.

Only addresses are changed, because tests use no fixed ports.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

LIMIT_S = 300.0
"""Maximum seconds of the blocks of one page, and of the end of the servers that they started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastedResult:
    """What a shell printed, and its exit status."""

    returncode: int
    stdout: str
    stderr: str


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a language in a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def paste(script: str, *, folder: Path, replaced: Mapping[str, str]) -> PastedResult:
    """Run a script in a shell that ends at the first failure, and stop the servers that it started.

    Args:
        script: the code.
        folder: working folder.
        replaced: text of the script, such as an address -> text to use.
    """
    for given, used in replaced.items():
        script = script.replace(given, used)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "XDG_STATE_HOME": str(folder / "state"),
    }
    out, err = folder / "stdout.txt", folder / "stderr.txt"
    with out.open("w") as stdout, err.open("w") as stderr:
        shell = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=folder,
            env=environment,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            returncode = shell.wait(LIMIT_S)
        finally:
            _end_group(shell.pid)
    return PastedResult(returncode=returncode, stdout=out.read_text(), stderr=err.read_text())


def _end_group(group: int) -> None:
    """End all processes of a group, and wait until they have ended."""
    ends_at = time.monotonic() + LIMIT_S
    try:
        os.killpg(group, signal.SIGTERM)
        while time.monotonic() < ends_at:
            os.killpg(group, 0)
            time.sleep(0.1)
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass

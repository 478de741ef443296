"""Where a measurement's result goes, and what it begins with: command, commit and machine."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

Out = Annotated[Path | None, typer.Option(help="File for the result; default: printed only.")]

TIRJUDGE = (sys.executable, "-c", "from tirjudge.cli import main; main()")
"""The command line of this environment."""


def report_head() -> dict[str, Any]:
    """How the result was made."""
    script = Path(sys.argv[0])
    as_module = f"-m benchmarks.{script.stem}" if sys.modules["__main__"].__spec__ else f"benchmarks/{script.name}"
    commit = ""
    with contextlib.suppress(FileNotFoundError):  # no git, as in a container
        command = ["git", "-c", "safe.directory=*", "rev-parse", "HEAD"]
        commit = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent).stdout.strip()
    return {
        "command": " ".join(["python", as_module, *sys.argv[1:]]),
        "commit": commit or None,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "num_cores": len(os.sched_getaffinity(0)),
        "load_average": round(os.getloadavg()[0], 2),
    }


def report(result: Mapping[str, Any], out: Path | None) -> None:
    """Print a result with its head as JSON, and write it."""
    text = json.dumps(report_head() | dict(result), indent=1)
    print(text)
    if out is not None:
        out.write_text(text + "\n", encoding="utf-8")


def tirjudge(*arguments: str) -> str:
    """What a command of `tirjudge` prints.

    Raises:
        CalledProcessError: it failed.
    """
    return subprocess.run([*TIRJUDGE, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout

"""The report of a measurement: the command, commit and machine that made it, then its result, as JSON."""

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

Out = Annotated[Path | None, typer.Option(help="File for the result. Default: print only.")]
JsonOut = Annotated[Path | None, typer.Option("--json", help="File for the result. Default: print only.")]

TIRJUDGE = (sys.executable, "-c", "from tirjudge.cli import main; main()")
"""The `tirjudge` command of this Python environment."""

MAX_PRINTED = 6_000
"""Characters of a report that are printed. The file always holds the whole report."""


def report_head() -> dict[str, Any]:
    """Return the command, the commit and the machine of this run."""
    script = Path(sys.argv[0])
    as_module = f"-m benchmarks.{script.stem}" if sys.modules["__main__"].__spec__ else f"benchmarks/{script.name}"
    commit = ""
    with contextlib.suppress(FileNotFoundError):  # git is not installed, as in a container
        command = ["git", "-c", "safe.directory=*", "rev-parse", "HEAD"]
        commit = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent).stdout.strip()
    return {
        "command": " ".join(["python", as_module, *sys.argv[1:]]),
        "commit": commit or None,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "kernel": os.uname().release,
        "uid": os.geteuid(),
        "num_cores": len(os.sched_getaffinity(0)),
        "load_average": round(os.getloadavg()[0], 2),
    }


def report(result: Mapping[str, Any], out: Path | None, *, failed: bool = False) -> None:
    """Print a result with its head, and write it to a file.

    Args:
        result: the measurement.
        out: the file. None: print only.
        failed: whether the script exits with status 1.

    Raises:
        Exit: `failed` is true.
    """
    text = json.dumps(report_head() | dict(result), indent=1)
    print(text[:MAX_PRINTED])
    if out is not None:
        out.write_text(text + "\n", encoding="utf-8")
    if failed:
        raise typer.Exit(1)


def tirjudge(*arguments: str) -> str:
    """Run a `tirjudge` command and return its standard output.

    Raises:
        CalledProcessError: the command failed.
    """
    return subprocess.run([*TIRJUDGE, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout

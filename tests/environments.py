"""Separate Python environments with packages whose dependencies conflict with those of the tests.

An environment is created once and kept. Test processes share it under a lock.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

OPTIONS = ("--quiet", "--disable-pip-version-check", "--retries", "1", "--timeout", "20", "--no-compile")
"""Options of pip. Compiling all modules takes longer than installing them, and the tests import few of them."""


class NoEnvironment(Exception):
    """The environment cannot be created. The message says why."""


def environment_in(
    target: Path, *installs: Sequence[str], wanted: str | None = None, beside_tests: bool = False
) -> Path:
    """Return the interpreter of an environment, and create the environment unless the folder has it.

    Args:
        target: folder of the environment.
        installs: arguments of one `pip install` each.
        wanted: text that says what the environment contains; if it differs from that of the environment in the folder, a new
            one is created. None: the arguments.
        beside_tests: whether the environment also finds the packages of the tests. It finds its own first.

    Raises:
        NoEnvironment: pip failed.
    """
    python, done = target / "bin" / "python", target / "requirements.done"
    wanted = wanted or "\n".join(" ".join(arguments) for arguments in installs)
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.with_name(f"{target.name}.lock")):
        if done.exists() and done.read_text() == wanted:
            return python
        subprocess.run([sys.executable, "-m", "virtualenv", "--quiet", "--clear", str(target)], check=True)
        for arguments in installs:
            pip(python, "install", *arguments)
        if beside_tests:
            (packages,) = target.glob("lib/python*/site-packages")
            # Sorted after the packages of the environment. addsitedir also reads .pth files, which editable installs use.
            of_tests = sysconfig.get_path("purelib")
            (packages / "zz-beside.pth").write_text(f"import site; site.addsitedir({of_tests!r})\n")
        done.write_text(wanted)
    return python


def pip(python: Path, command: str, *arguments: str) -> None:
    """Run pip.

    Args:
        python: interpreter whose pip runs.
        command: `install` or `download`.
        arguments: arguments of the command.

    Raises:
        NoEnvironment: it failed. The message has the last line that it printed.
    """
    options = OPTIONS if command == "install" else OPTIONS[:-1]
    done = subprocess.run([python, "-m", "pip", command, *options, *arguments], capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no error message"])[-1]
        raise NoEnvironment(f"pip {command} {' '.join(arguments)} failed: {reason}")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file, which is created if necessary."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

"""What programs are run by in the sandbox's measurements: a pool at a level, a service by its URL, or nothing at all."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from sandbox_host import descendants

from tirjudge.errors import SandboxUnavailable
from tirjudge.types import ExecResult, Outcome
from tirjudge_sandbox import IsolationLevel, Limits, SandboxPool

CONTROL = "subprocess"
"""A plain process of another user: no sandbox. For the negative control."""


class Backend(Protocol):
    """Runs programs. `SandboxPool` is one; a client of the service may be another."""

    async def run(self, code: str, *, bindings: Mapping[str, Any] = ...) -> ExecResult: ...


@contextlib.asynccontextmanager
async def opened(
    name: str, *, slots: int, limits: Limits, options: Mapping[str, Any] | None = None
) -> AsyncIterator[Backend]:
    """A backend by its name: a level of the pool, or the URL of a service.

    Raises:
        SandboxUnavailable: it does not work here.
    """
    if name.startswith("http"):
        from tirjudge_sandbox.remote import RemoteSandbox

        async with RemoteSandbox(name) as remote:
            yield remote
        return
    unsafe = name == IsolationLevel.UNSAFE
    floor = {} if unsafe else {"min_level": IsolationLevel(name)}
    async with SandboxPool(
        slots=slots, limits=limits, level=name, allow_unsafe=unsafe, **floor, **(options or {})
    ) as pool:
        yield pool


def isolating_levels() -> list[str]:
    """Those that a pool can be asked for without an image; whether one works here shows when it starts."""
    return [str(level) for level in IsolationLevel if level.isolates and not level.needs_image]


class PlainSubprocess:
    """`python program.py` as another user, with no more than resource limits, so that it cannot harm the machine."""

    def __init__(self, *, uid: int, python: str) -> None:
        """Needs root.

        Args:
            uid: a user that has nothing else on this machine: all its processes may die.
            python: an interpreter that this user can run.
        """
        self._uid = uid
        self._python = python
        self.folder = Path(tempfile.mkdtemp(prefix="control_"))
        os.chown(self.folder, uid, uid)

    async def run(self, code: str, *, bindings: Mapping[str, Any] | None = None) -> ExecResult:
        """The process alone is ended at the time limit, as a careless runner would."""
        program = self.folder / "program.py"
        preset = "".join(f"{name} = {json.loads(json.dumps(value))!r}\n" for name, value in (bindings or {}).items())
        program.write_text(preset + code, encoding="utf-8", errors="surrogatepass")
        program.chmod(0o644)
        started = time.monotonic()
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            process = await asyncio.create_subprocess_exec(
                *(self._python, str(program)),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd=self.folder,
                user=self._uid,
                group=self._uid,
                extra_groups=[],
                close_fds=False,
                preexec_fn=_limit_resources,
            )
            timed_out = False
            try:
                await asyncio.wait_for(process.wait(), 3)
            except TimeoutError:
                timed_out = True
                process.kill()
                await process.wait()
            status = process.returncode or 0
            wall_s = time.monotonic() - started
            texts = [os.pread(file.fileno(), 1 << 24, 0).decode(errors="replace") for file in (stdout, stderr)]
        ended = Outcome.CRASH if status < 0 else Outcome.ERROR if status else Outcome.OK
        lines = texts[1].splitlines()
        return ExecResult(
            outcome=Outcome.TIMEOUT if timed_out else ended,
            stdout=texts[0],
            error=lines[-1] if lines else None,
            exit_code=status if status >= 0 else None,
            signal=-status if status < 0 else None,
            wall_s=wall_s,
            level=CONTROL,
        )

    def close(self) -> None:
        """Ends what its programs left: all that is below us and the user's."""
        for pid in descendants(os.getpid()):
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{pid}").st_uid == self._uid:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
        shutil.rmtree(self.folder, ignore_errors=True)
        for folder in ("/tmp", "/var/tmp", "/dev/shm"):
            for entry in Path(folder).iterdir():
                with contextlib.suppress(OSError):
                    if entry.lstat().st_uid == self._uid:
                        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()


def _limit_resources() -> None:
    for kind, value in (
        (resource.RLIMIT_CPU, 2),
        (resource.RLIMIT_AS, 1 << 30),
        (resource.RLIMIT_FSIZE, 4 << 20),
        (resource.RLIMIT_NPROC, 32),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (value, value))


def report_head() -> dict[str, Any]:
    """Command, commit and machine: what every report begins with."""
    commit = ""
    with contextlib.suppress(FileNotFoundError):  # no git, as in a container
        command = ["git", "-c", "safe.directory=*", "rev-parse", "HEAD"]
        commit = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent).stdout.strip()
    return {
        "command": " ".join(["python", *sys.argv]),
        "commit": commit or None,
        "python": sys.version.split()[0],
        "kernel": os.uname().release,
        "num_cores": len(os.sched_getaffinity(0)),
        "uid": os.geteuid(),
    }


__all__ = [
    "CONTROL",
    "Backend",
    "PlainSubprocess",
    "SandboxUnavailable",
    "isolating_levels",
    "opened",
    "report_head",
]

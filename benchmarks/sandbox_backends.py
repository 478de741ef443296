"""What the measurements of the sandbox share: what runs the programs (a pool, a service by its URL, a plain process), a turn
at each level, and the report."""

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
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import reporting
import typer
from rich.console import Console
from sandbox_host import adopt_orphans, descendants

from tirjudge.errors import SandboxUnavailable
from tirjudge.types import ExecResult, Outcome
from tirjudge_sandbox import IsolationLevel, Limits, SandboxPool

T = TypeVar("T")

CONSOLE = Console(stderr=True)

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


def at_each(
    levels: Sequence[str] | None,
    measure: Callable[[str], Coroutine[Any, Any, dict[str, Any]]],
    *,
    best_alone: bool = False,
) -> dict[str, dict[str, Any]]:
    """What a measurement gives at each level; where the sandbox does not work, {"skipped": the reason}.

    Args:
        levels: None: all that need no image.
        measure: level -> its part of the report.
        best_alone: stop after the first level that works, where no levels are given.
    """
    adopt_orphans()
    found: dict[str, dict[str, Any]] = {}
    for name in levels or isolating_levels():
        try:
            found[name] = asyncio.run(measure(name))
        except SandboxUnavailable as error:
            found[name] = {"skipped": " ".join(str(error).split())}
        else:
            if best_alone and not levels:
                break
    return found


@contextlib.contextmanager
def started(
    arguments: Sequence[str], *, python: str = sys.executable, **options: Any
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`tirjudge` with these arguments in a process of its own, and the first line that it prints: it is ready then.

    Raises:
        SandboxUnavailable: it ended instead.
    """
    command = [python, "-c", "from tirjudge.cli import main; main()", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)
    try:
        assert process.stdout is not None
        if not (line := process.stdout.readline()):
            raise SandboxUnavailable(f"tirjudge {' '.join(arguments)} ended with status {process.wait()}")
        yield process, line
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:  # after an attack it may take long to end by itself
            process.kill()
            process.wait()


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
        started_at = time.monotonic()
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
            texts = [os.pread(file.fileno(), 1 << 24, 0).decode(errors="replace") for file in (stdout, stderr)]
        status = process.returncode or 0
        ended = Outcome.CRASH if status < 0 else Outcome.ERROR if status else Outcome.OK
        return ExecResult(
            outcome=Outcome.TIMEOUT if timed_out else ended,
            stdout=texts[0],
            error=next(reversed(texts[1].splitlines()), None),
            exit_code=status if status >= 0 else None,
            signal=-status if status < 0 else None,
            wall_s=time.monotonic() - started_at,
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
    for name, value in {"CPU": 2, "AS": 1 << 30, "FSIZE": 4 << 20, "NPROC": 32, "CORE": 0}.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))


def report_head() -> dict[str, Any]:
    """As every report begins, with the kernel and the user, which decide what isolates."""
    return reporting.report_head() | {"kernel": os.uname().release, "uid": os.geteuid()}


def finish(report: Mapping[str, Any], json_out: Path | None, *, failed: bool = False) -> None:
    """Prints the beginning of a report, writes all of it to a file, and exits 1 if something failed."""
    text = json.dumps(report, indent=1)
    CONSOLE.print(text[:6000], markup=False, highlight=False)
    if json_out is not None:
        json_out.write_text(text + "\n")
    raise typer.Exit(failed)

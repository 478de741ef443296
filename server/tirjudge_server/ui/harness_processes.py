"""Processes of `tirjudge bench` and `tirjudge evals` that prepare pages. The server does not import the harness."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from time import monotonic
from typing import IO

REST = 5.0
"""Minimum pause between two preparations of the same pages, in durations of the last one."""

MIN_REST_S = 2.0
"""Minimum pause between two preparations of the same pages, in seconds."""

# The process gives way to judgments.
_COMMAND = "import os; os.nice(10); from tirjudge.cli import main; main()"

Work = tuple[Path, ...]
"""What is prepared: the folder of a run, or the folders of two compared runs."""


class HarnessFailed(Exception):
    """A process has failed. The argument is what it wrote to its standard error."""


class HarnessProcesses:
    """Prepares pages. At most one process runs at a time."""

    def __init__(self) -> None:
        self._tasks: dict[Work, asyncio.Task[None]] = {}
        self._problems: dict[Work, str] = {}
        self._rest_until: dict[Work, float] = {}
        self._one_at_a_time = asyncio.Lock()

    def start(self, work: Work, prepare: Callable[[], Awaitable[None]]) -> None:
        """Prepare pages, unless that is being done, or was done a moment ago.

        Args:
            work: What is prepared.
            prepare: Prepares it. It may raise HarnessFailed.
        """
        running = self._tasks.get(work)
        if (running is None or running.done()) and monotonic() >= self._rest_until.get(work, 0.0):
            self._tasks[work] = asyncio.create_task(self._prepare(work, prepare))

    def problem(self, work: Work) -> str | None:
        """Return why the last preparation failed. None: it did not."""
        return self._problems.get(work)

    def forget(self, work: Work) -> None:
        """Forget what is known about a deleted run."""
        for known in (self._tasks, self._problems, self._rest_until):
            known.pop(work, None)

    async def _prepare(self, work: Work, prepare: Callable[[], Awaitable[None]]) -> None:
        async with self._one_at_a_time:
            began = monotonic()
            try:
                await prepare()
            except HarnessFailed as failed:
                self._problems[work] = str(failed)
            else:
                self._problems.pop(work, None)
            now = monotonic()
            self._rest_until[work] = now + max(MIN_REST_S, REST * (now - began))


async def run_harness(arguments: Sequence[str]) -> None:
    """Run a command of the harness.

    Args:
        arguments: Arguments of `tirjudge`, such as `bench index FOLDER`.

    Raises:
        HarnessFailed: The command failed.
    """
    with TemporaryFile() as errors:
        process = _started(arguments, errors=errors)
        try:
            await asyncio.to_thread(process.wait)
        finally:  # the server ends, and cancels the task: then the thread ends with the process
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode:
            errors.seek(0)
            said = errors.read().decode(errors="replace")
            raise HarnessFailed(said.strip()[-2000:] or f"status {process.returncode}")


def _started(arguments: Sequence[str], *, errors: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a command. asyncio's own subprocesses wait forever if they are cancelled while they start."""
    return subprocess.Popen(
        [sys.executable, "-c", _COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
    )

"""The runs below a folder, and the processes that prepare their pages.

The server does not import the harness. It runs `tirjudge bench index`, which writes files to the folder of a run, and reads
these files.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from time import monotonic
from typing import IO

from tirjudge_pages.bench.index import RUN_FILES, IndexUnusable, RunIndex, read_comparison
from tirjudge_pages.bench.views import ComparisonView

MANIFEST, OUTLINES, *_ = RUN_FILES

MAX_DEPTH = 2
"""Maximum number of folders between the folder of runs and the folder of a run."""

REST = 5.0
"""Minimum pause between two readings of a changing run, in durations of the last reading."""

MIN_REST_S = 2.0
"""Minimum pause between two readings of a run, in seconds."""

# The process gives way to judgments.
_COMMAND = "import os; os.nice(10); from tirjudge.cli import main; main()"


class RunLibrary:
    """Finds runs and keeps their indexes up to date. At most one process reads runs at a time.

    Args:
        folder: the folder of runs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tasks: dict[tuple[Path, ...], asyncio.Task[None]] = {}
        self._problems: dict[tuple[Path, ...], str] = {}
        self._rest_until: dict[tuple[Path, ...], float] = {}
        self._one_at_a_time = asyncio.Lock()

    def runs(self) -> dict[str, Path]:
        """Return the folders of runs by name, which is the path below the folder of runs. The newest runs come first."""
        found = []
        for depth in range(MAX_DEPTH + 1):
            for manifest in self.folder.glob("*/" * depth + MANIFEST):
                # Folders of `tirjudge bench best-of-n` have no outlines.
                if (manifest.parent / OUTLINES).is_file():
                    found.append((-manifest.stat().st_mtime, manifest.parent))
        return {_name(path, folder=self.folder): path for _, path in sorted(found)}

    def index(self, path: Path) -> tuple[RunIndex | None, str | None]:
        """Return the index of a run, and start a process that writes it again if the run has changed.

        Args:
            path: folder of the run.

        Returns:
            The index, which can be out of date; None: there is none yet. Then the problem of the last process; None: none.
        """
        index = RunIndex(path)
        if not index.is_current:
            self._start((path,), [str(path)])
        with suppress(IndexUnusable):
            _ = index.view
            return index, self._problems.get((path,))
        return None, self._problems.get((path,))

    def comparison(self, first: Path, second: Path) -> tuple[ComparisonView | None, str | None]:
        """Return the comparison of two runs, and start a process that makes it if there is none. Results as for `index`."""
        found = read_comparison(second, first=first)
        if found is None:
            self._start((first, second), [str(second), "--baseline", str(first)])
        return found, self._problems.get((first, second))

    def _start(self, work: tuple[Path, ...], arguments: list[str]) -> None:
        running = self._tasks.get(work)
        if (running is None or running.done()) and monotonic() >= self._rest_until.get(work, 0.0):
            self._tasks[work] = asyncio.create_task(self._run(work, arguments))

    async def _run(self, work: tuple[Path, ...], arguments: list[str]) -> None:
        async with self._one_at_a_time:
            began = monotonic()
            with TemporaryFile() as errors:
                process = _started(arguments, errors=errors)
                try:
                    await asyncio.to_thread(process.wait)
                finally:  # the server ends, and cancels the task: then the thread ends with the process
                    if process.poll() is None:
                        process.kill()
                        process.wait()
                errors.seek(0)
                said = errors.read().decode(errors="replace")
            if process.returncode:
                self._problems[work] = said.strip()[-2000:] or f"status {process.returncode}"
            else:
                self._problems.pop(work, None)
            now = monotonic()
            self._rest_until[work] = now + max(MIN_REST_S, REST * (now - began))


def _started(arguments: Sequence[str], *, errors: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start `tirjudge bench index`. asyncio's own subprocesses wait forever if they are cancelled while they start."""
    return subprocess.Popen(
        [sys.executable, "-c", _COMMAND, "bench", "index", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
    )


def _name(path: Path, *, folder: Path) -> str:
    return path.relative_to(folder).as_posix() if path != folder else path.resolve().name

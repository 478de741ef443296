"""The runs below a folder, with the indexes that their pages read.

The server does not import the harness. It runs `tirjudge bench index`, which writes files to the folder of a run, and reads
these files.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from pathlib import Path

from tirjudge_pages.bench.index import RUN_FILES, IndexUnusable, RunIndex, read_comparison
from tirjudge_pages.bench.links import RUNS_PATH, ServerLinks
from tirjudge_pages.bench.views import ComparisonView
from tirjudge_server.ui.harness_processes import HarnessProcesses, run_harness
from tirjudge_server.ui.run_source import FoundRun, missing
from tirjudge_server.ui.site import Viewer

MANIFEST, OUTLINES, *_ = RUN_FILES

MAX_DEPTH = 2
"""Maximum number of folders between the folder of runs and the folder of a run."""


class RunLibrary:
    """Finds runs and keeps their indexes up to date. At most one process reads runs at a time.

    Args:
        folder: the folder of runs.
    """

    path = RUNS_PATH

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes = HarnessProcesses()

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
            self._processes.start((path,), partial(run_harness, ["bench", "index", str(path)]))
        with suppress(IndexUnusable):
            _ = index.view
            return index, self._processes.problem((path,))
        return None, self._processes.problem((path,))

    async def find(self, name: str, *, viewer: Viewer) -> FoundRun:
        """See `RunSource`. Every reader of the pages may read every run."""
        # The name is looked up among the runs found, so that it cannot lead out of the folder.
        path = (await asyncio.to_thread(self.runs)).get(name)
        if path is None:
            raise missing("run", name)
        index, problem = self.index(path)
        is_current = index is not None and await asyncio.to_thread(lambda: index.is_current)
        goes_on = index is not None and (bool(index.view.num_missing) or not is_current)
        links = ServerLinks(name=name)
        return FoundRun(title=name, folder=path, index=index, problem=problem, goes_on=goes_on, links=links)

    async def comparison(self, first: FoundRun, second: FoundRun) -> tuple[ComparisonView | None, str | None]:
        """See `RunSource`."""
        return compared(first, second, processes=self._processes)


def compared(
    first: FoundRun, second: FoundRun, *, processes: HarnessProcesses
) -> tuple[ComparisonView | None, str | None]:
    """Return the comparison of two runs, and start a process that makes it if there is none.

    Returns:
        The comparison; None: there is none yet. Then the problem of the last process; None: none.
    """
    work = (first.folder, second.folder)
    found = read_comparison(second.folder, first=first.folder)
    if found is None:
        arguments = ["bench", "index", str(second.folder), "--baseline", str(first.folder)]
        processes.start(work, partial(run_harness, arguments))
    return found, processes.problem(work)


def _name(path: Path, *, folder: Path) -> str:
    return path.relative_to(folder).as_posix() if path != folder else path.resolve().name

"""Run folders of evals, for their pages. They are copies: the database has the results.

A folder is written when a page of its run is opened: the server writes the objects of the Evals API to a file, and the
harness writes a run folder with an index from it. The new folder then replaces the old one.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path

from tirjudge.durable import UNFINISHED, make_private_folder, private, remove_unfinished
from tirjudge.errors import RecordsUnavailable
from tirjudge.types import encodable
from tirjudge_pages.bench.index import RUN_FILES, IndexUnusable, RunIndex
from tirjudge_pages.bench.links import EVAL_RUNS_PATH, ServerLinks
from tirjudge_pages.bench.views import ComparisonView
from tirjudge_server.evals.objects import eval_object, output_item, run_object
from tirjudge_server.evals.store import UNFINISHED as UNFINISHED_RUNS
from tirjudge_server.evals.store import EvalStore, StoredEval, StoredRun, unknown
from tirjudge_server.ui.harness_processes import HarnessFailed, HarnessProcesses, run_harness
from tirjudge_server.ui.run_library import compared
from tirjudge_server.ui.run_source import FoundRun
from tirjudge_server.ui.site import Viewer

MAX_RUN_BYTES = 256 * 1024 * 1024
"""Maximum size of the rows and results of a run that has pages."""

MAX_FOLDERS = 100
"""Maximum number of folders. The ones that were written the longest ago are removed."""

PAGE_ROWS = 100
"""Number of rows that are read at a time."""

PAGE_CHARS = 16 * 1024 * 1024
"""Size at which a reading ends earlier."""

MANIFEST = RUN_FILES[0]


class EvalFolders:
    """Finds runs of evals, and keeps their folders up to date.

    Args:
        store: Holds evals and runs.
        folder: Folder of the run folders. Created if missing.
    """

    path = EVAL_RUNS_PATH

    def __init__(self, store: EvalStore, *, folder: Path) -> None:
        self._store, self._folder = store, folder
        self._processes = HarnessProcesses()
        make_private_folder(folder)
        remove_unfinished(folder)
        store.on_delete.append(self._forget)

    async def find(self, name: str, *, viewer: Viewer) -> FoundRun:
        """See `RunSource`. A reader may read the own runs, and those of all callers with the scope `audit`."""
        run, of = await find_run(self._store, name, viewer=viewer)
        folder, links = self._folder / run.id, ServerLinks(name=run.id, path=self.path)
        goes_on, title = run.status in UNFINISHED_RUNS, run.content.get("name") or run.id
        if run.num_bytes > MAX_RUN_BYTES:
            problem = (
                f"The run has {run.num_bytes:,} bytes, and pages are made for at most {MAX_RUN_BYTES:,}. Write it to a "
                f"folder with `tirjudge evals export {run.eval_id} {run.id} DIR`."
            )
            return FoundRun(title=title, folder=folder, index=None, problem=problem, goes_on=False, links=links)
        work, index = (folder,), RunIndex(folder)
        is_current = await asyncio.to_thread(_is_current, index, run, of)
        if not is_current:
            self._processes.start(work, partial(self._write, run, of))
        found: RunIndex | None = None
        with suppress(IndexUnusable):
            _ = index.view
            found = index
        problem = self._without_path(self._processes.problem(work))
        goes_on = goes_on or not is_current
        return FoundRun(title=title, folder=folder, index=found, problem=problem, goes_on=goes_on, links=links)

    async def comparison(self, first: FoundRun, second: FoundRun) -> tuple[ComparisonView | None, str | None]:
        """See `RunSource`."""
        found, problem = compared(first, second, processes=self._processes)
        return found, self._without_path(problem)

    def _without_path(self, problem: str | None) -> str | None:
        """Return a problem without the path of the folder on this server."""
        return None if problem is None else problem.replace(f"{self._folder}/", "")

    async def _write(self, run: StoredRun, of: StoredEval) -> None:
        unfinished = self._folder / f"{UNFINISHED}{run.id}"
        try:
            await asyncio.to_thread(_empty, unfinished)
            export = unfinished / "export.jsonl"
            await self._export(run, of, file=export)
            await run_harness(["evals", "convert", str(export), "--out", str(unfinished), "--index"])
            if await self._store.known_run(run.id) is not None:
                await asyncio.to_thread(_replace, self._folder / run.id, unfinished / run.id)
        except OSError as error:
            raise HarnessFailed(f"the pages cannot be written: {error.strerror}") from error
        except RecordsUnavailable as error:
            raise HarnessFailed("the results cannot be read now; the database does not answer") from error
        finally:
            await asyncio.to_thread(shutil.rmtree, unfinished, ignore_errors=True)
            await asyncio.to_thread(self._prune)

    async def _export(self, run: StoredRun, of: StoredEval, *, file: Path) -> None:
        objects = [eval_object(of), run_object(run, of=of, url="")]
        await asyncio.to_thread(_append, file, objects)
        last, has_more = None, True
        while has_more:
            rows, has_more = await self._store.graded_rows(
                run.id, after=last, limit=PAGE_ROWS, max_chars=PAGE_CHARS, newest_first=False, status=None
            )
            if rows:
                last = rows[-1].number
                await asyncio.to_thread(_append, file, [output_item(row, run=run) for row in rows])

    def _forget(self, run_id: str) -> None:
        """Remove the folder of a deleted run."""
        self._processes.forget((self._folder / run_id,))
        shutil.rmtree(self._folder / run_id, ignore_errors=True)

    def _prune(self) -> None:
        folders = [path for path in self._folder.iterdir() if not path.name.startswith(UNFINISHED)]
        for path in sorted(folders, key=lambda path: path.stat().st_mtime)[:-MAX_FOLDERS]:
            shutil.rmtree(path, ignore_errors=True)

    async def prune_unknown(self) -> None:
        """Remove the folders of runs that were deleted while this server did not run, or by another server."""
        for path in await asyncio.to_thread(lambda: list(self._folder.iterdir())):
            if not path.name.startswith(UNFINISHED) and await self._store.known_run(path.name) is None:
                await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)


async def find_run(store: EvalStore, run_id: str, *, viewer: Viewer) -> tuple[StoredRun, StoredEval]:
    """Return a run that a reader may read, and its eval.

    Raises:
        Refused: 404, the run does not exist.
    """
    run = await store.known_run(run_id)
    of = None if run is None else await store.known_eval(run.eval_id)
    if run is None or of is None or not may_read(viewer, run.owner):
        raise unknown("run_id", run_id)
    return run, of


def may_read(viewer: Viewer, owner: str | None) -> bool:
    """Whether a reader may read the evals of an owner: the own ones, or all with the scope `audit`."""
    return viewer.seen is None or viewer.seen == owner


def _is_current(index: RunIndex, run: StoredRun, of: StoredEval) -> bool:
    """Whether a folder has all results of a run, its state, and the name of its eval, which comparisons need."""
    try:
        known = json.loads((index.folder / MANIFEST).read_bytes())["data"]["eval"]
        graded = run.tally.rows
        num_graded = graded.passed + graded.failed + graded.errored
        state = (known["status"], known["num_graded"], known["name"])
        return state == (run.status, num_graded, encodable(of.content.get("name") or of.id)) and index.is_current
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    make_private_folder(folder)


def _append(file: Path, objects: list[dict[str, object]]) -> None:
    with open(file, "a", encoding="ascii", opener=private) as lines:
        lines.writelines(json.dumps(each) + "\n" for each in objects)


def _replace(folder: Path, new: Path) -> None:
    old = folder.with_name(f"{UNFINISHED}old-{folder.name}")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)

"""`/ui/evals`: the evals of a reader, their runs, and the reports, items and comparisons of runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from starlette.responses import Response

from tirjudge.statistics import wilson_interval
from tirjudge_pages import NavLink
from tirjudge_pages.bench.links import EVAL_RUNS_PATH, EVALS_PATH, ServerLinks
from tirjudge_pages.evals import EvalRunLine, ListedEvalLine, PassedShare
from tirjudge_server.access.authorization import check_scope
from tirjudge_server.evals.definitions import EvalCreation, names_of
from tirjudge_server.evals.store import UNFINISHED, EvalStore, StoredRun, unknown
from tirjudge_server.evals.tally import ResultTally
from tirjudge_server.ui.eval_folders import EvalFolders, may_read
from tirjudge_server.ui.runs import RELOAD_S, RunPages, add_run_pages, page_number
from tirjudge_server.ui.site import PageSite, Viewer

PAGE_ROWS = 50
"""Number of evals, or of runs, on a page."""

MAX_CRITERIA = 12
"""Maximum number of criteria with a column in the list of runs. The reports have all."""


def router(site: PageSite, *, store: EvalStore, folder: Path, judgments_path: str | None) -> APIRouter:
    """Return the pages of evals.

    Args:
        site: What all pages share. The list is added to its links.
        store: Holds evals and runs.
        folder: Folder for the run folders that the pages read.
        judgments_path: Path of the pages of judgments. None: the server has none.
    """
    site.links.append(NavLink(url=EVALS_PATH, text="Evals"))
    folders = EvalFolders(store, folder=folder)

    @asynccontextmanager
    async def pruning(app: FastAPI) -> AsyncIterator[None]:
        await folders.prune_unknown()
        yield

    async def reader(request: Request) -> Viewer:
        viewer = await site.viewer_of(request, scope=None)
        if viewer.key is not None and not viewer.may("audit"):
            check_scope(viewer.key, scope="judge")
        return viewer

    routes, reads = site.router(), Depends(reader)
    routes.lifespan_context = pruning
    _add_lists(routes, site, store=store, reads=reads)
    add_run_pages(routes, RunPages(site, source=folders, judgments_path=judgments_path), reads=reads)
    return routes


def _add_lists(routes: APIRouter, site: PageSite, *, store: EvalStore, reads: Any) -> None:
    @routes.get(EVALS_PATH)
    async def list_evals(request: Request, viewer: Viewer = reads) -> Response:
        page = page_number(request)
        skipped = (page - 1) * PAGE_ROWS
        found = await store.listed_evals(owner=viewer.seen, first=skipped, num=PAGE_ROWS + 1)
        evals = [
            ListedEvalLine(
                url=f"{EVALS_PATH}/{each.of.id}",
                name=each.of.content.get("name") or each.of.id,
                owner=each.of.owner,
                created_ms=1000 * each.of.created_at,
                num_criteria=len(each.of.content["testing_criteria"]),
                num_runs=each.num_runs,
                latest=None if each.latest is None else _share(each.latest.tally.rows),
                latest_status=None if each.latest is None else each.latest.status,
            )
            for each in found[:PAGE_ROWS]
        ]
        values = {"evals": evals, "page": page, "has_more": len(found) > PAGE_ROWS, "path": EVALS_PATH}
        return site.page(request, "evals/list", viewer=viewer, sees_all=_sees_owners(viewer), **values)

    @routes.get(EVALS_PATH + "/{eval_id}")
    async def show_eval(request: Request, eval_id: str, viewer: Viewer = reads) -> Response:
        of = await store.known_eval(eval_id)
        if of is None or not may_read(viewer, of.owner):
            raise unknown("eval_id", eval_id)
        page = page_number(request)
        found = await store.listed_runs(of.id, first=(page - 1) * PAGE_ROWS, num=PAGE_ROWS + 1)
        body = await asyncio.to_thread(EvalCreation.model_validate, of.content)
        names = names_of(body.testing_criteria)
        runs = [_line(run, names=names[:MAX_CRITERIA]) for run in found[:PAGE_ROWS]]
        values = {
            "name": body.name or of.id, "id": of.id, "owner": of.owner, "created_ms": 1000 * of.created_at,
            "metadata": body.metadata or {}, "runs": runs, "names": names[:MAX_CRITERIA], "num_criteria": len(names),
            "criteria": list(zip(names, (one.type for one in body.testing_criteria), strict=True)),
            "page": page, "has_more": len(found) > PAGE_ROWS, "path": f"{EVALS_PATH}/{of.id}",
            "compare_path": f"{EVAL_RUNS_PATH}/compare", "list_path": EVALS_PATH,
            "reload_s": RELOAD_S if any(run.status in UNFINISHED for run in found) else None,
        }  # fmt: skip
        return site.page(request, "evals/eval", viewer=viewer, sees_all=_sees_owners(viewer), **values)


def _sees_owners(viewer: Viewer) -> bool:
    """Whether a reader sees the evals of several owners."""
    return viewer.key is not None and viewer.seen is None


def _line(run: StoredRun, *, names: Sequence[str]) -> EvalRunLine:
    tally = run.tally
    return EvalRunLine(
        id=run.id,
        url=ServerLinks(name=run.id, path=EVAL_RUNS_PATH).report,
        name=run.content.get("name") or run.id,
        model=run.content["data_source"].get("model"),
        status=run.status,
        error=None if run.error is None else run.error["message"],
        created_ms=1000 * run.created_at,
        num_rows=run.num_rows,
        num_graded=tally.rows.passed + tally.rows.failed + tally.rows.errored,
        num_errors=tally.rows.errored,
        all_criteria=_share(tally.rows),
        criteria=tuple(_share(tally.criteria.get(name, ResultTally())) for name in names),
    )


def _share(tally: ResultTally) -> PassedShare | None:
    """Return the share of passed rows with Wilson's interval. None: no row has a score."""
    num = tally.passed + tally.failed
    if not num:
        return None
    low, high = wilson_interval(tally.passed, num_trials=num)
    return PassedShare(value=100 * tally.passed / num, low=100 * low, high=100 * high, num=num)

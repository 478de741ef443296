"""`/ui/runs`: reports of benchmark runs, their items, and comparisons of two runs."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from tirjudge.http.protocol import invalid
from tirjudge_pages import NavLink
from tirjudge_pages.bench.index import CHANGES, IndexUnusable, ItemQuery, RunIndex
from tirjudge_pages.bench.links import LISTED_ITEMS, RUNS_PATH, ServerLinks, query_of
from tirjudge_server.ui.run_library import RunLibrary
from tirjudge_server.ui.run_source import RunSource, missing
from tirjudge_server.ui.site import PageSite, Viewer
from tirjudge_web.errors import Refused

SCOPE = "audit"
"""Scope that readers of runs need: a run has requests of no key."""

RELOAD_S = 5
"""Seconds between two readings of the page of an unfinished run by a browser."""

MAX_PAGE = 10**9
"""Maximum number of a page."""

CHANGE_NAMES = {"all": "all", "gained": "right in this run only", "lost": "right in the first run only"}
"""Kind of changes, from `CHANGES` -> its text for readers."""

EVAL_CHANGE_NAMES = {"all": "all", "gained": "passed in this run only", "lost": "passed in the first run only"}
"""The same for runs of evals."""

T = TypeVar("T")


def router(site: PageSite, *, folder: Path) -> APIRouter:
    """Return the pages of the runs below a folder.

    Args:
        site: what all pages share.
        folder: the folder of runs.
    """
    site.links.append(NavLink(url=RUNS_PATH, text="Runs"))
    library = RunLibrary(folder)
    routes, reads = site.router(), Depends(site.viewing(SCOPE))

    @routes.get(RUNS_PATH)
    async def runs(request: Request, viewer: Viewer = reads) -> Response:
        found = await asyncio.to_thread(lambda: [_listed_run(*one) for one in library.runs().items()])
        values = {"runs": found, "comparisons": (), "compare_path": f"{RUNS_PATH}/compare"}
        nothing = f"{library.folder} has no runs; `tirjudge bench run --out FOLDER` makes one."
        return site.page(request, "bench/list", viewer=viewer, nothing=nothing, **values)

    add_run_pages(routes, RunPages(site, source=library), reads=reads)
    return routes


def add_run_pages(routes: APIRouter, pages: RunPages, *, reads: Any) -> None:
    """Add the pages of single runs and of comparisons.

    Args:
        routes: the routes to add to.
        pages: answers them.
        reads: dependency that returns the reader.
    """
    path = pages.source.path

    @routes.get(path + "/report/{name:path}")
    async def report(request: Request, name: str, viewer: Viewer = reads) -> Response:
        return await pages.report(request, viewer, name=name)

    @routes.get(path + "/items/{name:path}")
    async def items(request: Request, name: str, viewer: Viewer = reads) -> Response:
        return await pages.items(request, viewer, name=name)

    @routes.get(path + "/item/{place}/{name:path}")
    async def item(request: Request, place: str, name: str, viewer: Viewer = reads) -> Response:
        return await pages.item(request, viewer, place=place, name=name)

    @routes.get(path + "/compare")
    async def compare(request: Request, first: str, second: str, viewer: Viewer = reads) -> Response:
        return await pages.compare(request, viewer, first=first, second=second)


class RunPages:
    """The pages of the runs of a source. Files are read in threads.

    Args:
        site: what all pages share.
        source: finds the runs.
        judgments_path: path of the pages of judgments. None: the server has none.
    """

    def __init__(self, site: PageSite, *, source: RunSource, judgments_path: str | None = None) -> None:
        self._site = site
        self.source = source
        self._judgments_path = judgments_path

    async def report(self, request: Request, viewer: Viewer, *, name: str) -> Response:
        run = await self.source.find(name, viewer=viewer)
        if run.index is None:
            return self._waiting(request, viewer, name=run.title, problem=run.problem)
        index, view = run.index, run.index.view
        counts = await _read(index.counts)
        filters: list[tuple[str, int, str | None]] = [("all items", view.num_examples, run.links.items(ItemQuery()))]
        for condition, text in index.condition_names.items():
            url = run.links.items(ItemQuery(conditions=frozenset({condition}))) if counts[condition] else None
            filters.append((text, counts[condition], url))
        values = {"view": view, "name": run.title, "links": run.links, "filters": filters, "problem": run.problem}
        reload_s = RELOAD_S if run.goes_on else None
        return self._site.page(request, "bench/report", viewer=viewer, reload_s=reload_s, **values)

    async def items(self, request: Request, viewer: Viewer, *, name: str) -> Response:
        run = await self.source.find(name, viewer=viewer)
        if run.index is None:
            return self._waiting(request, viewer, name=run.title, problem=run.problem)
        index, query, page = run.index, query_of(request.query_params), page_number(request)

        def read() -> dict[str, Any]:
            listed = index.listed(query, first=(page - 1) * LISTED_ITEMS, num=LISTED_ITEMS)
            choices = {"subsets": index.subsets, "bases": index.bases, "errors": index.errors}
            return {"items": listed, "total": index.count(query), "counts": index.counts(), **choices}

        values = await _read(read)
        num_pages = max(1, math.ceil(values["total"] / LISTED_ITEMS))
        values |= {"query": query, "page": page, "num_pages": num_pages}
        values |= {"condition_names": index.condition_names, "is_eval": index.view.is_eval}
        return self._site.page(request, "bench/items", viewer=viewer, name=run.title, links=run.links, **values)

    async def item(self, request: Request, viewer: Viewer, *, place: str, name: str) -> Response:
        run = await self.source.find(name, viewer=viewer)
        if run.index is None:
            return self._waiting(request, viewer, name=run.title, problem=run.problem)
        index = run.index
        at = int(place) if place.isascii() and place.isdigit() and len(place) < 10 else -1
        found = await _read(lambda: index.items(first=at, num=1)) if at >= 0 else []
        if not found or found[0].listed.place != at:
            raise missing("place", place)
        answers = await _read(lambda: index.answers(found[0]))
        values: dict[str, Any] = {"item": found[0], "answers": answers, "links": run.links}
        values |= {"has_next": at + 1 < index.view.num_examples, "no_texts": index.view.no_texts}
        path = self._judgments_path if viewer.may("read") else None
        values |= {"is_eval": index.view.is_eval, "judgments_path": path}
        return self._site.page(request, "bench/item", viewer=viewer, **values)

    async def compare(self, request: Request, viewer: Viewer, *, first: str, second: str) -> Response:
        one = await self.source.find(first, viewer=viewer)
        other = await self.source.find(second, viewer=viewer)
        if first == second:
            message = "second: the same run as the first; choose two runs"
            raise Refused(invalid(message, param="second", code="invalid_value"))
        view, problem = None, one.problem or other.problem
        if one.index is not None and other.index is not None:
            view, problem = await self.source.comparison(one, other)
        if view is None or one.index is None or other.index is None:
            return self._waiting(request, viewer, name=f"{other.title} against {one.title}", problem=problem)
        kind, page = request.query_params.get("kind", "all"), page_number(request)
        if kind not in CHANGES:
            raise missing("kind", kind)
        skipped, indexes = (page - 1) * LISTED_ITEMS, (one.index, other.index)
        options = {"kind": kind, "first": skipped, "num": LISTED_ITEMS, "left_out": view.left_out}
        total, changes = await _read(lambda: indexes[0].changes(indexes[1], **options))

        def url(**fields: str) -> str:
            query = urlencode({"first": first, "second": second, **fields})
            return f"{self.source.path}/compare?{query}#changes"

        is_eval = other.index.view.is_eval
        names = EVAL_CHANGE_NAMES if is_eval else CHANGE_NAMES
        values = {
            "view": view, "total": total, "changes": changes, "first_name": one.title, "second_name": other.title,
            "kinds": [(text, url(kind=name), name == kind) for name, text in names.items()], "is_eval": is_eval,
            "previous": url(kind=kind, page=str(page - 1)) if page > 1 else None,
            "next": url(kind=kind, page=str(page + 1)) if skipped + LISTED_ITEMS < total else None,
            "first_links": one.links, "second_links": other.links,
        }  # fmt: skip
        return self._site.page(request, "bench/comparison", viewer=viewer, **values)

    def _waiting(self, request: Request, viewer: Viewer, *, name: str, problem: str | None) -> Response:
        return self._site.page(request, "bench/waiting", viewer=viewer, name=name, problem=problem)


def _listed_run(name: str, path: Path) -> dict[str, object]:
    try:
        view = RunIndex(path).view
    except IndexUnusable:
        view = None
    return {"url": ServerLinks(name=name).report, "name": name, "view": view}


async def _read(work: Callable[[], T]) -> T:
    """Read an index in a thread.

    Raises:
        Refused: 503, the run has changed since its index was written.
    """
    try:
        return await asyncio.to_thread(work)
    except IndexUnusable as error:
        message = f"run: {error}; reload the page in a moment"
        raise Refused(invalid(message, param="run", code="run_changed"), status=503) from error


def page_number(request: Request) -> int:
    """Return the number of the page, from 1. A text that is not such a number counts as 1."""
    given = request.query_params.get("page", "1")
    return min(max(int(given), 1), MAX_PAGE) if given.isascii() and given.isdigit() and len(given) < 10 else 1

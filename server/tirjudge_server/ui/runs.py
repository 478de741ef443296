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

from tirjudge.http.protocol import invalid, shown
from tirjudge_pages import NavLink
from tirjudge_pages.bench.index import CHANGES, IndexUnusable, ItemQuery, RunIndex
from tirjudge_pages.bench.links import LISTED_ITEMS, RUNS_PATH, ServerLinks, query_of
from tirjudge_server.ui.run_library import RunLibrary
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

T = TypeVar("T")


def router(site: PageSite, *, folder: Path) -> APIRouter:
    """Return the pages of the runs below a folder.

    Args:
        site: what all pages share.
        folder: the folder of runs.
    """
    site.links.append(NavLink(url=RUNS_PATH, text="Runs"))
    pages = _RunPages(site, library=RunLibrary(folder))
    routes, reads = site.router(), Depends(site.viewing(SCOPE))

    @routes.get(RUNS_PATH)
    async def runs(request: Request, viewer: Viewer = reads) -> Response:
        return await pages.list(request, viewer)

    @routes.get(f"{RUNS_PATH}/report/{{name:path}}")
    async def report(request: Request, name: str, viewer: Viewer = reads) -> Response:
        return await pages.report(request, viewer, name=name)

    @routes.get(f"{RUNS_PATH}/items/{{name:path}}")
    async def items(request: Request, name: str, viewer: Viewer = reads) -> Response:
        return await pages.items(request, viewer, name=name)

    @routes.get(f"{RUNS_PATH}/item/{{place}}/{{name:path}}")
    async def item(request: Request, place: str, name: str, viewer: Viewer = reads) -> Response:
        return await pages.item(request, viewer, place=place, name=name)

    @routes.get(f"{RUNS_PATH}/compare")
    async def compare(request: Request, first: str, second: str, viewer: Viewer = reads) -> Response:
        return await pages.compare(request, viewer, first=first, second=second)

    return routes


class _RunPages:
    """The pages of the runs of a library. Files are read in threads."""

    def __init__(self, site: PageSite, *, library: RunLibrary) -> None:
        self._site = site
        self.library = library

    async def list(self, request: Request, viewer: Viewer) -> Response:
        found = await asyncio.to_thread(lambda: [_listed_run(*one) for one in self.library.runs().items()])
        values = {"runs": found, "comparisons": (), "compare_path": f"{RUNS_PATH}/compare"}
        nothing = f"{self.library.folder} has no runs; `tirjudge bench run --out FOLDER` makes one."
        return self._site.page(request, "bench/list", viewer=viewer, nothing=nothing, **values)

    async def report(self, request: Request, viewer: Viewer, *, name: str) -> Response:
        index, problem = self.library.index(await self._path(name))
        if index is None:
            return self._waiting(request, viewer, name=name, problem=problem)
        links, view = ServerLinks(name=name), index.view
        counts = await _read(index.counts)
        filters: list[tuple[str, int, str | None]] = [("all items", view.num_examples, links.items(ItemQuery()))]
        for condition, text in index.condition_names.items():
            url = links.items(ItemQuery(conditions=frozenset({condition}))) if counts[condition] else None
            filters.append((text, counts[condition], url))
        is_changing = bool(view.num_missing) or not await _read(lambda: index.is_current)
        values = {"view": view, "name": name, "links": links, "filters": filters, "problem": problem}
        reload_s = RELOAD_S if is_changing else None
        return self._site.page(request, "bench/report", viewer=viewer, reload_s=reload_s, **values)

    async def items(self, request: Request, viewer: Viewer, *, name: str) -> Response:
        index, problem = self.library.index(await self._path(name))
        if index is None:
            return self._waiting(request, viewer, name=name, problem=problem)
        query, page = query_of(request.query_params), _page(request)

        def read() -> dict[str, Any]:
            listed = index.listed(query, first=(page - 1) * LISTED_ITEMS, num=LISTED_ITEMS)
            choices = {"subsets": index.subsets, "bases": index.bases, "errors": index.errors}
            return {"items": listed, "total": index.count(query), "counts": index.counts(), **choices}

        values = await _read(read)
        num_pages = max(1, math.ceil(values["total"] / LISTED_ITEMS))
        values |= {
            "query": query,
            "page": page,
            "num_pages": num_pages,
            "condition_names": index.condition_names,
            "is_eval": index.view.is_eval,
        }
        return self._site.page(request, "bench/items", viewer=viewer, name=name, links=ServerLinks(name=name), **values)

    async def item(self, request: Request, viewer: Viewer, *, place: str, name: str) -> Response:
        index, problem = self.library.index(await self._path(name))
        if index is None:
            return self._waiting(request, viewer, name=name, problem=problem)
        at = int(place) if place.isascii() and place.isdigit() and len(place) < 10 else -1
        found = await _read(lambda: index.items(first=at, num=1)) if at >= 0 else []
        if not found or found[0].listed.place != at:
            raise _missing("place", place)
        answers = await _read(lambda: index.answers(found[0]))
        values = {"item": found[0], "answers": answers, "links": ServerLinks(name=name)}
        values |= {"has_next": at + 1 < index.view.num_examples, "no_texts": index.view.no_texts}
        values |= {"is_eval": index.view.is_eval, "judgments_path": None}
        return self._site.page(request, "bench/item", viewer=viewer, **values)

    async def compare(self, request: Request, viewer: Viewer, *, first: str, second: str) -> Response:
        paths = await self._path(first), await self._path(second)
        if first == second:
            message = "second: the same run as the first; choose two runs"
            raise Refused(invalid(message, param="second", code="invalid_value"))
        (one, _), (other, _) = self.library.index(paths[0]), self.library.index(paths[1])
        view, problem = self.library.comparison(*paths)
        if view is None or one is None or other is None:
            return self._waiting(request, viewer, name=f"{second} against {first}", problem=problem)
        kind, page = request.query_params.get("kind", "all"), _page(request)
        if kind not in CHANGES:
            raise _missing("kind", kind)
        skipped = (page - 1) * LISTED_ITEMS
        total, changes = await _read(lambda: one.changes(other, kind=kind, first=skipped, num=LISTED_ITEMS))

        def url(**fields: str) -> str:
            return f"{RUNS_PATH}/compare?{urlencode({'first': first, 'second': second, **fields})}#changes"

        values = {
            "view": view, "total": total, "changes": changes, "first_name": first, "second_name": second,
            "kinds": [(text, url(kind=name), name == kind) for name, text in CHANGE_NAMES.items()],
            "previous": url(kind=kind, page=str(page - 1)) if page > 1 else None,
            "next": url(kind=kind, page=str(page + 1)) if skipped + LISTED_ITEMS < total else None,
            "first_links": ServerLinks(name=first), "second_links": ServerLinks(name=second),
        }  # fmt: skip
        return self._site.page(request, "bench/comparison", viewer=viewer, **values)

    async def _path(self, name: str) -> Path:
        # The name is looked up among the runs found, so that it cannot lead out of the folder.
        found = (await asyncio.to_thread(self.library.runs)).get(name)
        if found is None:
            raise _missing("run", name)
        return found

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


def _page(request: Request) -> int:
    """Number of the page, from 1. A text that is not such a number counts as 1."""
    given = request.query_params.get("page", "1")
    return min(max(int(given), 1), MAX_PAGE) if given.isascii() and given.isdigit() and len(given) < 10 else 1


def _missing(param: str, given: str) -> Refused:
    return Refused(invalid(f"{param}: {shown(given)} does not exist", param=param, code="not_found"), status=404)

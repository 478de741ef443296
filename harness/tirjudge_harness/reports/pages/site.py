"""Pages of runs as files: no server, no script that loads anything. They work from a disk.

index.html          the report; for several runs: the list of runs and of their comparisons
items-N.html        500 items each, with texts and judgments
NAME-N.html         500 rows each of the items that meet a condition, such as wrong-1.html
run-N/              the pages of one of several runs
compared-N-M.html   run M against run N
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tirjudge.durable import write_file
from tirjudge_harness.items import InputError
from tirjudge_harness.reports.pages.comparing import compare_runs
from tirjudge_pages import PageFrame, render_page
from tirjudge_pages.bench.index import ItemQuery, RunIndex
from tirjudge_pages.bench.links import FILE_ITEMS, FileLinks
from tirjudge_pages.bench.views import ComparisonView

MAX_CHANGES = 5_000
"""Maximum number of changed items on the page of a comparison."""

OnPage = Callable[[int, int], None]
"""Called with the number of files that are written, and the number of all files of items."""

_FRAME = PageFrame(is_file=True)


def write_site(
    indexes: Sequence[RunIndex],
    *,
    names: Sequence[str],
    out: Path,
    protocol: str | None = None,
    on_page: OnPage = lambda done, total: None,
) -> None:
    """Write the pages of runs to a folder.

    Args:
        indexes: the runs.
        names: their names for readers.
        protocol: protocol of the comparisons, as for `score_run`.
        out: the folder. It is created if needed; files of an older export are replaced.
        on_page: shows the progress.

    Raises:
        InputError: the folder cannot be written.
        IndexUnusable: a run has changed since its index was written.
    """
    try:
        if len(indexes) == 1:
            _write_run(indexes[0], name=names[0], out=out, on_page=on_page)
            return
        for number, (index, name) in enumerate(zip(indexes, names, strict=True), 1):
            _write_run(index, name=name, out=out / f"run-{number}", on_page=on_page)
        runs = [
            {"url": f"run-{number}/index.html", "name": name, "view": index.view}
            for number, (index, name) in enumerate(zip(indexes, names, strict=True), 1)
        ]
        compared = list(_comparisons(indexes, names=names, out=out, protocol=protocol))
        _write(out / "index.html", "bench/list", runs=runs, comparisons=compared, nothing="")
    except OSError as error:
        raise InputError(f"--html: {out} cannot be written: {error.strerror}; choose a writable folder") from error


def _write_run(index: RunIndex, *, name: str, out: Path, on_page: OnPage) -> None:
    lists = _lists(index)
    links = FileLinks(lists={query: slug for slug, _, query, _ in lists})
    filters = [(text, count, links.items(query)) for _, text, query, count in lists]
    of_conditions = lists[: len(index.condition_names) + 1]
    counted = [(text, count, links.items(query) if count else None) for _, text, query, count in of_conditions]
    view = index.view
    _write(
        out / "index.html",
        "bench/report",
        view=view,
        name=name,
        links=links,
        filters=counted,
        reload_s=None,
        problem=None,
    )
    total = math.ceil(view.num_examples / FILE_ITEMS)
    for page in range(1, total + 1):
        items = [(one, index.answers(one)) for one in index.items(first=(page - 1) * FILE_ITEMS, num=FILE_ITEMS)]
        values = {"items": items, "page": page, "num_pages": total, "no_texts": view.no_texts}
        values |= {"is_eval": view.is_eval, "judgments_path": None}
        _write(out / f"items-{page}.html", "bench/file_items", name=name, links=links, **values)
        on_page(page, total)
    for slug, _, query, count in lists:
        num_pages = max(1, math.ceil(count / FILE_ITEMS))
        for page in range(1, num_pages + 1):
            items = index.listed(query, first=(page - 1) * FILE_ITEMS, num=FILE_ITEMS)
            values = {"items": items, "page": page, "num_pages": num_pages, "total": count, "query": query}
            values |= {"filters": filters, "this_list": links.items(query), "is_eval": view.is_eval}
            _write(out / f"{slug}-{page}.html", "bench/items", name=name, links=links, **values)


def _lists(index: RunIndex) -> list[tuple[str, str, ItemQuery, int]]:
    """Return the lists of items: name of the file, text, conditions and number of items. The first ones are all items and
    those of each condition."""
    counts = index.counts()
    found = [("all", "all items", ItemQuery(), index.view.num_examples)]
    found += [
        (name, text, ItemQuery(conditions=frozenset({name})), counts[name])
        for name, text in index.condition_names.items()
    ]
    further = [(f"basis-{one}", one, ItemQuery(basis=one)) for one in index.bases]
    further += [(f"error-{one}", f"program: {one}", ItemQuery(error=one)) for one in index.errors]
    # Names of subsets come from the data, so that the names of files have their numbers.
    further += [(f"subset-{at}", f"subset {one}", ItemQuery(subset=one)) for at, one in enumerate(index.subsets, 1)]
    return found + [(slug, text, query, index.count(query)) for slug, text, query in further]


def _comparisons(
    indexes: Sequence[RunIndex], *, names: Sequence[str], out: Path, protocol: str | None
) -> Iterator[dict[str, str]]:
    """Write the comparison of each run with the first run of the same benchmark. Yield their links."""
    firsts: dict[str, int] = {}
    for at, index in enumerate(indexes):
        first = firsts.setdefault(index.view.title, at)
        if first == at:
            continue
        text = f"{names[at]} against {names[first]}"
        try:
            view = compare_runs(indexes[first].folder, index.folder, protocol=protocol)
        except InputError as error:
            yield {"url": "", "text": f"{text}: {error}"}
            continue
        url = f"compared-{first + 1}-{at + 1}.html"
        _write_comparison(out / url, view, indexes=indexes, names=names, pair=(first, at))
        yield {"url": url, "text": text}


def _write_comparison(
    path: Path, view: ComparisonView, *, indexes: Sequence[RunIndex], names: Sequence[str], pair: tuple[int, int]
) -> None:
    first, second = pair
    total, changes = indexes[first].changes(
        indexes[second], kind="all", first=0, num=MAX_CHANGES, left_out=view.left_out
    )
    _write(
        path,
        "bench/comparison",
        view=view,
        total=total,
        changes=changes,
        kinds=(),
        is_eval=indexes[second].view.is_eval,
        previous=None,
        next=None,
        first_name=names[first],
        second_name=names[second],
        first_links=FileLinks(lists={}, folder=f"run-{first + 1}/"),
        second_links=FileLinks(lists={}, folder=f"run-{second + 1}/"),
    )


def _write(path: Path, template: str, **values: Any) -> None:
    write_file(path, render_page(template, frame=_FRAME, **values))

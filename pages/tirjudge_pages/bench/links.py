"""Links of the pages of runs: paths of the server, and names of files of a static export."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol
from urllib.parse import quote, urlencode

from tirjudge_pages.bench.index import CONDITIONS, ItemQuery

RUNS_PATH = "/ui/runs"
"""Path of the list of runs on the server."""

LISTED_ITEMS = 100
"""Number of items on a page of the server."""

FILE_ITEMS = 500
"""Number of items on a page of a static export."""


class RunLinks(Protocol):
    """Links from a page of a run."""

    @property
    def report(self) -> str:
        """The report of the run."""
        ...

    def items(self, query: ItemQuery, *, page: int = 1) -> str | None:
        """A list of items. None: there is no page with these conditions."""
        ...

    def item(self, place: int) -> str:
        """One item. `place`: its position in the run."""
        ...


EVALS_PATH = "/ui/evals"
"""Path of the list of evals on the server."""

EVAL_RUNS_PATH = f"{EVALS_PATH}/runs"
"""Path of the pages of the runs of evals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLinks:
    """Links to pages of a server."""

    name: str
    """Name of the run: its path below the folder of runs, or the id of an eval's run."""
    path: str = RUNS_PATH
    """Path of the pages of all runs."""

    @property
    def report(self) -> str:
        """Path of the report."""
        return f"{self.path}/report/{quote(self.name)}"

    def items(self, query: ItemQuery, *, page: int = 1) -> str:
        """Path of a list of items."""
        fields = {name: "on" for name in CONDITIONS if name in query.conditions}
        fields |= {name: value for name in ("subset", "basis", "error", "id") if (value := getattr(query, name))}
        fields |= {"sort": "confidence"} if query.by_confidence else {}
        fields |= {"page": str(page)} if page > 1 else {}
        # surrogatepass: the name of a subset can have lone surrogates, which UTF-8 has no bytes for.
        encoded = urlencode(fields, errors="surrogatepass")
        return f"{self.path}/items/{quote(self.name)}" + (f"?{encoded}" if encoded else "")

    def item(self, place: int) -> str:
        """Path of one item."""
        return f"{self.path}/item/{place}/{quote(self.name)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLinks:
    """Links between files of a static export."""

    lists: Mapping[ItemQuery, str]
    """Conditions -> name of the files that list their items, without the number of the page."""
    folder: str = ""
    """Path of the folder of the run from the page with the links, with a slash at the end. Empty: the same folder."""

    @property
    def report(self) -> str:
        """Name of the file of the report."""
        return f"{self.folder}index.html"

    def items(self, query: ItemQuery, *, page: int = 1) -> str | None:
        """Name of the file that lists items. None: the export has no such list."""
        name = self.lists.get(replace(query, by_confidence=False))
        return None if name is None else f"{self.folder}{name}-{page}.html"

    def item(self, place: int) -> str:
        """Name of the file with an item, and its place there."""
        return f"{self.folder}items-{place // FILE_ITEMS + 1}.html#item-{place}"


def query_of(fields: Mapping[str, str]) -> ItemQuery:
    """Return the conditions that the fields of a form describe. Unknown fields are ignored."""
    return ItemQuery(
        conditions=frozenset(name for name in CONDITIONS if fields.get(name)),
        subset=fields.get("subset") or None,
        basis=fields.get("basis") or None,
        error=fields.get("error") or None,
        id=fields.get("id") or None,
        by_confidence=fields.get("sort") == "confidence",
    )

"""Where the pages of runs find them: a folder of benchmark runs, or the runs of evals."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tirjudge.http.protocol import invalid, shown
from tirjudge_pages.bench.index import RunIndex
from tirjudge_pages.bench.links import ServerLinks
from tirjudge_pages.bench.views import ComparisonView
from tirjudge_server.ui.site import Viewer
from tirjudge_web.errors import Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRun:
    """A run whose pages are shown."""

    title: str
    """Name for readers."""
    folder: Path
    """Folder of the run."""
    index: RunIndex | None
    """The index, which can be out of date. None: there is none yet."""
    problem: str | None
    """Why the index could not be written. None: no problem."""
    goes_on: bool
    """Whether the pages of the run may change."""
    links: ServerLinks
    """Links to its pages."""


class RunSource(Protocol):
    """A group of runs with pages."""

    @property
    def path(self) -> str:
        """Path of the pages."""
        ...

    async def find(self, name: str, *, viewer: Viewer) -> FoundRun:
        """Return a run that the reader may read.

        Raises:
            Refused: 404, the run does not exist.
        """
        ...

    async def comparison(self, first: FoundRun, second: FoundRun) -> tuple[ComparisonView | None, str | None]:
        """Return the comparison of two runs; None: there is none yet. Then the problem of its process; None: none."""
        ...


def missing(param: str, given: str) -> Refused:
    """Return the refusal of a name that does not exist."""
    return Refused(invalid(f"{param}: {shown(given)} does not exist", param=param, code="not_found"), status=404)

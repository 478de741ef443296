"""What the pages of runs show: tables, charts, one run, one item, and the comparison of two runs.

The harness fills these types and stores them as JSON, so they are pydantic models.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class StoredView(BaseModel):
    """Base class of what is stored."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class TableHead(StoredView):
    """The head of a column."""

    title: str
    group: str = ""
    """Heading above the titles of adjacent columns. Empty: no heading."""
    is_number: bool = False
    """Whether the column has numbers, which are aligned on the right."""


class TableCell(StoredView):
    """One cell."""

    text: str
    notes: str = ""
    """Symbols of the footnotes on the cell."""


class TableLine(StoredView):
    """One row."""

    cells: tuple[TableCell, ...]
    depth: int = 0
    """Indentation level of the first cell."""
    is_ours: bool = False
    """Whether the row is about a run. False: a published row."""


class TableView(StoredView):
    """A table."""

    title: str
    heads: tuple[TableHead, ...]
    lines: tuple[TableLine, ...]
    notes: tuple[str, ...] = ()
    """Footnotes, then notes on the whole table."""

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Each heading above the titles, with its number of columns. Empty: no column has one."""
        found: list[tuple[str, int]] = []
        for head in self.heads:
            if found and found[-1][0] == head.group:
                found[-1] = (head.group, found[-1][1] + 1)
            else:
                found.append((head.group, 1))
        return found if any(group for group, _ in found) else []


class ChartPoint(StoredView):
    """One point with its 95 % interval, in percent."""

    label: str
    """Name of the point. In a reliability chart: the bin of confidence."""
    value: float
    low: float
    high: float
    num: int
    """Number of observations."""
    at: float | None = None
    """Mean confidence in percent. None: not a point of a reliability chart."""


class ChartView(StoredView):
    """A chart of shares in percent."""

    kind: Literal["shares", "reliability"]
    """`shares`: one line per point. `reliability`: accuracy against confidence."""
    title: str
    points: tuple[ChartPoint, ...]
    reference: float | None = None
    """Value without an effect, in percent. None: there is none."""


class SectionView(StoredView):
    """A section of the page of a run."""

    title: str
    table: TableView
    charts: tuple[ChartView, ...] = ()


class RunView(StoredView):
    """One run as a whole."""

    title: str
    """Title of the benchmark."""
    judge: str
    """Name of the judge."""
    notes: tuple[str, ...]
    """Settings of the run, one sentence each."""
    headline: TableView
    """The figures of the benchmark, by subset."""
    published: tuple[TableView, ...]
    """Tables of the paper with the columns of this benchmark and our row."""
    sections: tuple[SectionView, ...]
    num_examples: int
    num_judged: int
    """Number of examples whose requests are all answered. An example with a tie as label has no requests."""
    num_failures: int
    """Number of failed requests without a judgment."""
    read_at: int
    """Unix time in seconds at which the run was read."""
    no_texts: str = ""
    """Why prompts and responses are missing. Empty: the index has them."""
    is_eval: bool = False
    """Whether the run is one of an eval: an item passes or fails, and `judge` is the model that wrote the samples."""

    @property
    def num_missing(self) -> int:
        """Number of examples without a result: not judged yet, or failed."""
        return self.num_examples - self.num_judged

    @property
    def main(self) -> str:
        """The main figure as text. Empty: the benchmark has none."""
        return self.headline.lines[0].cells[1].text if self.headline.lines else ""


class ComparisonView(StoredView):
    """Paired differences of two runs."""

    table: TableView
    """Differences of each figure, with intervals and p-values."""
    fingerprints: tuple[str, str]
    """`run_fingerprint` of the first run and of the second, when they were compared."""
    left_out: list[str]
    """Ids of the items of both runs that are not compared, because their texts or labels differ."""

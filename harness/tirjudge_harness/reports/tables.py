"""Tables independent of a format: columns, rows of entries, and notes on entries.

Shares in tables are percentages, 0 to 100. Strings such as the name of a judge or a folder are untrusted: `plain` removes
line breaks and terminal control characters, and each format escapes its special characters.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tirjudge_harness.metric_tree import MetricValue
    from tirjudge_harness.statistics.intervals import Estimate, Interval

Kind = Literal["text", "percent", "points", "count", "number"]
"""`percent`: 0 to 100. `points`: difference of two percentages. `count`: integer. `number`: 3 digits."""

SYMBOLS = "†‡§¶‖"
"""Symbols of footnotes, in order of appearance. From the sixth footnote on, symbols are doubled."""

MAX_TEXT = 120
"""Maximum length of the text of an entry, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table."""

    key: str
    """Name in CSV, Parquet and JSON."""
    title: str
    """Title for readers."""
    group: str = ""
    """Heading above the titles of adjacent columns. Empty: no heading."""
    kind: Kind = "percent"
    """Kind of the values."""
    ends: bool = False
    """Whether readers see both ends of an interval. False: the distance from the value to the farther end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEntry:
    """One cell of a table."""

    value: float | int | str | None = None
    """The value. None: no value."""
    interval: tuple[float, float] | None = None
    """95 % confidence interval, in the unit of the value. None: unknown."""
    num: int | None = None
    """Number of comparisons that the value is a mean over. None: unknown."""
    notes: tuple[str, ...] = ()
    """Footnotes on this entry."""
    kind: Kind | None = None
    """Kind of the value. None: the kind of the column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """A row of a table."""

    entries: tuple[TableEntry, ...]
    """One entry per column."""
    ours: bool = False
    """Whether the row is from our runs; False: it is a published row."""
    depth: int = 0
    """Indentation level of the first entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTable:
    """A table, independent of a format.

    Raises:
        ValueError: a row has more or fewer entries than there are columns.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()
    """Notes on the whole table."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.entries) != len(self.columns):
                raise ValueError(f"{self.title}: a row has {len(row.entries)} entries for {len(self.columns)} columns")

    def _repr_html_(self) -> str:
        """The table as notebooks show it."""
        from tirjudge_harness.reports.formats import html

        return html(self)


def row(*values: TableEntry | float | str | None, depth: int = 0, ours: bool = False) -> TableRow:
    """Return a row of entries. Values that are not entries become entries without interval and notes."""
    entries = (value if isinstance(value, TableEntry) else TableEntry(value=value) for value in values)
    return TableRow(entries=tuple(entries), depth=depth, ours=ours)


def percent(value: float | None, *, interval: Interval | None = None, num: int | None = None) -> TableEntry:
    """Return the entry of a share from 0 to 1, as a percentage."""
    low_high = None if interval is None else (100 * interval[0], 100 * interval[1])
    return TableEntry(value=None if value is None else 100 * value, interval=low_high, num=num)


def percent_of(estimate: Estimate | MetricValue) -> TableEntry:
    """Return the entry of an estimated share from 0 to 1, with its interval."""
    return percent(estimate.value, interval=estimate.interval)


def footnotes(table: ReportTable) -> dict[str, str]:
    """Return the symbol of each note on an entry, in reading order."""
    notes = dict.fromkeys(note for row in table.rows for entry in row.entries for note in entry.notes)
    return {note: SYMBOLS[index % len(SYMBOLS)] * (1 + index // len(SYMBOLS)) for index, note in enumerate(notes)}


def is_mixed(table: ReportTable) -> bool:
    """Whether the table has both our rows and published rows."""
    return {row.ours for row in table.rows} == {True, False}


def grouped(table: ReportTable) -> list[tuple[str, int]]:
    """Return each heading and its number of columns. Columns without a heading are separate."""
    groups = groupby(enumerate(table.columns), key=lambda one: (one[1].group, one[1].group == "" and one[0]))
    return [(group, len(list(columns))) for (group, _), columns in groups]


def shown(entry: TableEntry, *, column: Column) -> str:
    """Return the text of an entry: `71.4 ±4.9` with the distance to the farther end of the interval, or `71.4 (66.5 to
    75.8)` with both ends."""
    kind = entry.kind or column.kind
    if entry.value is None:
        return "" if column.kind == "text" else "-"
    if isinstance(entry.value, str):
        return short(entry.value)
    text = _number(entry.value, kind=kind)
    if entry.interval is None:
        return text
    low, high = entry.interval
    if column.ends:
        return f"{text} ({_number(low, kind=kind)} to {_number(high, kind=kind)})"
    return f"{text} ±{_number(max(entry.value - low, high - entry.value), kind=kind)}"


def _number(value: float, *, kind: Kind) -> str:
    if kind == "count":
        return f"{value:,.0f}"
    if kind == "percent":
        return f"{value:.1f}"
    if kind == "points":
        return f"{value:+.1f}"
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def plain(text: str) -> str:
    """Return a text as one line without control characters.

    >>> plain("a\\n\\x1b[31mb")
    'a [31mb'
    """
    hidden = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return " ".join("".join(" " if unicodedata.category(letter) in hidden else letter for letter in text).split())


def short(text: str) -> str:
    """Apply `plain`, and cut the text to `MAX_TEXT` characters."""
    line = plain(text)
    return line if len(line) <= MAX_TEXT else f"{line[: MAX_TEXT - 1]}…"


def num_row(table: ReportTable, row: TableRow) -> list[str] | None:
    """Return the line below a row that shows the number of comparisons of each entry. None: no entry has a number."""
    if all(entry.num is None for entry in row.entries):
        return None
    nums = ["" if entry.num is None else f"{entry.num:,}" for entry in row.entries]
    return [nums[0] or "n", *nums[1:]]

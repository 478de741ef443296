"""A table before it has a format: columns, rows of entries, and the notes that entries carry.

Shares are percentages here, 0 to 100, as they are printed. What is text comes from strangers (a judge's name, a folder's
name): `plain` takes out what would break a line or command a terminal, and each format escapes the rest for itself.
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
"""`percent`: 0 to 100. `points`: a difference of two of them. `count`: whole. `number`: three digits."""

SYMBOLS = "†‡§¶‖"
"""Of footnotes, in the order in which they appear; the sixth is the first one doubled."""

MAX_TEXT = 120
"""Of an entry, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """What is in a column."""

    key: str
    """Its name in CSV, Parquet and JSON."""
    title: str
    group: str = ""
    """What several neighbouring columns have over their titles; empty: nothing."""
    kind: Kind = "percent"
    ends: bool = False
    """Whether readers see both ends of an interval, and not its longer arm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEntry:
    """What is in one place of a table."""

    value: float | int | str | None = None
    """None: there is none."""
    interval: tuple[float, float] | None = None
    """95 %, in the unit of the value; None: not known."""
    num: int | None = None
    """How many comparisons it is a mean over; None: not known."""
    notes: tuple[str, ...] = ()
    """What a reader has to know about this entry by itself."""
    kind: Kind | None = None
    """None: as its column says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One line of a table."""

    entries: tuple[TableEntry, ...]
    """One a column."""
    ours: bool = False
    """Whether it was measured here, and not published by others."""
    depth: int = 0
    """How far its first entry is indented."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTable:
    """A table without a format."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()
    """What holds for the whole of it."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.entries) != len(self.columns):
                raise ValueError(f"{self.title}: a row of {len(row.entries)} entries, {len(self.columns)} columns")


def row(*values: TableEntry | float | str | None, depth: int = 0, ours: bool = False) -> TableRow:
    """A row of entries, or of values that become entries as they are."""
    entries = (value if isinstance(value, TableEntry) else TableEntry(value=value) for value in values)
    return TableRow(entries=tuple(entries), depth=depth, ours=ours)


def percent(value: float | None, *, interval: Interval | None = None, num: int | None = None) -> TableEntry:
    """The entry of a share from 0 to 1."""
    low_high = None if interval is None else (100 * interval[0], 100 * interval[1])
    return TableEntry(value=None if value is None else 100 * value, interval=low_high, num=num)


def percent_of(estimate: Estimate | MetricValue) -> TableEntry:
    """The entry of a share from 0 to 1, with its interval."""
    return percent(estimate.value, interval=estimate.interval)


def footnotes(table: ReportTable) -> dict[str, str]:
    """The symbol of each note that entries carry, in the order in which a reader meets them."""
    met = dict.fromkeys(note for row in table.rows for entry in row.entries for note in entry.notes)
    return {note: SYMBOLS[index % len(SYMBOLS)] * (1 + index // len(SYMBOLS)) for index, note in enumerate(met)}


def is_mixed(table: ReportTable) -> bool:
    """Whether there are rows of ours and rows of others, so that readers have to tell them apart."""
    return {row.ours for row in table.rows} == {True, False}


def grouped(table: ReportTable) -> list[tuple[str, int]]:
    """The headings over the titles, and how many columns each spans; runs of columns without one are one by one."""
    groups = groupby(enumerate(table.columns), key=lambda one: (one[1].group, one[1].group == "" and one[0]))
    return [(group, len(list(columns))) for (group, _), columns in groups]


def shown(entry: TableEntry, *, column: Column) -> str:
    """What readers see: `71.4 ±4.9` with the longer arm of the interval, or `71.4 (66.5 to 75.8)` with its ends."""
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
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def plain(text: str) -> str:
    """One line without control characters.

    >>> plain("a\\n\\x1b[31mb")
    'a [31mb'
    """
    hidden = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return " ".join("".join(" " if unicodedata.category(letter) in hidden else letter for letter in text).split())


def short(text: str) -> str:
    """As `plain`, at most `MAX_TEXT` characters."""
    line = plain(text)
    return line if len(line) <= MAX_TEXT else f"{line[: MAX_TEXT - 1]}…"


def num_row(table: ReportTable, row: TableRow) -> list[str] | None:
    """What stands under a row of ours in formats for readers: how many comparisons are behind each entry; None: not known."""
    if all(entry.num is None for entry in row.entries):
        return None
    nums = ["" if entry.num is None else f"{entry.num:,}" for entry in row.entries]
    return [nums[0] or "n", *nums[1:]]

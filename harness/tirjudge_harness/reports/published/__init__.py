"""Published tables, as printed, with what a reader has to know before setting a figure beside them.

A table is a CSV whose first line names its source; `columns.csv` says which figure of ours belongs in which column. Its
`notes` are keys of `notes.csv`, where each note says which figures it speaks of (`judgebench_*`: all whose names begin so)
and whether they can be compared with figures measured here.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

PublishedTable = Literal["main", "rewardbench2", "subsets", "best_of_n"]

SOURCE = "# source: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What a reader has to know about some figures of a row."""

    figures: tuple[str, ...]
    """Column names; `name_*` is all that begin so."""
    comparable: bool
    """Whether the figures can be set beside others in their column all the same."""
    text: str

    def speaks_of(self, figure: str) -> bool:
        return any(figure == name or (name.endswith("*") and figure.startswith(name[:-1])) for name in self.figures)

    def __str__(self) -> str:
        return f"{self.text}." if self.comparable else f"Not comparable. {self.text}."


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRow:
    """One row of a published table."""

    texts: Mapping[str, str]
    """By column; empty where nothing is printed."""
    notes: tuple[Note, ...]

    def number(self, figure: str) -> float | None:
        """As printed; None: nothing is."""
        text = self.texts.get(figure, "")
        return float(text) if text else None

    def notes_on(self, figure: str) -> tuple[str, ...]:
        return tuple(str(note) for note in self.notes if note.speaks_of(figure))


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedColumn:
    """A column of a published table, and which figure of ours belongs there."""

    key: str
    """Of the published column."""
    title: str
    group: str
    """What several neighbouring columns have over their titles; empty: nothing."""
    benchmark: str
    """Empty: best-of-N."""
    figure: str
    """Of the benchmark; of best-of-N a strategy or a baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One published table."""

    source: str
    columns: tuple[PublishedColumn, ...]
    rows: tuple[PublishedRow, ...]


@cache
def published(table: PublishedTable) -> Published:
    """A published table."""
    notes = _notes()
    head, *lines = _lines(f"{table}.csv")
    rows = (
        PublishedRow(texts=row, notes=tuple(notes[key] for key in row["notes"].split()))
        for row in csv.DictReader(lines)
    )
    columns = (
        PublishedColumn(**{key: value for key, value in row.items() if key != "table"})
        for row in csv.DictReader(_lines("columns.csv"))
        if row["table"] == table
    )
    return Published(source=head.removeprefix(SOURCE), columns=tuple(columns), rows=tuple(rows))


@cache
def _notes() -> Mapping[str, Note]:
    return {
        row["key"]: Note(figures=tuple(row["figures"].split()), comparable=row["comparable"] == "yes", text=row["note"])
        for row in csv.DictReader(_lines("notes.csv"))
    }


def _lines(name: str) -> Sequence[str]:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8").splitlines()

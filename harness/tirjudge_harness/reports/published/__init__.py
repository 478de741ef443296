"""Published tables as printed, with notes on the comparability of their figures.

Each table is a CSV file whose first line names its source. `columns.csv` maps its columns to figures of our benchmarks.
Its column `notes` has keys of `notes.csv`. Each note lists the figures it applies to (`judgebench_*`: all figures with
this prefix) and whether they are comparable with our figures.
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
    """A note on figures of a row."""

    figures: tuple[str, ...]
    """Column names; `name_*` is a prefix."""
    comparable: bool
    """Whether the figures are comparable with others in their column despite the note."""
    text: str
    """The note, without a final full stop."""

    def applies_to(self, figure: str) -> bool:
        """Whether the note is about a column."""
        return any(figure == name or (name.endswith("*") and figure.startswith(name[:-1])) for name in self.figures)

    def __str__(self) -> str:
        return f"{self.text}." if self.comparable else f"Not comparable. {self.text}."


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRow:
    """One row of a published table."""

    texts: Mapping[str, str]
    """Text by column; empty where the paper prints nothing."""
    notes: tuple[Note, ...]
    """Notes on the row."""

    def number(self, figure: str) -> float | None:
        """Return the number in a column. None: the paper prints nothing there."""
        text = self.texts.get(figure, "")
        return float(text) if text else None

    def notes_on(self, figure: str) -> tuple[str, ...]:
        """Return the texts of the notes on a column."""
        return tuple(str(note) for note in self.notes if note.applies_to(figure))


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedColumn:
    """A column of a published table, and the figure of our runs that belongs in it."""

    key: str
    """Name of the column in the CSV file."""
    title: str
    """Title for readers."""
    group: str
    """Heading above the titles of adjacent columns. Empty: no heading."""
    benchmark: str
    """Name of our benchmark. Empty: best-of-N."""
    figure: str
    """Name of the benchmark's figure; for best-of-N, of a strategy or baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One published table."""

    source: str
    """The paper and the number of the table."""
    columns: tuple[PublishedColumn, ...]
    rows: tuple[PublishedRow, ...]


@cache
def published(table: PublishedTable) -> Published:
    """Return a published table."""
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

"""The verdicts of `tirjudge judge FILE --out FILE.csv`: one row per judged item, for a spreadsheet.

The judgments are in a second file beside the table, from which a run is resumed. The table is written at the end of each run.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path

from tirjudge.durable import StorageError, write_file
from tirjudge.types import Judgment, label_of
from tirjudge_harness.items import InputError, ItemId, Task
from tirjudge_harness.output import OutputRecord

COLUMNS = ("row", "id", "best", "confidence", "basis", "scores")

NO_VERDICT = "none"
"""Value of `best` for an abstention."""


OTHER_FORMATS = (
    ".arrow", ".bz2", ".feather", ".gz", ".json", ".ods", ".parquet", ".tsv", ".xls", ".xlsx", ".xml", ".xz", ".yaml", ".yml",
    ".zip", ".zst",
)  # fmt: skip
"""Endings of formats that are not written. A file with another ending, or without one, has JSON lines."""


def refuse_other_formats(out: Path | None) -> None:
    """Raise InputError if the ending of an output file is that of a format that is not written."""
    if out is not None and out.suffix.lower() in OTHER_FORMATS:
        raise InputError(f"--out: {out} has the ending of another format; give .jsonl or .csv")


def is_table(out: Path | None) -> bool:
    """Whether an output file is a table of verdicts by the ending of its name."""
    return out is not None and out.suffix.lower() == ".csv"


def refuse_table(source: Path) -> None:
    """Raise InputError if a file is a table of verdicts. The message names the file of its judgments."""
    if is_table(source) and source.is_file():
        with source.open(encoding="utf-8", errors="replace") as file:
            header = file.readline().strip()
        if header == ",".join(COLUMNS):
            raise InputError(f"{source}: a table of verdicts; give the file of its judgments, {_beside(source)}")


def judgments_of(table: Path, *, source: Path) -> Path:
    """Return the file of the judgments of a table.

    Args:
        table: the table to write.
        source: the input file.

    Raises:
        InputError: the table is the input, or a file that was not written by `tirjudge judge`.
    """
    judgments = _beside(table)
    if table.exists() and source.exists() and table.samefile(source):
        raise InputError(f"--out: {table} is the input; give another file")
    if table.exists() and not judgments.exists():
        raise InputError(f"--out: {table} exists, and its judgments ({judgments.name}) do not; give another file")
    return judgments


def _beside(table: Path) -> Path:
    return table.with_name(f"{table.name}.jsonl")


def write_table(table: Path, *, tasks: Iterable[Task], lines: Mapping[ItemId, OutputRecord]) -> None:
    """Write the rows of the judged items, in the order of the input.

    Args:
        table: file to write.
        tasks: items of the run.
        lines: finished items by id.

    Raises:
        StorageError: the file cannot be written.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for task in tasks:
        record = lines.get(task.item.id)
        if record is not None and record.judgment is not None:
            writer.writerow([task.number, task.item.id, *_cells(record.judgment)])
    try:
        write_file(table, text.getvalue())
    except OSError as error:
        raise StorageError(f"{table}: cannot be written: {error.strerror}; run the same command again") from error


def _cells(judgment: Judgment) -> list[str]:
    """Return the cells from `best` on. `best` is empty for a single response, which has a score."""
    verdict = judgment.verdict
    best = {"tie": "tie", "abstained": NO_VERDICT}.get(verdict.status, "")
    if verdict.best is not None:
        best = label_of(verdict.best)
    confidence = "" if verdict.confidence is None else f"{verdict.confidence:.3f}"
    scores = " ".join("-" if score is None else f"{score:g}" for score in verdict.scores or ())
    return [best, confidence, verdict.basis or "", scores]

"""Read files of rows: `.json`, `.jsonl`, `.csv` and `.parquet`, each optionally compressed (`.gz`). An invalid row is
returned with its problem and does not stop the other rows.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tirjudge_harness.benchmark import Row
from tirjudge_harness.items import InputError

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedRow:
    """One row of a file."""

    number: int
    """Row number, counted from 1. In a `.jsonl` file, the line number; in a CSV file, the header is not counted."""
    row: Row | None
    """Columns of the row. None: the row is invalid."""
    problem: str = ""
    """Reason why the row is invalid."""


def is_row_file(path: Path) -> bool:
    """Whether a file exists and has a supported suffix."""
    return _kind_of(path) in _READERS and path.is_file()


def stem_of(path: Path) -> str:
    """Return a file name without its format suffixes and its shard number.

    >>> [stem_of(Path(name)) for name in ("claude_3.7.jsonl.gz", "gpt-00000-of-00001.parquet")]
    ['claude_3.7', 'gpt']
    """
    stem = path.name.removesuffix(".gz").removesuffix(f".{_kind_of(path)}")
    head, _, total = stem.rpartition("-of-")
    name, _, piece = head.rpartition("-")
    return name if name and piece.isdecimal() and total.isdecimal() else stem


def read_rows(path: Path) -> list[NumberedRow]:
    """Read all rows of a file.

    Raises:
        InputError: the file cannot be read, has no rows, or does not have the format of its suffix.
    """
    kind = _kind_of(path)
    if kind not in _READERS:
        raise InputError(f"{path}: unknown suffix {path.suffix!r}; expected {', '.join(_READERS)}, optionally with .gz")
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    rows = list(_READERS[kind](content.removeprefix(_BYTE_ORDER_MARK), str(path)))
    if not rows:
        raise InputError(f"{path}: the file has no rows")
    return rows


def _kind_of(path: Path) -> str:
    return path.name.removesuffix(".gz").rpartition(".")[2].lower()


def numbered(rows: Iterable[Any], *, start: int = 1) -> Iterator[NumberedRow]:
    """Yield rows with their numbers, counted from `start`. A value that is not an object is an invalid row."""
    for number, row in enumerate(rows, start=start):
        if isinstance(row, dict):
            yield NumberedRow(number=number, row=row)
        else:
            yield NumberedRow(number=number, row=None, problem=f"expected an object, got {_named(row)}")


def _of_json(content: bytes, source: str) -> Iterator[NumberedRow]:
    try:
        document = _parsed(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: not JSON: {error}; if each line is an object, rename the file to .jsonl") from None
    lists = [document] if isinstance(document, list) else []
    if isinstance(document, dict):
        lists = [value for value in document.values() if isinstance(value, list)]
    if len(lists) != 1:
        raise InputError(f"{source}: expected one list of rows, got {_named(document)} with {len(lists)} lists")
    yield from numbered(lists[0])


def _of_lines(content: bytes, source: str) -> Iterator[NumberedRow]:
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            yield from numbered([_parsed(line)], start=number)
        except (ValueError, RecursionError) as error:
            yield NumberedRow(number=number, row=None, problem=f"not JSON: {error}")


def _of_csv(content: bytes, source: str) -> Iterator[NumberedRow]:
    csv.field_size_limit(max(csv.field_size_limit(), len(content)))
    text = content.decode(errors="surrogateescape")
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        header = next(reader, [])
        for number, cells in enumerate(filter(None, reader), start=1):
            row: dict[str, str] = {}
            if len(cells) != len(header) or "" in header:
                problem = f"expected {len(header)} cells, as in the header, got {len(cells)}"
            else:
                row = dict(zip(header, cells, strict=True))
                problem = "" if all(map(_is_encodable, row.values())) else "not UTF-8"
            yield NumberedRow(number=number, row=None if problem else row, problem=problem)
    except csv.Error as error:
        raise InputError(f"{source}: line {reader.line_num}: not CSV: {error}") from None


def _of_parquet(content: bytes, source: str) -> Iterator[NumberedRow]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError(f"{source}: parquet needs pyarrow: pip install 'tirjudge[bench]'") from None
    try:
        table = pq.read_table(pa.BufferReader(content))
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{source}: cannot be read as Parquet: {error}") from None
    return numbered(table.to_pylist())


_READERS: dict[str, Callable[[bytes, str], Iterator[NumberedRow]]] = {
    "json": _of_json,
    "jsonl": _of_lines,
    "csv": _of_csv,
    "parquet": _of_parquet,
}


def _parsed(content: bytes) -> Any:
    """Parse JSON. NaN and infinities, which Python writes but JSON does not have, become null."""
    return json.loads(content.decode(), parse_constant=lambda _: None)


def _is_encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _named(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")

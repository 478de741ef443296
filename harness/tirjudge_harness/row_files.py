"""Files of rows: `.json`, `.jsonl`, `.csv` and `.parquet`, each perhaps `.gz`. A row that cannot be read does not stop the
others.
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
    """A row of a file."""

    number: int
    """Counted from 1; of a `.jsonl` file its line, of a CSV file without the header."""
    row: Row | None
    """None: it could not be read."""
    problem: str = ""
    """Why not."""


def is_row_file(path: Path) -> bool:
    """Whether rows can be read from a file of that name."""
    return _kind_of(path) in _READERS and path.is_file()


def stem_of(path: Path) -> str:
    """The name of a file without what says how it is written, and without the number of a piece.

    >>> [stem_of(Path(name)) for name in ("claude_3.7.jsonl.gz", "gpt-00000-of-00001.parquet")]
    ['claude_3.7', 'gpt']
    """
    stem = path.name.removesuffix(".gz").removesuffix(f".{_kind_of(path)}")
    head, _, total = stem.rpartition("-of-")
    name, _, piece = head.rpartition("-")
    return name if name and piece.isdecimal() and total.isdecimal() else stem


def read_rows(path: Path) -> list[NumberedRow]:
    """The rows of a file.

    Raises:
        InputError: the file cannot be read, or is not what its name says.
    """
    kind = _kind_of(path)
    if kind not in _READERS:
        raise InputError(
            f"{path}: {path.suffix or 'no suffix'} given; {', '.join(_READERS)} can be read, perhaps with .gz"
        )
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    rows = list(_READERS[kind](content.removeprefix(_BYTE_ORDER_MARK), str(path)))
    if not rows:
        raise InputError(f"{path}: there is no row in it")
    return rows


def _kind_of(path: Path) -> str:
    return path.name.removesuffix(".gz").rpartition(".")[2].lower()


def numbered(rows: Iterable[Any], *, start: int = 1) -> Iterator[NumberedRow]:
    """Rows with their numbers; what is no object is not a row."""
    for number, row in enumerate(rows, start=start):
        if isinstance(row, dict):
            yield NumberedRow(number=number, row=row)
        else:
            yield NumberedRow(number=number, row=None, problem=f"{_named(row)} given, an object wanted")


def _of_json(content: bytes, source: str) -> Iterator[NumberedRow]:
    try:
        document = _parsed(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: not JSON: {error}; a file with one object a line is to be called .jsonl") from None
    lists = [document] if isinstance(document, list) else []
    if isinstance(document, dict):
        lists = [value for value in document.values() if isinstance(value, list)]
    if len(lists) != 1:
        raise InputError(
            f"{source}: {_named(document)} with {len(lists)} lists in it given; one list of rows is wanted"
        )
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
                problem = f"it does not have {len(header)} cells, as the header has"
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
        raise InputError(f"{source}: parquet is read with pyarrow; pip install 'tirjudge[bench]'") from None
    try:
        table = pq.read_table(pa.BufferReader(content))
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{source}: not parquet: {error}") from None
    return numbered(table.to_pylist())


_READERS: dict[str, Callable[[bytes, str], Iterator[NumberedRow]]] = {
    "json": _of_json,
    "jsonl": _of_lines,
    "csv": _of_csv,
    "parquet": _of_parquet,
}


def _parsed(content: bytes) -> Any:
    """NaN and infinities, which Python writes, are no JSON: they become null."""
    return json.loads(content.decode(), parse_constant=lambda _: None)


def _is_encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _named(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")

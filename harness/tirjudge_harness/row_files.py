"""Read files of rows: `.json`, `.jsonl`, `.csv`, `.tsv` and `.parquet`, each optionally compressed (`.gz`). An invalid row
is returned with its problem and does not stop the other rows.

Text files are UTF-8, or UTF-16 with a byte order mark, as Excel writes it. The separator of a CSV file is the one of `,`,
`;`, tab and `|` that gives the header the most columns.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tirjudge_harness.benchmark import Row
from tirjudge_harness.items import InputError, refuse_array

_SEPARATORS = ",;\t|"
"""Separators of CSV files."""

_GZIP = b"\x1f\x8b"
"""First bytes of a file that gzip compressed."""

_SEP = "sep="
"""Start of the first line of some CSV files, which names the separator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedRow:
    """One row of a file."""

    number: int
    """Row number, counted from 1. In a `.jsonl` file, the line number; in a CSV file, the header is not counted, and blank
    rows are."""
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
    if content.startswith(_GZIP):
        advice = (
            "decompress it once" if path.suffix == ".gz" else f"rename the file to {path.name}.gz, or decompress it"
        )
        raise InputError(f"{path}: the content is compressed with gzip; {advice}")
    rows = list(_READERS[kind](content if kind == "parquet" else _as_utf8(content, str(path)), str(path)))
    if not rows:
        raise InputError(f"{path}: the file has no rows")
    return rows


def _as_utf8(content: bytes, source: str) -> bytes:
    """Return a text file as UTF-8 without a byte order mark. Text without such a mark is UTF-8 already."""
    if not content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.removeprefix(codecs.BOM_UTF8)
    try:
        return content.decode("utf-16").encode(errors="surrogatepass")
    except UnicodeDecodeError as error:
        raise InputError(f"{source}: not UTF-16, although it begins with its mark: {error.reason}") from None


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
    refuse_array(content, source=source)
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
    start = _header_start(text)
    separator = text[len(_SEP)] if start else _separator_of(text)
    reader = csv.reader(io.StringIO(text[start:], newline=""), delimiter=separator, strict=True)
    try:
        header = _named_columns(next(reader, []), source)
        for number, cells in enumerate(reader, start=1):
            if any(cells):
                yield _row_of_cells(cells, header=header, number=number)
    except csv.Error as error:
        raise InputError(
            f"{source}: line {reader.line_num}: not CSV: {error}; a cell with quotes, separators or line breaks is in double "
            "quotes, and quotes in it are doubled"
        ) from None


def _header_start(text: str) -> int:
    """Return the position of the header: after a line such as `sep=;`, which Excel reads, or 0."""
    head = text[:8]
    if not head.lower().startswith(_SEP) or head[len(_SEP) :][:1] not in (*_SEPARATORS,):
        return 0
    return len(head.splitlines(keepends=True)[0])


def _separator_of(text: str) -> str:
    """Return the separator that gives the header the most columns; the first of `_SEPARATORS` among equals."""
    widths: dict[str, int] = {}
    for separator in _SEPARATORS:
        try:
            widths[separator] = len(next(csv.reader(io.StringIO(text, newline=""), delimiter=separator), []))
        except csv.Error:
            widths[separator] = 0
    return max(widths, key=lambda separator: widths[separator])


def _named_columns(header: list[str], source: str) -> list[str]:
    """Return the names of the columns. A column without a name is called after its place.

    Raises:
        InputError: two columns have the same name.
    """
    names = [name.strip() or f"column {place}" for place, name in enumerate(header, start=1)]
    (name, num), *_ = Counter(names).most_common(1) or [("", 0)]
    if num > 1:
        raise InputError(f"{source}: the header has {num} columns with the name {name!r}; rename them")
    return names


def _row_of_cells(cells: list[str], *, header: list[str], number: int) -> NumberedRow:
    if len(cells) != len(header):
        problem = f"expected {len(header)} cells, as in the header, got {len(cells)}"
    else:
        bad = next((name for name, cell in zip(header, cells, strict=True) if not _is_encodable(cell)), None)
        problem = "" if bad is None else f"{bad}: not UTF-8; save the file as UTF-8"
    row = None if problem else dict(zip(header, cells, strict=True))
    return NumberedRow(number=number, row=row, problem=problem)


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
    "tsv": _of_csv,
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

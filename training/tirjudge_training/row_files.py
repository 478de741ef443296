"""Row files: Parquet, or one JSON object per line, optionally gzipped."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz")


class ParquetRows:
    """Rows of a Parquet file, converted to Python objects on access."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __len__(self) -> int:
        return self._table.num_rows

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self._table.slice(number, 1).to_pylist()[0]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (row for batch in self._table.to_batches(max_chunksize=1000) for row in batch.to_pylist())


def read_rows(file: Path) -> tuple[tuple[str, ...], Any]:
    """Read a `.parquet`, `.jsonl` or `.jsonl.gz` file.

    Returns:
        The names of the columns, and the rows. The rows support `len`, access by index, and iteration.

    Raises:
        ValueError: the file does not exist, or its content does not match its suffix.
    """
    if not file.is_file():
        raise ValueError(f"{file}: no such file")
    if not file.name.endswith(SUFFIXES):
        raise ValueError(f"{file}: unsupported suffix; give one of {', '.join(SUFFIXES)}")
    if file.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            # Not memory-mapped, because the file may be replaced during the read.
            table = pq.read_table(file)
        except pa.ArrowInvalid as error:
            raise ValueError(f"{file}: not Parquet: {' '.join(str(error).split())[:200]}") from None
        return tuple(table.column_names), ParquetRows(table.combine_chunks())
    rows: list[dict[str, Any]] = []
    for number, line in read_lines(file):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{file}: line {number}: not JSON: {error}") from None
        if not isinstance(row, dict):
            raise ValueError(f"{file}: line {number}: not a JSON object")
        rows.append(row)
    return tuple(dict.fromkeys(column for row in rows for column in row)), rows


def read_lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the non-empty lines of a file with their numbers, starting at 1. `.gz` files are decompressed.

    Raises:
        ValueError: the file does not exist, or a `.gz` file is not gzip.
    """
    if not file.is_file():
        raise ValueError(f"{file}: no such file")
    try:
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (gzip.BadGzipFile, EOFError) as error:
        raise ValueError(f"{file}: not gzip: {error}") from None
    yield from ((number, line) for number, line in enumerate(content.splitlines(), start=1) if line.strip())


def write_lines(objects: Iterable[Any], file: Path, *, gzipped: bool) -> None:
    """Write one JSON object per line. Equal objects give equal bytes, also with gzip."""
    text = "".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in objects).encode()
    file.write_bytes(gzip.compress(text, mtime=0) if gzipped else text)

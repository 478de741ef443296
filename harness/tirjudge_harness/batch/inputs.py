"""The input of a batch: JSONL (optionally .gz) or Parquet files with one request per row.

A row has the fields of `POST /v1/judge`, and optionally a `key`. The default key is the hash of the request. Files are
read in row ranges, so that several processes can read different ranges.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any

from pydantic import Field, StrictInt, TypeAdapter, ValidationError

from tirjudge.http.protocol import parse_json, problem_of, shown
from tirjudge.types import JudgeRequest, Text
from tirjudge_harness.items import InputError, default_mode
from tirjudge_harness.runner import IGNORED_FIELDS

SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet")
"""Suffixes of input files."""

RANGE_ROWS = 500
"""Maximum number of lines in a row range."""

GZIP_RANGE_ROWS = 100_000
"""Maximum number of lines in a row range of a compressed file. It is larger, because reading a range requires reading
everything before it."""

MAX_KEY_CHARS = 512
"""Maximum length of a key in characters."""

_KEY: TypeAdapter[str | int] = TypeAdapter(Annotated[Text, Field(min_length=1, max_length=MAX_KEY_CHARS)] | StrictInt)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """A valid row."""

    key: str
    """Key of the result; unique in a run."""
    request: JudgeRequest
    digest: str
    """Hash of the request, 64 hex digits."""
    file: str
    """Path of the input file."""
    number: int
    """Row number, counted from 1. In a JSONL file, the line number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRequestRow:
    """An invalid row."""

    file: str
    """Path of the input file."""
    number: int
    """Row number, counted from 1. In a JSONL file, the line number."""
    problem: str
    """Reason, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRange:
    """Consecutive rows of a file."""

    file: str
    """Path of the file."""
    start: int
    """Number of the first row, counted from 1."""
    end: int
    """Number of the last row plus 1."""
    place: int
    """Where reading starts. JSONL: byte offset of the first row; 0 in a compressed file. Parquet: index of the row group."""


def files_of(inputs: Iterable[Path], *, out: Path | None = None) -> list[str]:
    """Return the input files, in sorted order within each folder.

    Args:
        inputs: files and folders.
        out: output folder, whose files are not input. None: no output folder.

    Raises:
        InputError: a path does not exist, a suffix is unknown, or no input file was found.
    """
    files: list[Path] = []
    for path in inputs:
        if not path.exists():
            raise InputError(f"{path}: no such file or folder")
        found = sorted(inside for inside in path.rglob("*") if _is_input(inside)) if path.is_dir() else [path]
        if not found:
            raise InputError(f"{path}: the folder has no file with one of the suffixes {', '.join(SUFFIXES)}")
        files += found
    for path in files:
        if not path.name.endswith(SUFFIXES):
            raise InputError(f"{path}: unknown suffix {path.suffix!r}; expected {', '.join(SUFFIXES)}")
        try:
            str(path.resolve()).encode()
        except UnicodeEncodeError as error:
            raise InputError(f"{str(path)!r}: the file name is not valid UTF-8; rename the file") from error
    given = dict.fromkeys(path.resolve() for path in files)
    found = [str(path) for path in given if out is None or not path.is_relative_to(out.resolve())]
    if not found:
        raise InputError(f"{out}: all input files are in the output folder; choose a different --out")
    return found


def _is_input(path: Path) -> bool:
    return path.name.endswith(SUFFIXES) and not path.name.startswith((".", "_")) and path.is_file()


def row_ranges_of(file: str) -> Iterator[RowRange]:
    """Split a file into row ranges.

    Raises:
        InputError: the file cannot be read.
    """
    if file.endswith(".parquet"):
        yield from _row_groups(file)
        return
    is_compressed = file.endswith(".gz")
    max_lines = GZIP_RANGE_ROWS if is_compressed else RANGE_ROWS
    with _lines_of(file) as lines:
        start, place, read, number = 1, 0, 0, 0
        for number, line in enumerate(lines, start=1):
            read += len(line)
            if number - start + 1 == max_lines:
                yield RowRange(file=file, start=start, end=number + 1, place=place)
                start, place = number + 1, 0 if is_compressed else read
        if number >= start:
            yield RowRange(file=file, start=start, end=number + 1, place=place)


def rows_in(rows: RowRange) -> Iterator[RequestRow | BadRequestRow]:
    """Yield the rows of a row range, without blank lines.

    Raises:
        InputError: the file cannot be read.
    """
    if rows.file.endswith(".parquet"):
        for number, fields in _fields_in(rows):
            yield _row(fields, file=rows.file, number=number)
        return
    with _lines_of(rows.file) as lines:
        lines.seek(rows.place)
        for number, line in enumerate(lines, start=rows.start if rows.place else 1):
            if number >= rows.end:
                return
            if number >= rows.start and line.strip():
                yield _of_line(line, file=rows.file, number=number)


@contextmanager
def _lines_of(file: str) -> Iterator[IO[bytes]]:
    try:
        with gzip.open(file) if file.endswith(".gz") else open(file, "rb") as lines:
            yield lines  # pyrefly: ignore[invalid-yield]
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _row_groups(file: str) -> Iterator[RowRange]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(file)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file}: cannot be read as Parquet: {error}") from error
    start = 1
    for group in range(metadata.num_row_groups):
        end = start + metadata.row_group(group).num_rows
        yield RowRange(file=file, start=start, end=end, place=group)
        start = end


def _fields_in(rows: RowRange) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a row group with their numbers. Null fields are removed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = rows.start
    try:
        with pq.ParquetFile(rows.file) as opened:
            for batch in opened.iter_batches(batch_size=RANGE_ROWS, row_groups=[rows.place]):
                for fields in batch.to_pylist():
                    yield number, _without_nulls(fields)
                    number += 1
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"{rows.file}: cannot be read as Parquet: {error}") from error


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def _of_line(line: bytes, *, file: str, number: int) -> RequestRow | BadRequestRow:
    try:
        return _row(parse_json(line), file=file, number=number)
    except (ValueError, RecursionError) as error:
        return BadRequestRow(file=file, number=number, problem=f"not JSON: {error}")


def _row(fields: Any, *, file: str, number: int) -> RequestRow | BadRequestRow:
    """Parse a row. The default mode depends on the number of responses."""
    key = None
    if isinstance(fields, dict):
        fields = dict(fields)
        key = fields.pop("key", None)
        responses = fields.get("responses")
        fields.setdefault("mode", default_mode(len(responses) if isinstance(responses, list) else 1))
    try:
        request = JudgeRequest.model_validate(fields)
    except ValidationError as error:
        return BadRequestRow(file=file, number=number, problem=problem_of(error).message)
    digest = digest_of(request)
    try:
        key = digest if key is None else str(_KEY.validate_python(key))
    except ValidationError:
        problem = f"key: expected an integer or a string of 1 to {MAX_KEY_CHARS} characters, got {shown(key)}"
        return BadRequestRow(file=file, number=number, problem=problem)
    return RequestRow(key=key, request=request, digest=digest, file=file, number=number)


def digest_of(request: JudgeRequest) -> str:
    """Return a hash of the request, 64 hex digits."""
    asked = request.model_dump(mode="json", exclude=IGNORED_FIELDS)
    return hashlib.sha256(json.dumps(asked, sort_keys=True, ensure_ascii=False).encode()).hexdigest()

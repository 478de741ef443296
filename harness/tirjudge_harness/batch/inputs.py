"""The input of a batch: files of requests, JSONL (perhaps .gz) or Parquet, one a row.

A row is the request of `POST /v1/judge`, and perhaps a `key` of its own; without one its key is the hash of the request.
Files are read in stretches, so that several processes can each read theirs.
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
from tirjudge_harness.runner import UNHEEDED

KINDS = (".jsonl", ".jsonl.gz", ".parquet")
"""What the names of files end in that are read."""

STRETCH_ROWS = 500
"""Most lines of a stretch."""

GZIP_STRETCH_ROWS = 100_000
"""The same where a stretch can only be found by reading all that is before it."""

MAX_KEY_CHARS = 512
"""The longest key that a row may have."""

_KEY: TypeAdapter[str | int] = TypeAdapter(
    Annotated[Text, Field(min_length=1, max_length=MAX_KEY_CHARS)] | StrictInt  # pyright: ignore[reportArgumentType]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """A row that can be judged."""

    key: str
    """Of its result; unique in a run."""
    request: JudgeRequest
    digest: str
    """A hash of the request, 64 hex digits."""
    file: str
    number: int
    """Counted from 1; of a JSONL file its line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRequestRow:
    """A row that cannot be judged."""

    file: str
    number: int
    """Counted from 1; of a JSONL file its line."""
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Consecutive rows of a file."""

    file: str
    start: int
    """Number of the first row, counted from 1."""
    end: int
    """Number of the row after the last one."""
    place: int
    """Where the first row is: of a JSONL file the byte, 0 if it is compressed; of a Parquet file the row group."""


def files_of(inputs: Iterable[Path], *, out: Path | None = None) -> list[str]:
    """The files that are named, and those in the folders that are named, in the order of their names.

    Args:
        inputs: files and folders.
        out: folder of the output, no file of which is an input.

    Raises:
        InputError: there is no such file, or none that is read.
    """
    files: list[Path] = []
    for path in inputs:
        if not path.exists():
            raise InputError(f"{path}: there is no such file or folder")
        found = sorted(inside for inside in path.rglob("*") if _is_input(inside)) if path.is_dir() else [path]
        if not found:
            raise InputError(f"{path}: there is no file in it that ends in {', '.join(KINDS)}")
        files += found
    for path in files:
        if not path.name.endswith(KINDS):
            raise InputError(f"{path}: {path.suffix or 'no suffix'} given; {', '.join(KINDS)} can be read")
        try:
            str(path.resolve()).encode()
        except UnicodeEncodeError as error:
            raise InputError(f"{str(path)!r}: its name is not UTF-8; another one would do") from error
    given = dict.fromkeys(path.resolve() for path in files)
    found = [str(path) for path in given if out is None or not path.is_relative_to(out.resolve())]
    if not found:
        raise InputError(f"{out}: the output of a batch was given as its input; another --out would do")
    return found


def _is_input(path: Path) -> bool:
    return path.name.endswith(KINDS) and not path.name.startswith((".", "_")) and path.is_file()


def stretches_of(file: str) -> Iterator[Stretch]:
    """A whole file, stretch by stretch.

    Raises:
        InputError: it cannot be read.
    """
    if file.endswith(".parquet"):
        yield from _row_groups(file)
        return
    is_compressed = file.endswith(".gz")
    most = GZIP_STRETCH_ROWS if is_compressed else STRETCH_ROWS
    with _lines_of(file) as lines:
        start, place, read, number = 1, 0, 0, 0
        for number, line in enumerate(lines, start=1):
            read += len(line)
            if number - start + 1 == most:
                yield Stretch(file=file, start=start, end=number + 1, place=place)
                start, place = number + 1, 0 if is_compressed else read
        if number >= start:
            yield Stretch(file=file, start=start, end=number + 1, place=place)


def rows_in(stretch: Stretch) -> Iterator[RequestRow | BadRequestRow]:
    """What the rows of a stretch are; blank lines are none.

    Raises:
        InputError: the file cannot be read.
    """
    if stretch.file.endswith(".parquet"):
        for number, fields in _fields_in(stretch):
            yield _row(fields, file=stretch.file, number=number)
        return
    with _lines_of(stretch.file) as lines:
        lines.seek(stretch.place)
        for number, line in enumerate(lines, start=stretch.start if stretch.place else 1):
            if number >= stretch.end:
                return
            if number >= stretch.start and line.strip():
                yield _of_line(line, file=stretch.file, number=number)


@contextmanager
def _lines_of(file: str) -> Iterator[IO[bytes]]:
    try:
        with gzip.open(file) if file.endswith(".gz") else open(file, "rb") as lines:
            yield lines  # pyright: ignore[reportReturnType]
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _row_groups(file: str) -> Iterator[Stretch]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(file)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file}: not parquet: {error}") from error
    start = 1
    for group in range(metadata.num_row_groups):
        end = start + metadata.row_group(group).num_rows
        yield Stretch(file=file, start=start, end=end, place=group)
        start = end


def _fields_in(stretch: Stretch) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a row group with their numbers. A null is a field that is not given."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = stretch.start
    try:
        with pq.ParquetFile(stretch.file) as opened:
            for batch in opened.iter_batches(batch_size=STRETCH_ROWS, row_groups=[stretch.place]):
                for fields in batch.to_pylist():
                    yield number, _without_nulls(fields)
                    number += 1
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"{stretch.file}: not parquet: {error}") from error


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
    """What the fields of a row are; the mode goes by the number of responses where it is not given."""
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
        problem = f"key: {shown(key)} given; a text of 1 to {MAX_KEY_CHARS} characters, or a whole number, would do"
        return BadRequestRow(file=file, number=number, problem=problem)
    return RequestRow(key=key, request=request, digest=digest, file=file, number=number)


def digest_of(request: JudgeRequest) -> str:
    """A hash of all that is asked, 64 hex digits."""
    asked = request.model_dump(mode="json", exclude=UNHEEDED)
    return hashlib.sha256(json.dumps(asked, sort_keys=True, ensure_ascii=False).encode()).hexdigest()

"""Rows of a source: from the Hugging Face hub, or from local files of the same columns."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tirjudge_training.data.readers import CONFIG, Row
from tirjudge_training.data.sources import EVERY, Part, Source

SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTable:
    """Rows of one file, or of one split on the hub."""

    place: str
    """File, or repository, configuration, split and revision."""
    columns: tuple[str, ...]
    rows: Any
    """Offers `len` and a row by its number."""
    config: str | None
    """Of the rows on the hub; of local ones the name of the file."""

    def row(self, number: int) -> Row:
        """A row, counted from 0, with its configuration in `_config`."""
        return {CONFIG: self.config, **self.rows[number]}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRows:
    """All rows of a part."""

    part: Part
    tables: tuple[DataTable, ...]

    def __len__(self) -> int:
        return sum(len(table.rows) for table in self.tables)

    def __getitem__(self, number: int) -> Row:
        for table in self.tables:
            if number < len(table.rows):
                return table.row(number)
            number -= len(table.rows)
        raise IndexError(number)


class ParquetRows:
    """Rows of a Parquet file, made into objects when they are asked for."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __len__(self) -> int:
        return self._table.num_rows

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self._table.slice(number, 1).to_pylist()[0]


def load(source: Source, *, local: Path | None) -> list[PartRows]:
    """The rows of each part of a source.

    Args:
        source: whose rows they are.
        local: a folder with a file or a folder by the source's name (and in it one by the name of each part, where there
            are several); None: the hub.

    Raises:
        ValueError: the rows are not there, cannot be read, or lack a column.
    """
    loaded = []
    for part in source.parts:
        tables = tuple(_hub_tables(part) if local is None else _local_tables(source, part=part, folder=local))
        for table in tables:
            _check_columns(table, source=source, part=part)
        loaded.append(PartRows(part=part, tables=tables))
    return loaded


def in_seeded_order(parts: Sequence[PartRows], *, seed: int, name: str) -> list[tuple[int, int]]:
    """(part, row) for all rows of all parts, in an order drawn from the seed and the source's name."""
    places = [(number, row) for number, part in enumerate(parts) for row in range(len(part))]
    random.Random(f"{seed}/{name}").shuffle(places)
    return places


def _check_columns(table: DataTable, *, source: Source, part: Part) -> None:
    for names in part.columns:
        if not set(names) & set(table.columns):
            raise ValueError(
                f"{source.name}: {table.place}: column {' or '.join(names)} is missing; "
                f"there are {', '.join(table.columns) or 'none'}"
            )


# Local files ------------------------------------------------------------------------------------------------------------


def local_files(source: Source, *, part: Part, folder: Path) -> list[Path]:
    """The files of a part; empty: there are none."""
    base = folder if len(source.parts) == 1 else folder / source.name
    here = [base / f"{part.name}{suffix}" for suffix in SUFFIXES]
    found = [path for path in here if path.is_file()]
    if not found and (base / part.name).is_dir():
        found = sorted(path for path in (base / part.name).iterdir() if path.name.endswith(SUFFIXES))
    return found


def _local_tables(source: Source, *, part: Part, folder: Path) -> Iterator[DataTable]:
    files = local_files(source, part=part, folder=folder)
    if not files:
        name = part.name if len(source.parts) == 1 else f"{source.name}/{part.name}"
        there = ", ".join(sorted(path.name for path in folder.iterdir())[:12]) if folder.is_dir() else "no such folder"
        raise ValueError(
            f"{source.name}: {folder}: {name}.parquet or {name}.jsonl is wanted, or a folder {name} of such files; "
            f"there is {there or 'nothing'}; --sources NAMES leaves out what is not named"
        )
    for file in files:
        columns, rows = read_rows(file)
        yield DataTable(place=str(file), columns=columns, rows=rows, config=file.name.split(".")[0])


def read_rows(file: Path) -> tuple[tuple[str, ...], Any]:
    """Columns and rows of a `.parquet`, `.jsonl` or `.jsonl.gz` file.

    Raises:
        ValueError: it is not there, or is not what its name says.
    """
    if not file.is_file():
        raise ValueError(f"{file}: there is no such file")
    if not file.name.endswith(SUFFIXES):
        raise ValueError(f"{file}: {', '.join(SUFFIXES)} can be read")
    if file.suffix == ".parquet":
        return _read_parquet(file)
    rows = list(_read_jsonl(file))
    return tuple(dict.fromkeys(column for row in rows for column in row)), rows


def _read_parquet(file: Path) -> tuple[tuple[str, ...], ParquetRows]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Not memory-mapped: a file may be replaced while it is read.
        table = pq.read_table(file)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{file}: not Parquet: {' '.join(str(error).split())[:200]}") from None
    return tuple(table.column_names), ParquetRows(table.combine_chunks())


def _read_jsonl(file: Path) -> Iterator[dict[str, Any]]:
    try:
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (gzip.BadGzipFile, EOFError) as error:
        raise ValueError(f"{file}: not gzip: {error}") from None
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{file}: line {number}: not JSON: {error}") from None
        if not isinstance(row, dict):
            raise ValueError(f"{file}: line {number}: an object wanted")
        yield row


# The hub ----------------------------------------------------------------------------------------------------------------


def _hub_tables(part: Part) -> Iterator[DataTable]:
    for config in _configs(part):
        loaded = hub_dataset(
            part.hub, config=config, split=None if part.split == EVERY else part.split, revision=part.revision
        )
        splits = loaded if part.split == EVERY else {part.split: loaded}
        for split, rows in splits.items():
            place = "/".join(filter(None, (part.hub, config, split)))
            yield DataTable(
                place=f"{place}@{part.revision}", columns=tuple(rows.column_names), rows=rows, config=config
            )


def _configs(part: Part) -> Sequence[str | None]:
    if part.config != EVERY:
        return [part.config]
    import datasets

    try:
        return sorted(datasets.get_dataset_config_names(part.hub, revision=part.revision))
    except (OSError, ValueError, RuntimeError) as error:
        raise _unreachable(part.hub, error) from error


def hub_dataset(
    id: str, *, config: str | None, split: str | None, revision: str | None, files: str | None = None
) -> Any:
    """What `datasets.load_dataset` gives.

    Raises:
        ValueError: it gives nothing; says why.
    """
    try:
        import datasets
        from datasets.exceptions import DatasetsError
    except ImportError:
        raise ValueError("the hub is read with datasets: pip install 'tirjudge[train]', or give rows locally") from None
    try:
        return datasets.load_dataset(id, name=config, split=split, revision=revision, data_files=files)
    except (OSError, ValueError, RuntimeError, DatasetsError) as error:
        raise _unreachable(id, error) from error


def _unreachable(id: str, error: Exception) -> ValueError:
    return ValueError(f"{id}: cannot be had from the hub: {' '.join(str(error).split())[:200]}")

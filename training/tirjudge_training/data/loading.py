"""Loads the rows of a source from the Hugging Face hub, or from local files with the same columns."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tirjudge_training.data.readers import CONFIG, Row
from tirjudge_training.data.sources import EVERY, Part, Source
from tirjudge_training.row_files import SUFFIXES, read_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTable:
    """Rows of one file, or of one split on the hub."""

    place: str
    """Path of the file; on the hub: repository, configuration, split and revision."""
    columns: tuple[str, ...]
    """Names of the columns."""
    rows: Any
    """Rows; supports `len` and access by index."""
    config: str | None
    """Configuration on the hub; for local rows, the name of the file."""

    def row(self, number: int) -> Row:
        """Return a row by its number, starting at 0, with its configuration in the column `_config`."""
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


def load(source: Source, *, local: Path | None) -> list[PartRows]:
    """Load the rows of each part of a source.

    Args:
        source: The source.
        local: Folder with a file or folder with the name of the source. If the source has several parts, that folder
            has a file or folder with the name of each part. None: the hub.

    Raises:
        ValueError: the rows are missing, cannot be read, or lack a column.
    """
    loaded = []
    for part in source.parts:
        tables = tuple(_hub_tables(part) if local is None else _local_tables(source, part=part, folder=local))
        for table in tables:
            _check_columns(table, source=source, part=part)
        loaded.append(PartRows(part=part, tables=tables))
    return loaded


def in_seeded_order(parts: Sequence[PartRows], *, seed: int, name: str) -> list[tuple[int, int]]:
    """Return (part, row) for all rows of all parts, in a random order given by the seed and the name of the source."""
    places = [(number, row) for number, part in enumerate(parts) for row in range(len(part))]
    random.Random(f"{seed}/{name}").shuffle(places)
    return places


def _check_columns(table: DataTable, *, source: Source, part: Part) -> None:
    for names in part.columns.split():
        if not set(names.split("|")) & set(table.columns):
            raise ValueError(
                f"{source.name}: {table.place}: column {names.replace('|', ' or ')} is missing; "
                f"the columns are {', '.join(table.columns) or 'none'}"
            )


# Local files ------------------------------------------------------------------------------------------------------------


def local_files(source: Source, *, part: Part, folder: Path) -> list[Path]:
    """Return the local files of a part. Empty: there are none."""
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
            f"{source.name}: {folder}: expected {name}.parquet or {name}.jsonl, or a folder {name} with such files; "
            f"found {there or 'no files'}; add the rows, or select other sources with --sources NAMES"
        )
    for file in files:
        columns, rows = read_rows(file)
        yield DataTable(place=str(file), columns=columns, rows=rows, config=file.name.split(".")[0])


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
    """Call `datasets.load_dataset`.

    Raises:
        ValueError: the data set cannot be loaded. The message has the reason.
    """
    try:
        import datasets
        from datasets.exceptions import DatasetsError
    except ImportError:
        raise ValueError(
            "datasets is not installed; run: pip install 'tirjudge[train]', or give local rows with --local"
        ) from None
    try:
        return datasets.load_dataset(id, name=config, split=split, revision=revision, data_files=files)
    except (OSError, ValueError, RuntimeError, DatasetsError) as error:
        raise _unreachable(id, error) from error


def _unreachable(id: str, error: Exception) -> ValueError:
    return ValueError(f"{id}: cannot be loaded from the hub: {' '.join(str(error).split())[:200]}")

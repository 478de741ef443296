"""Rows of a source: from the Hugging Face hub, or from local files of the same columns."""

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


def load(source: Source, *, local: Path | None) -> list[PartRows]:
    """The rows of each part of a source.

    Args:
        source: whose rows they are.
        local: a folder with a file or a folder by the source's name (and in it one by the name of each part, where
            there are several); None: the hub.

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
    for names in part.columns.split():
        if not set(names.split("|")) & set(table.columns):
            raise ValueError(
                f"{source.name}: {table.place}: column {names.replace('|', ' or ')} is missing; "
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

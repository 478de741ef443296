"""Load a user's file or folder: its rows, the mapping of its columns, and its examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tirjudge_harness.benchmark import Benchmark
from tirjudge_harness.examples import Example
from tirjudge_harness.external import EVEN
from tirjudge_harness.foreign_rows import benchmarks_of
from tirjudge_harness.items import InputError
from tirjudge_harness.own_data.benchmark import own_benchmark
from tirjudge_harness.own_data.detection import OwnTable, find_mapping, lists_read_as_texts
from tirjudge_harness.own_data.mapping import ColumnMapping, GivenColumns
from tirjudge_harness.own_data.rows import label_in, own_example
from tirjudge_harness.row_files import NumberedRow, is_row_file, read_rows, stem_of
from tirjudge_harness.sources import BadRow, Collection, one_line

HUB_FOLDER = "data"
"""Folder of the files in a downloaded repository of the Hugging Face hub."""

RATERS_ADVICE = "for labels of several raters, write one row with a column for each rater, and repeat --label-column"
"""What to do with rows that differ in the label alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnData:
    """The examples of a user's file."""

    columns: ColumnMapping
    benchmark: Benchmark
    examples: list[Example]
    """In the order of the rows."""
    bad_rows: list[BadRow]
    num_unlabeled: int
    """Valid rows without a label, a right or a wrong response. They are left out."""
    num_repeated_ids: int
    """Examples whose id got a numeric suffix, because an earlier row has the same id."""
    lists: tuple[str, ...]
    """Columns of responses in which each JSON list is read as the text of one response."""
    looks_like: list[str]
    """Names of the installed benchmarks to which the rows convert. Empty: none."""

    @property
    def num_ties(self) -> int:
        """Number of examples whose label is a tie. They are not scored."""
        return sum(bool(one.outline.facts.get(EVEN)) for one in self.examples)


def load_own(
    path: Path,
    *,
    parts: Sequence[str] = (),
    given: GivenColumns | None = None,
    columns: ColumnMapping | None = None,
    needs_labels: bool = True,
) -> OwnData:
    """Load the examples of a file, or of a folder with files of one or several parts.

    Args:
        path: the file or folder.
        parts: parts of a folder, such as `test`. Empty: the only part.
        given: columns that the user named.
        columns: the mapping of an earlier run. None: it is found.
        needs_labels: whether rows without a label are left out, and unclear labels are an error. False: these rows are
            examples without a right response.

    Raises:
        InputError: the file cannot be read, the meaning of a column is not clear, or no row is valid.
    """
    tables = {str(file): read_rows(file) for file in _files(path, parts)}
    source = str(path)
    rows = [row.row for table in tables.values() for row in table if row.row is not None]
    if not rows:
        first = next(row for table in tables.values() for row in table)
        raise InputError(f"{source}: row {first.number}: {first.problem}; no row is valid")
    lists: tuple[str, ...] = ()
    if columns is None:
        table = OwnTable.of(rows, source=source)
        columns = find_mapping(table, given or GivenColumns(), needs_labels=needs_labels)
        lists = lists_read_as_texts(table, columns)
    collection, bad, num_unlabeled = Collection(label_of=label_in, advice=RATERS_ADVICE), list[BadRow](), 0
    for name, table in tables.items():
        for row in table:
            try:
                num_unlabeled += not _add(row, columns=columns, source=name, into=collection, needs_label=needs_labels)
            except KeyError as error:
                bad.append(BadRow(source=name, number=row.number, problem=f"column {error} is missing"))
            except ValueError as error:
                bad.append(BadRow(source=name, number=row.number, problem=one_line(error)))
    examples = list(collection.examples.values())
    if not examples:
        why = f"{bad[0]}; " if bad else ""
        raise InputError(
            f"{why}no row of {source} is valid and has a label, a right and a wrong response ({len(bad)} are invalid)"
        )
    outlines = [one.outline for one in examples]
    return OwnData(
        columns=columns,
        # An installed benchmark has no dot and no slash in its name.
        benchmark=own_benchmark(
            columns, name=f"{path.resolve().name}{'/' if path.is_dir() else ''}", outlines=outlines
        ),
        examples=examples,
        bad_rows=bad,
        num_unlabeled=num_unlabeled,
        num_repeated_ids=collection.num_with_id.total(),
        lists=lists,
        looks_like=benchmarks_of(rows),
    )


def _add(row: NumberedRow, *, columns: ColumnMapping, source: str, into: Collection, needs_label: bool) -> bool:
    """Add the example of a row. Return False if the row is left out, see `own_example`.

    Raises:
        ValueError, KeyError: the row is invalid, or a duplicate.
    """
    if row.row is None:
        raise ValueError(row.problem)
    found = own_example(row.row, columns=columns, number=row.number, needs_label=needs_label)
    if found is not None:
        into.add(found, place=f"row {row.number} of {source}")
    return found is not None


def _files(path: Path, parts: Sequence[str]) -> list[Path]:
    """Return the files to read.

    Raises:
        InputError: no such file or folder, an unknown part, or several parts of which none is chosen.
    """
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    if not path.is_dir():
        if parts:
            raise InputError(f"--part: {path} is a single file; a folder has parts")
        return [path]
    found = _by_part(path) or _by_part(path / HUB_FOLDER)
    if not found:
        raise InputError(f"{path}: no file of rows in the folder or in its folder {HUB_FOLDER!r}")
    for part in parts:
        if part not in found:
            raise InputError(f"--part: {path} has no part {part!r}; choose {', '.join(found)}")
    if not parts and len(found) > 1:
        raise InputError(f"{path}: the folder has several parts; choose with --part: {', '.join(found)}")
    return [file for part in parts or found for file in found[part]]


def _by_part(folder: Path) -> Mapping[str, list[Path]]:
    """Return part -> files. The shards of a part, such as `test-00000-of-00002.parquet`, are one part."""
    found: dict[str, list[Path]] = {}
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        if is_row_file(file):
            found.setdefault(stem_of(file), []).append(file)
    return found

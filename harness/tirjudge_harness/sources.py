"""Load the examples of a benchmark from the Hugging Face hub, or from files with the same columns.

An invalid row is reported and skipped. A file without valid rows, or with a missing column, is an error, so that a run never
judges only a part of a benchmark by mistake.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tirjudge.types import ChatMessage
from tirjudge_harness.benchmark import Benchmark, BuiltInSource, HubSource, Joined, Row
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.downloads.snapshot import find_snapshot
from tirjudge_harness.examples import Example, ExampleMetadata
from tirjudge_harness.foreign_rows import hint, refuse_named_rows
from tirjudge_harness.items import InputError
from tirjudge_harness.metric_tree import ComparisonScore, FormulaMetric, MeanMetric, Node
from tirjudge_harness.neutral import COLUMNS, check, is_neutral, meta_of, neutral_example
from tirjudge_harness.row_files import NumberedRow, is_row_file, numbered, read_rows, stem_of

Prompt = str | tuple[ChatMessage, ...]
Leaf = MeanMetric | FormulaMetric

MAX_PROBLEM = 300
"""Maximum length of the message about one row, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """An invalid row."""

    source: str
    """The file, or the location on the hub."""
    number: int
    """Row number, counted from 1."""
    problem: str
    """Reason, in one line."""

    def __str__(self) -> str:
        return f"{self.source}: row {self.number}: {self.problem}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTable:
    """The rows of one file or split."""

    source: str
    """The file, or the location on the hub."""
    part: str | None
    """The part of all rows. None: each row names its part."""
    rows: Sequence[NumberedRow]


@dataclass(slots=True, kw_only=True)
class Collection:
    """Collects examples and makes their ids unique."""

    joined: Joined | None = None
    """Join two examples with the same id and texts. None: the second is a duplicate."""
    label_of: Callable[[Example], object] = lambda one: one.outline.correct
    """Returns the label of an example, in which duplicates can differ."""
    advice: str = "keep one of them"
    """What to do with duplicates whose labels differ."""
    examples: dict[str, Example] = field(default_factory=dict)
    """Examples by id."""
    places: dict[tuple[str, Prompt, tuple[str, ...]], str] = field(default_factory=dict)
    """(id of the row, prompt, responses) -> location of the example."""
    ids: dict[tuple[str, Prompt, tuple[str, ...]], str] = field(default_factory=dict)
    """(id of the row, prompt, responses) -> id of the example."""
    num_with_id: Counter[str] = field(default_factory=Counter)
    """Id of a row -> number of further examples with this id, which get a numeric suffix."""
    first_of: dict[Prompt, str] = field(default_factory=dict)
    """Prompt -> id of the first example whose cluster is not set by the benchmark."""

    def add(self, found: Example, *, place: str) -> str:
        """Add an example, and return its id.

        Two rows with the same id and different content are two examples, because some benchmarks repeat ids between parts.
        Examples with the same prompt are in one cluster, unless the benchmark sets another cluster.

        Raises:
            ValueError: the example is a duplicate.
        """
        id = own_id = found.outline.id
        texts = (own_id, found.prompt, found.responses)
        if texts in self.places:
            id = self.ids[texts]
            if self.joined is None:
                differs = self.label_of(found) != self.label_of(self.examples[id])
                other = f", with another label; {self.advice}" if differs else ""
                raise ValueError(f"duplicate of {self.places[texts]}{other}")
            self.examples[id] = self.joined(self.examples[id], found)
            return id
        self.places[texts] = place
        while id in self.examples:
            self.num_with_id[own_id] += 1
            id = f"{own_id}#{self.num_with_id[own_id] + 1}"
        self.ids[texts] = id
        cluster = found.outline.cluster
        if cluster == own_id:
            cluster = self.first_of.setdefault(found.prompt, id)
        self.examples[id] = replace(found, outline=replace(found.outline, id=id, cluster=cluster))
        return id


def load_examples(
    benchmark: Benchmark,
    *,
    data: Path | None,
    parts: Sequence[str] = (),
    on_bad: Callable[[BadRow], None],
    on_valid: Callable[[int], None] = lambda num: None,
) -> list[Example]:
    """Load the examples of a benchmark in the order of its rows.

    Args:
        benchmark: the benchmark.
        data: a file, or a folder with one file or folder per part. None: the sources of the benchmark.
        parts: parts to load. Empty: the default parts.
        on_bad: called with each skipped row.
        on_valid: called with the number of valid rows of each table. One example may come from several rows.

    Raises:
        InputError: unknown part, the rows cannot be read or downloaded, or a file has no valid row.
    """
    if not parts and data is not None and not data.is_dir() and stem_of(data) in benchmark.sources:
        parts = (stem_of(data),)  # a single file that has the name of a part
    for part in parts:
        if part not in benchmark.sources:
            raise InputError(f"--part: {benchmark.name} has no part {part!r}; choose {', '.join(benchmark.sources)}")
    wanted = tuple(dict.fromkeys(parts)) or benchmark.default_parts
    tables = _in_sources(benchmark, wanted) if data is None else _in_files(benchmark, wanted, data=data)
    collection = Collection(joined=benchmark.joined)
    for table in tables:
        on_valid(_collect(table, benchmark, wanted=wanted, into=collection, on_bad=on_bad))
    return list(collection.examples.values())


def _collect(
    table: SourceTable,
    benchmark: Benchmark,
    *,
    wanted: Sequence[str],
    into: Collection,
    on_bad: Callable[[BadRow], None],
) -> int:
    """Add the examples of a table, and return the number of valid rows.

    Raises:
        InputError: a column is missing, or no row is valid.
    """
    refuse_named_rows(table.rows, benchmark, source=table.source)
    _check_columns(table, benchmark)
    leaves = [leaf for node in benchmark.sheet for leaf in _leaves(node)]
    problems: list[BadRow] = []
    others: set[str] = set()
    num_good = 0
    for numbered_row in table.rows:
        problem = None
        try:
            if numbered_row.row is None:
                raise ValueError(numbered_row.problem)
            part = table.part or _part_of(numbered_row.row, benchmark=benchmark, wanted=wanted, source=table.source)
            if part not in wanted:
                others.add(part)
                continue
            for found in _examples_of(numbered_row.row, benchmark=benchmark, part=part, leaves=leaves):
                into.add(found, place=f"row {numbered_row.number} of {table.source}")
            num_good += 1
        except InputError:
            raise
        except KeyError as error:
            problem = f"column {error} is missing"
        except ValueError as error:
            problem = one_line(error)
        if problem is not None:
            problems.append(BadRow(source=table.source, number=numbered_row.number, problem=problem))
    if num_good:
        for problem in problems:
            on_bad(problem)
        return num_good
    if problems:
        raise InputError(
            f"{problems[0]}; none of the {len(table.rows)} rows is valid for {benchmark.name}{hint(table.rows, benchmark)}"
        )
    raise InputError(
        f"{table.source}: no row of {', '.join(wanted)}; all rows belong to {', '.join(sorted(others))}, see --part"
    )


def _check_columns(table: SourceTable, benchmark: Benchmark) -> None:
    """Raise InputError if no row has a required column. The file then probably belongs to another benchmark."""
    own = [row for row in table.rows if row.row is not None and not _is_neutral(row.row, benchmark)]
    # `_with_split` adds the column `split`.
    given = [str(name) for name in (own[0].row or {}) if name != "split"] if own else []
    for column in benchmark.columns:
        if own and all(column not in (row.row or {}) for row in own):
            raise InputError(
                f"{table.source}: row {own[0].number}: column {column!r} is missing; {benchmark.name} needs "
                f"{', '.join(benchmark.columns)}, or {', '.join(COLUMNS)} and label; the row has "
                f"{one_line(', '.join(given))}{hint(table.rows, benchmark)}"
            )


def _examples_of(row: Row, *, benchmark: Benchmark, part: str, leaves: Sequence[Leaf]) -> list[Example]:
    found = [neutral_example(row)] if _is_neutral(row, benchmark) else list(benchmark.examples(row, part))
    for one in found:
        check(one)
        _check_is_in_a_metric(one.outline, benchmark=benchmark, leaves=leaves)
    return found


def _is_neutral(row: Row, benchmark: Benchmark) -> bool:
    """Whether a row has the common layout. A benchmark with its own column `responses` converts all its rows."""
    return "responses" not in benchmark.columns and is_neutral(row)


def _check_is_in_a_metric(outline: ExampleMetadata, *, benchmark: Benchmark, leaves: Sequence[Leaf]) -> None:
    """Raise ValueError if no metric includes an example. A misspelled subset would silently be missing from the tables."""
    for mode in benchmark.modes or filter(None, (outline.mode,)):
        judged = JudgedExample(outline=outline, mode=mode, decisions=())
        marks = [
            ComparisonScore(outline=outline, compared=compared, credit=0.0, result="none")
            for compared in benchmark.compared(outline, mode)
        ]
        if any(
            leaf.holds(judged) if isinstance(leaf, FormulaMetric) else any(map(leaf.holds, marks)) for leaf in leaves
        ):
            return
    raise ValueError(f"subset: no metric of {benchmark.name} includes the subset {outline.subset!r}")


def _leaves(node: Node) -> Iterator[Leaf]:
    if isinstance(node, MeanMetric | FormulaMetric):
        yield node
    else:
        for part in node.parts:
            yield from _leaves(part)


def _part_of(row: Row, *, benchmark: Benchmark, wanted: Sequence[str], source: str) -> str:
    """Return the part of a row: the part that the row names, or the only requested part."""
    meta = meta_of(row) if _is_neutral(row, benchmark) else {}
    for named in (row.get("part"), row.get("split"), meta.get("part"), meta.get("split"), row.get("subset")):
        if isinstance(named, str) and named in benchmark.sources:
            return named
    if len(wanted) == 1:
        return wanted[0]
    raise InputError(
        f"{source}: the rows do not name their part; choose one with --part, or give a folder with one file for each of "
        f"{', '.join(wanted)}"
    )


def _in_files(benchmark: Benchmark, wanted: Sequence[str], *, data: Path) -> Iterator[SourceTable]:
    if not data.exists():
        raise InputError(f"{data}: no such file or folder")
    snapshot = find_snapshot(data, benchmark=benchmark.name)
    if snapshot is not None:
        for part in wanted:
            for path, file in snapshot.verified_files(part):
                rows = read_rows(path)
                rows = rows if file.split is None else _with_split(rows, file.split)
                yield SourceTable(source=str(path), part=part, rows=rows)
        return
    alone = len(benchmark.sources) == 1
    if not data.is_dir():
        rows = read_rows(data)
        yield SourceTable(source=str(data), part=None, rows=_with_split(rows, stem_of(data)) if alone else rows)
        return
    for part in wanted:
        for path in _files_of(part, folder=data, alone=alone):
            rows, stem = read_rows(path), stem_of(path)
            yield SourceTable(source=str(path), part=part, rows=rows if stem == part else _with_split(rows, stem))


def _files_of(part: str, *, folder: Path, alone: bool) -> list[Path]:
    """Return the files of a part: a file with its name, or all files below a folder with its name. `alone`: the benchmark has
    only this part, so that all files in the folder belong to it.
    """
    files = sorted(path for path in folder.iterdir() if is_row_file(path))
    found = [path for path in files if stem_of(path) == part]
    if not found and (folder / part).is_dir():
        found = sorted(path for path in (folder / part).rglob("*") if is_row_file(path))
    if not found and alone:
        found = files
    if not found:
        files_in = ", ".join(sorted(path.name for path in folder.iterdir())[:10]) or "nothing"
        raise InputError(
            f"{folder}: {part}.jsonl (or .json, .csv, .tsv, .parquet, optionally .gz) is missing; the folder has {files_in}"
        )
    return found


def _with_split(rows: Sequence[NumberedRow], split: str) -> list[NumberedRow]:
    """Add the name of the file or split to each row that does not have a column `split`."""
    return [row if row.row is None else replace(row, row={"split": split, **row.row}) for row in rows]


def _in_sources(benchmark: Benchmark, wanted: Sequence[str]) -> Iterator[SourceTable]:
    """Yield the rows of each part, downloaded from the hub or generated by this package."""
    for part in wanted:
        source = benchmark.sources[part]
        if isinstance(source, BuiltInSource):
            yield SourceTable(source=f"{source.id}@{source.revision}", part=part, rows=list(numbered(source.rows())))
            continue
        for split, rows in _hub_rows(source).items():
            place = "/".join(filter(None, (source.id, source.config, split)))
            yield SourceTable(source=f"{place}@{source.revision}", part=part, rows=rows)


def _hub_rows(source: HubSource) -> Mapping[str, Sequence[NumberedRow]]:
    """Download the rows of each split.

    Raises:
        InputError: the package `datasets` is missing, or the download failed.
    """
    try:
        import datasets
        from datasets.exceptions import DatasetsError
    except ImportError:
        raise InputError(
            "the Hugging Face hub needs datasets: pip install 'tirjudge[bench]', or give the rows with --data"
        ) from None
    files = [source.files] if isinstance(source.files, str) else source.files or ()
    is_url = any("://" in file for file in files)
    every = source.split == "*"
    try:
        loaded: Any = datasets.load_dataset(
            source.id,
            name=source.config,
            data_files=list(source.files) if isinstance(source.files, tuple) else source.files,
            split=None if every else source.split,
            revision=None if is_url else source.revision,
        )
        splits = loaded if every else {source.split: loaded}
        rows = {split: list(numbered(splits[split])) for split in splits}
    except (OSError, ValueError, RuntimeError, DatasetsError) as error:
        raise InputError(
            f"{source.id}: cannot be downloaded: {one_line(error)}; give the rows with --data FILE"
        ) from error
    return {split: _with_split(rows[split], split) for split in rows} if every else rows


def one_line(text: object) -> str:
    """Sanitize untrusted text for a message: one line, printable characters only, at most `MAX_PROBLEM` characters."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in str(text)).split())
    return line if len(line) <= MAX_PROBLEM else f"{line[: MAX_PROBLEM - 1]}…"

"""Where the examples of a benchmark come from: the Hugging Face hub, or files of the same columns.

A broken row is reported and left out. What makes a whole file useless is one error: nothing is judged on half a benchmark
by mistake.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tirjudge.types import ChatMessage
from tirjudge_harness.benchmark import Benchmark, HubSource, Row
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.examples import Example, ExampleMetadata
from tirjudge_harness.items import InputError
from tirjudge_harness.metric_tree import ComparisonScore, FormulaMetric, MeanMetric, Node
from tirjudge_harness.neutral import COLUMNS, check, is_neutral, meta_of, neutral_example
from tirjudge_harness.row_files import NumberedRow, is_row_file, numbered, read_rows, stem_of

Prompt = str | tuple[ChatMessage, ...]

MAX_PROBLEM = 300
"""Characters of what is said about one row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A row that gives no example."""

    source: str
    """Its file, or its place on the hub."""
    number: int
    """Counted from 1."""
    problem: str

    def __str__(self) -> str:
        return f"{self.source}: row {self.number}: {self.problem}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTable:
    """The rows of one file or split."""

    source: str
    part: str | None
    """None: each row says of which part it is."""
    rows: Sequence[NumberedRow]


@dataclass(slots=True, kw_only=True)
class Collection:
    """Examples as they are found; no two have the same id."""

    examples: dict[str, Example] = field(default_factory=dict)
    places: dict[tuple[str, Prompt, tuple[str, ...]], str] = field(default_factory=dict)
    """By the id of its row, prompt and responses: where an example was found."""
    num_namesakes: Counter[str] = field(default_factory=Counter)
    """By the id of a row: how many other examples have it with a number."""
    first_of: dict[Prompt, str] = field(default_factory=dict)
    """By prompt: the first example that its benchmark puts in no cluster with others."""

    def add(self, found: Example, *, place: str) -> None:
        """Add an example of one row.

        Two rows of one id and different texts are two examples: not every benchmark counts its rows in one sequence. What
        has the same prompt is of one cluster, unless its benchmark says otherwise.

        Raises:
            ValueError: the same example is there already.
        """
        id = own_id = found.outline.id
        texts = (own_id, found.prompt, found.responses)
        if texts in self.places:
            raise ValueError(f"repeats {self.places[texts]}")
        self.places[texts] = place
        while id in self.examples:
            self.num_namesakes[own_id] += 1
            id = f"{own_id}#{self.num_namesakes[own_id] + 1}"
        cluster = found.outline.cluster
        if cluster == own_id:
            cluster = self.first_of.setdefault(found.prompt, id)
        self.examples[id] = replace(found, outline=replace(found.outline, id=id, cluster=cluster))


def load_examples(
    benchmark: Benchmark, *, data: Path | None, parts: Sequence[str] = (), on_bad: Callable[[BadRow], None]
) -> list[Example]:
    """The examples of a benchmark, in the order of its rows.

    Args:
        benchmark: whose rows they are.
        data: a file, or a folder with one file or folder a part; None: the hub.
        parts: which are wanted; empty: those that count by default.
        on_bad: told of each row that is left out.

    Raises:
        InputError: the rows cannot be had, or a file of them is of no use.
    """
    if not parts and data is not None and not data.is_dir() and stem_of(data) in benchmark.sources:
        parts = (stem_of(data),)  # a single file that is called after a part
    for part in parts:
        if part not in benchmark.sources:
            raise InputError(f"part: {part!r} given; {benchmark.name} has {', '.join(benchmark.sources)}")
    wanted = tuple(dict.fromkeys(parts)) or benchmark.default_parts
    tables = _on_hub(benchmark, wanted) if data is None else _in_files(benchmark, wanted, data=data)
    collection = Collection()
    for table in tables:
        _collect(table, benchmark, wanted=wanted, into=collection, on_bad=on_bad)
    return list(collection.examples.values())


def _collect(
    table: SourceTable,
    benchmark: Benchmark,
    *,
    wanted: Sequence[str],
    into: Collection,
    on_bad: Callable[[BadRow], None],
) -> None:
    """Add the examples of a table.

    Raises:
        InputError: it lacks a column, or gives no example at all.
    """
    _check_columns(table, benchmark)
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
            for found in _examples_of(numbered_row.row, benchmark=benchmark, part=part):
                into.add(found, place=f"row {numbered_row.number} of {table.source}")
            num_good += 1
        except InputError:
            raise
        except KeyError as error:
            problem = f"column {error} is missing"
        except ValueError as error:
            problem = _one_line(error)
        if problem is not None:
            problems.append(BadRow(source=table.source, number=numbered_row.number, problem=problem))
    if num_good:
        for problem in problems:
            on_bad(problem)
        return
    if problems:
        raise InputError(f"{problems[0]}; none of {len(table.rows)} rows can be used for {benchmark.name}")
    raise InputError(
        f"{table.source}: all rows are of {', '.join(sorted(others))}; {', '.join(wanted)} wanted, see --part"
    )


def _check_columns(table: SourceTable, benchmark: Benchmark) -> None:
    """A column that no row has is not a broken row, but another file than was meant."""
    own = [row for row in table.rows if row.row is not None and not _is_neutral(row.row, benchmark)]
    for column in benchmark.columns:
        if own and all(column not in (row.row or {}) for row in own):
            raise InputError(
                f"{table.source}: row {own[0].number}: column {column!r} is missing; {benchmark.name} needs "
                f"{', '.join(benchmark.columns)}, or {', '.join(COLUMNS)} and label; there are "
                f"{_one_line(', '.join(map(str, own[0].row or {})))}"
            )


def _examples_of(row: Row, *, benchmark: Benchmark, part: str) -> list[Example]:
    found = [neutral_example(row)] if _is_neutral(row, benchmark) else list(benchmark.examples(row, part))
    for one in found:
        check(one)
        _check_counted(one.outline, benchmark=benchmark)
    return found


def _is_neutral(row: Row, benchmark: Benchmark) -> bool:
    """A benchmark that has a column `responses` itself reads all its rows itself."""
    return "responses" not in benchmark.columns and is_neutral(row)


def _check_counted(outline: ExampleMetadata, *, benchmark: Benchmark) -> None:
    """That some figure speaks of an example; a subset with another name would vanish from the tables unseen."""
    leaves = [leaf for node in benchmark.sheet for leaf in _leaves(node)]
    for mode in benchmark.modes:
        judged = JudgedExample(outline=outline, mode=mode, decisions=())
        marks = [
            ComparisonScore(outline=outline, compared=compared, credit=0.0, result="none")
            for compared in benchmark.compared(outline, mode)
        ]
        if any(
            leaf.holds(judged) if isinstance(leaf, FormulaMetric) else any(map(leaf.holds, marks)) for leaf in leaves
        ):
            return
    raise ValueError(f"subset: {outline.subset!r} given, which no figure of {benchmark.name} speaks of")


def _leaves(node: Node) -> Iterator[MeanMetric | FormulaMetric]:
    if isinstance(node, MeanMetric | FormulaMetric):
        yield node
    else:
        for part in node.parts:
            yield from _leaves(part)


def _part_of(row: Row, *, benchmark: Benchmark, wanted: Sequence[str], source: str) -> str:
    """Of which part a row of a single file is: as it says, else the only one that is wanted."""
    meta = meta_of(row) if _is_neutral(row, benchmark) else {}
    for said in (row.get("part"), row.get("split"), meta.get("part"), meta.get("split"), row.get("subset")):
        if isinstance(said, str) and said in benchmark.sources:
            return said
    if len(wanted) == 1:
        return wanted[0]
    raise InputError(
        f"{source}: its rows do not say which part they are of; name one with --part, or give a folder with a file for "
        f"each of {', '.join(wanted)}"
    )


def _in_files(benchmark: Benchmark, wanted: Sequence[str], *, data: Path) -> Iterator[SourceTable]:
    if not data.exists():
        raise InputError(f"{data}: there is no such file or folder")
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
    """The files of a part: of its name, or in a folder of its name, one a split; of the only part there is, any."""
    files = sorted(path for path in folder.iterdir() if is_row_file(path))
    found = [path for path in files if stem_of(path) == part]
    if not found and (folder / part).is_dir():
        found = sorted(path for path in (folder / part).iterdir() if is_row_file(path))
    if not found and alone:
        found = files
    if not found:
        there = ", ".join(sorted(path.name for path in folder.iterdir())[:10]) or "nothing"
        raise InputError(
            f"{folder}: there is no {part}.jsonl (or .json, .csv, .parquet, perhaps .gz); there is {there}"
        )
    return found


def _with_split(rows: Sequence[NumberedRow], split: str) -> list[NumberedRow]:
    """The rows, each with the name of its file or split, unless it has one itself."""
    return [row if row.row is None else replace(row, row={"split": split, **row.row}) for row in rows]


def _on_hub(benchmark: Benchmark, wanted: Sequence[str]) -> Iterator[SourceTable]:
    for part in wanted:
        source = benchmark.sources[part]
        for split, rows in _hub_rows(source).items():
            place = "/".join(filter(None, (source.id, source.config, split)))
            yield SourceTable(source=f"{place}@{source.revision}", part=part, rows=rows)


def _hub_rows(source: HubSource) -> Mapping[str, Sequence[NumberedRow]]:
    """The rows of each split.

    Raises:
        InputError: they cannot be had.
    """
    try:
        import datasets
        from datasets.exceptions import DatasetsError
    except ImportError:
        raise InputError(
            "the hub is read with datasets: pip install 'tirjudge[bench]', or give the rows with --data"
        ) from None
    is_url = source.files is not None and "://" in source.files
    every = source.split == "*"
    try:
        loaded: Any = datasets.load_dataset(
            source.id,
            name=source.config,
            data_files=source.files,
            split=None if every else source.split,
            revision=None if is_url else source.revision,
        )
        splits = loaded if every else {source.split: loaded}
        rows = {split: list(numbered(splits[split])) for split in splits}
    except (OSError, ValueError, RuntimeError, DatasetsError) as error:
        raise InputError(
            f"{source.id}: cannot be had from the hub: {_one_line(error)}; give its rows with --data FILE"
        ) from error
    return {split: _with_split(rows[split], split) for split in rows} if every else rows


def _one_line(said: object) -> str:
    """What strangers may have written: no line breaks, nothing that commands a terminal, and not too long."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in str(said)).split())
    return line if len(line) <= MAX_PROBLEM else f"{line[: MAX_PROBLEM - 1]}…"

"""Prompts of benchmarks, which must not be in the training data: from installed benchmarks and from files.

Installed benchmarks are found by their entry points `tirjudge.benchmarks`. An entry point refers to an object with a
name, the locations of its rows on the hub, and a function that converts a row to examples. This module does not import
the package of the benchmarks directly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

from tirjudge.types import ChatMessage, prompt_text
from tirjudge_training.data.loading import hub_dataset
from tirjudge_training.row_files import SUFFIXES, read_lines, read_rows

ENTRY_POINTS = "tirjudge.benchmarks"
EVERY = "*"


class PromptLocation(Protocol):
    """Location of rows on the hub: the arguments of `datasets.load_dataset`."""

    @property
    def id(self) -> str: ...
    @property
    def split(self) -> str: ...
    @property
    def config(self) -> str | None: ...
    @property
    def revision(self) -> str: ...
    @property
    def files(self) -> str | None: ...


class Prompted(Protocol):
    """The part of a benchmark's example that this module uses."""

    @property
    def prompt(self) -> str | tuple[ChatMessage, ...]: ...


class BenchmarkPrompts(Protocol):
    """The part of a benchmark that this module uses."""

    @property
    def name(self) -> str: ...
    @property
    def sources(self) -> Mapping[str, PromptLocation]:
        """Name of a part -> its location."""
        ...

    @property
    def examples(self) -> Callable[[Mapping[str, Any], str], Iterable[Prompted]]:
        """Function that converts a row of a part to examples."""
        ...


def installed() -> dict[str, BenchmarkPrompts]:
    """Return all installed benchmarks, by name."""
    found = [point.load() for point in entry_points(group=ENTRY_POINTS)]
    return {benchmark.name: benchmark for benchmark in sorted(found, key=lambda benchmark: benchmark.name)}


def chosen(names: Sequence[str]) -> list[BenchmarkPrompts]:
    """Return benchmarks by name. `all` alone: all installed benchmarks. `none` alone: no benchmarks.

    Raises:
        ValueError: a name is unknown.
    """
    known = installed()
    if list(names) == ["none"]:
        return []
    if list(names) == ["all"]:
        return list(known.values())
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(
            f"benchmarks: unknown benchmark {unknown[0]!r}; installed are {', '.join(known) or 'none'}; or give all, none"
        )
    return [known[name] for name in names]


def prompts_of(benchmark: BenchmarkPrompts, *, rows: Path | None) -> list[str]:
    """Return the distinct prompts of all parts of a benchmark.

    Args:
        benchmark: The benchmark.
        rows: Folder with its rows: `NAME/PART.jsonl` (or .parquet, .jsonl.gz); `NAME.jsonl` if it has only one part.
            None: the hub.

    Raises:
        ValueError: its rows cannot be read. The message has the options that avoid this.
    """
    prompts: dict[str, None] = {}
    for part, place in benchmark.sources.items():
        found = _hub_rows(benchmark, place) if rows is None else _local_rows(benchmark, part=part, folder=rows)
        for row in found:
            try:
                examples = list(benchmark.examples(row, part))
            except (KeyError, ValueError, TypeError):
                continue  # The benchmark reports broken rows when it runs. They have no prompt that could leak.
            prompts.update(dict.fromkeys(prompt_text(example.prompt) for example in examples))
    if not prompts:
        raise ValueError(f"{benchmark.name}: no row has a prompt; check that the rows belong to this benchmark")
    return list(prompts)


def prompts_in(file: Path) -> list[str]:
    """Read the prompts of a file: the lines of a `.txt` file, or the column `prompt` (text or messages) of rows.

    Raises:
        ValueError: the file cannot be read, or has no such column.
    """
    if file.name.endswith((".txt", ".txt.gz")):
        return [line.decode() for _, line in read_lines(file)]
    columns, rows = read_rows(file)
    if "prompt" not in columns:
        raise ValueError(f"{file}: column prompt is missing; the columns are {', '.join(columns) or 'none'}")
    found = (row.get("prompt") for row in rows)
    prompts = (p if isinstance(p, str) else [ChatMessage.model_validate(message) for message in p] for p in found if p)
    return list(dict.fromkeys(map(prompt_text, prompts)))


def _hub_rows(benchmark: BenchmarkPrompts, place: PromptLocation) -> Iterator[Mapping[str, Any]]:
    is_url = place.files is not None and "://" in place.files
    every = place.split == EVERY
    try:
        loaded = hub_dataset(
            place.id,
            config=place.config,
            split=None if every else place.split,
            revision=None if is_url else place.revision,
            files=place.files,
        )
    except ValueError as error:
        raise ValueError(
            f"{benchmark.name}: {error}; give its rows with --benchmark-rows FOLDER, its prompts with --against FILE, or "
            "remove it from --benchmarks"
        ) from error
    for split, rows in (loaded if every else {place.split: loaded}).items():
        yield from ({"split": split, **row} for row in rows)


def _local_rows(benchmark: BenchmarkPrompts, *, part: str, folder: Path) -> Iterator[Mapping[str, Any]]:
    files = [folder / benchmark.name / f"{part}{suffix}" for suffix in SUFFIXES]
    if len(benchmark.sources) == 1:
        files += [folder / f"{benchmark.name}{suffix}" for suffix in SUFFIXES]
    found = next((file for file in files if file.is_file()), None)
    if found is None:
        raise ValueError(
            f"{benchmark.name}: no such file: {files[0]}, or .jsonl or .jsonl.gz; add its rows, or remove it from "
            "--benchmarks"
        )
    yield from read_rows(found)[1]

"""The prompts of benchmarks, which must not be trained on: of those that are installed, and from files.

Installed benchmarks are found by the entry points `tirjudge.benchmarks`, as a plugin offers them: an object with a
name, places of rows on the hub, and a function that makes examples of a row. Nothing of the package behind it is
imported here.
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
    """Rows on the hub: the arguments of `datasets.load_dataset`."""

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
    """One example of a benchmark, as far as it is needed here."""

    @property
    def prompt(self) -> str | tuple[ChatMessage, ...]: ...


class BenchmarkPrompts(Protocol):
    """What an entry point offers, as far as it is needed here."""

    @property
    def name(self) -> str: ...
    @property
    def sources(self) -> Mapping[str, PromptLocation]: ...
    @property
    def examples(self) -> Callable[[Mapping[str, Any], str], Iterable[Prompted]]: ...


def installed() -> dict[str, BenchmarkPrompts]:
    """All benchmarks that are installed, by name."""
    found = [point.load() for point in entry_points(group=ENTRY_POINTS)]
    return {benchmark.name: benchmark for benchmark in sorted(found, key=lambda benchmark: benchmark.name)}


def chosen(names: Sequence[str]) -> list[BenchmarkPrompts]:
    """The benchmarks of these names; `all`: those that are installed, `none`: not one.

    Raises:
        ValueError: there is none of a name.
    """
    known = installed()
    if list(names) == ["none"]:
        return []
    if list(names) == ["all"]:
        return list(known.values())
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"benchmarks: {unknown[0]!r} given; installed are {', '.join(known) or 'none'}; or all, none")
    return [known[name] for name in names]


def prompts_of(benchmark: BenchmarkPrompts, *, rows: Path | None) -> list[str]:
    """The different prompts of a benchmark, all its parts.

    Args:
        benchmark: whose.
        rows: a folder in which its rows lie: `NAME/PART.jsonl` (or .parquet, .jsonl.gz), or `NAME.jsonl` where it has
            one part; None: the hub.

    Raises:
        ValueError: its rows cannot be had; says what would do.
    """
    prompts: dict[str, None] = {}
    for part, place in benchmark.sources.items():
        found = _hub_rows(benchmark, place) if rows is None else _local_rows(benchmark, part=part, folder=rows)
        for row in found:
            try:
                examples = list(benchmark.examples(row, part))
            except (KeyError, ValueError, TypeError):
                continue  # A broken row is reported by the benchmark itself; it has no prompt that could leak.
            prompts.update(dict.fromkeys(prompt_text(example.prompt) for example in examples))
    if not prompts:
        raise ValueError(f"{benchmark.name}: none of its rows has a prompt; are they rows of this benchmark?")
    return list(prompts)


def prompts_in(file: Path) -> list[str]:
    """The prompts of a file: each line of a `.txt` file, or the column `prompt` (text or messages) of rows.

    Raises:
        ValueError: it cannot be read, or has no such column.
    """
    if file.name.endswith((".txt", ".txt.gz")):
        return [line.decode() for _, line in read_lines(file)]
    columns, rows = read_rows(file)
    if "prompt" not in columns:
        raise ValueError(f"{file}: column prompt is missing; there are {', '.join(columns) or 'none'}")
    found = (row.get("prompt") for row in rows)
    said = (p if isinstance(p, str) else [ChatMessage.model_validate(message) for message in p] for p in found if p)
    return list(dict.fromkeys(map(prompt_text, said)))


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
            "leave it out of --benchmarks"
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
            f"{benchmark.name}: there is no {files[0]}, nor .jsonl or .jsonl.gz; its rows are needed, or leave it out of "
            "--benchmarks"
        )
    yield from read_rows(found)[1]

"""Looks at a folder of training data once more: does it hold what its manifest says, and is it still clean?"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tirjudge.types import Mode
from tirjudge_training.data.collecting import Screen
from tirjudge_training.data.decontamination import contaminated
from tirjudge_training.data.manifest import TRAIN, VALIDATION, described, read_manifest
from tirjudge_training.data.quality import prompt_key
from tirjudge_training.items import TrainingItem, read_items


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What was found in a folder."""

    num_items: dict[str, int]
    """File -> items."""
    counts: dict[str, dict[Mode, int]]
    """Source -> mode -> items, both files together."""
    problems: list[str]
    """What is wrong, a line each; empty: nothing."""
    contaminated: dict[str, dict[str, int]]
    """Source -> benchmark -> items that share a gram with it."""


def inspect_folder(folder: Path, *, screen: Screen) -> Inspection:
    """Counts again, hashes again, and screens again, perhaps with other benchmarks than before.

    Raises:
        ValueError: a file is missing or broken.
    """
    manifest = read_manifest(folder)
    files = {name: read_items(folder / name) for name in (TRAIN, VALIDATION)}
    problems = [
        f"{name}: {field} is {getattr(now, field)}, the manifest says {getattr(manifest.files[name], field)}"
        for name, items in files.items()
        for now in [described(items)]
        for field in type(now).model_fields
        if getattr(now, field) != getattr(manifest.files[name], field)
    ]
    items = [item for found in files.values() for item in found]
    counts = _counts(items)
    for name, source in manifest.sources.items():
        made = {mode: count for mode, count in source.made.items() if count}
        if counts.get(name, {}) != made:
            problems.append(f"{name}: {_shown(counts.get(name, {}))} in the files, {_shown(made)} in the manifest")
    both = {prompt_key(item.prompt) for item in files[TRAIN]} & {prompt_key(item.prompt) for item in files[VALIDATION]}
    if both:
        problems.append(f"{len(both)} prompts are in {TRAIN} and in {VALIDATION}")
    found = contaminated(items, index=screen.index, with_responses=screen.with_responses, exempt=screen.boilerplate)
    by_source: dict[str, Counter[str]] = {}
    for item in items:
        if item.id in found:
            by_source.setdefault(item.source, Counter())[found[item.id]] += 1
    for name, benchmarks in by_source.items():
        said = ", ".join(f"{benchmark} {count}" for benchmark, count in sorted(benchmarks.items()))
        problems.append(f"{name}: items that share eight words in a row with a benchmark: {said}")
    return Inspection(
        num_items={name: len(found) for name, found in files.items()},
        counts=counts,
        problems=problems,
        contaminated={name: dict(benchmarks) for name, benchmarks in by_source.items()},
    )


def _counts(items: list[TrainingItem]) -> dict[str, dict[Mode, int]]:
    counts: dict[str, dict[Mode, int]] = {}
    for item in items:
        of_source = counts.setdefault(item.source, {})
        of_source[item.mode] = of_source.get(item.mode, 0) + 1
    return counts


def _shown(counts: dict[Mode, int]) -> str:
    return ", ".join(f"{mode} {counts[mode]}" for mode in sorted(counts)) or "nothing"

"""Checks a folder of training data: whether it matches its manifest, and whether it is free of benchmark prompts."""

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
    """Result of checking a folder."""

    num_items: dict[str, int]
    """File -> number of items."""
    counts: dict[str, dict[Mode, int]]
    """Source -> mode -> number of items in both files."""
    problems: list[str]
    """Problems found, one line each. Empty: no problems."""
    contaminated: dict[str, dict[str, int]]
    """Source -> benchmark -> number of items that share an 8-gram with it."""


def inspect_folder(folder: Path, *, screen: Screen) -> Inspection:
    """Recompute counts and hashes, and screen the items again. The benchmarks may differ from those of the build.

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
        listed = ", ".join(f"{benchmark} {count}" for benchmark, count in sorted(benchmarks.items()))
        problems.append(f"{name}: items that share eight words in a row with a benchmark: {listed}")
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
    return ", ".join(f"{mode} {counts[mode]}" for mode in sorted(counts)) or "no items"

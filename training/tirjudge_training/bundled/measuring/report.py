"""Measures a checkpoint on all sets and writes the figures to one JSON file."""

from __future__ import annotations

import asyncio
import json
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tirjudge.durable import write_file
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.judge import Judge
from tirjudge.model import fingerprint
from tirjudge.profile import Profile, load_profile
from tirjudge.tools.python import PythonTool
from tirjudge_evidence.functions import EvidenceSettings, functions_of, open_stores
from tirjudge_sandbox import SandboxPool, candidates
from tirjudge_training.bundled.measuring.check_lists import compared
from tirjudge_training.bundled.measuring.contamination import contamination_report
from tirjudge_training.bundled.measuring.figures import figures_of, sameness
from tirjudge_training.bundled.measuring.items import MeasuredItem, MeasuredSet
from tirjudge_training.bundled.measuring.judging import MeasuredJudgment, judge_items, show_differently
from tirjudge_training.bundled.measuring.progress import OnItem

SEED = 7
"""Seed of the items. Training never uses it."""

SHOWN_SETS = ("writer", "ifeval-edits")
"""Sets on which the checks are compared for all ways to show the responses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementPlan:
    """What to measure."""

    checkpoint: Path
    rows: Path
    """Folder with the rows of benchmarks."""
    sets: Sequence[MeasuredSet]
    sameness: bool
    """Whether to compare the checks for all ways to show the responses."""
    contamination: bool
    """Whether to compare the training texts with the benchmarks."""
    limit: int | None
    """Maximum number of items of a set. None: all."""
    beside: Sequence[Mapping[str, Any]] = ()
    """Accuracies of other checkpoints, for columns of the card (`figures_beside`)."""


def figures_beside(option: str) -> dict[str, Any]:
    """Return the accuracies of another checkpoint.

    Args:
        option: `NAME=FILE`: the head of the column, and a file of figures that `tirjudge train measure` wrote.

    Raises:
        ValueError: the option has no name or no file, or the file has no such figures.
        OSError: the file cannot be read.
    """
    name, is_pair, file = option.partition("=")
    if not (name and is_pair and file):
        raise ValueError(f"--beside {option}: expected NAME=FILE, such as 'first generation=first.json'")
    try:
        figures = json.loads(Path(file).read_text(encoding="utf-8"))
        accuracies = {one["name"]: one["accuracy"] for one in figures["sets"]}
        return {"name": name, "limit": figures["limit"], "accuracies": accuracies}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"--beside {option}: the file has no figures of `tirjudge train measure`") from error


def measure_checkpoint_on_rows(
    plan: MeasurementPlan, *, on_item: OnItem, out: Path, items_file: Path | None
) -> dict[str, Any]:
    """Measure a checkpoint and return all figures. Both files are also written after each set, so that an interrupted
    run leaves the figures of the finished sets.

    Args:
        plan: what to measure.
        on_item: reports the progress.
        out: file for the figures.
        items_file: file for one line of JSON per judged item. None: no file.

    Raises:
        ValueError: the rows are not valid, or a package for the official rules is not installed.
        CheckpointError: the checkpoint cannot be loaded.
    """
    profile = load_profile(plan.checkpoint)
    figures: dict[str, Any] = {
        "checkpoint": profile.name,
        "version": fingerprint(plan.checkpoint),
        "format": profile.format,
        "seed": SEED,
        "limit": plan.limit,
        "machine": platform.machine(),
        "beside": list(plan.beside),
        "skipped": [],
        "sets": [],
    }
    asyncio.run(_measure(plan, profile, figures, on_item=on_item, out=out, items_file=items_file))
    if plan.contamination:
        on_item("contamination", 0, 1)
        figures["contamination"] = contamination_report(plan.rows)
        on_item("contamination", 1, 1)
    _write(figures, out)
    return figures


def _write(figures: Mapping[str, Any], out: Path) -> None:
    write_file(out, json.dumps(figures, indent=1, ensure_ascii=False) + "\n", closed=False)


async def _measure(
    plan: MeasurementPlan,
    profile: Profile,
    figures: dict[str, Any],
    *,
    on_item: OnItem,
    out: Path,
    items_file: Path | None,
) -> None:
    engine = EmbeddedEngine.load(plan.checkpoint)
    lines: list[str] = []
    try:
        async with SandboxPool() as pool, open_stores(EvidenceSettings()) as stores:
            functions = [*candidates.FUNCTIONS, *functions_of(stores)]
            judge = Judge(engine=engine, tools=[PythonTool(pool, functions)], profile=profile)
            for measured_set in plan.sets:
                items = _drawn(measured_set, plan, on_item=on_item)
                if not items:
                    figures["skipped"].append(measured_set.name)
                    continue
                started = time.perf_counter()
                with _counter(measured_set.name, len(items), on_item) as counted:
                    judged = await judge_items(judge, items, on_item=counted)
                elapsed_s = time.perf_counter() - started
                figures["sets"].append(figures_of(measured_set, judged, elapsed_s=elapsed_s))
                lines += (json.dumps(item_record(one, measured_set.name), ensure_ascii=False) for one in judged)
                if items_file is not None:
                    write_file(items_file, "\n".join(lines) + "\n", closed=False)
                if plan.sameness and measured_set.name in SHOWN_SETS:
                    with _counter(f"{measured_set.name}, shown differently", len(items), on_item) as counted:
                        shown = await show_differently(judge, items, on_item=counted)
                    figures["sets"][-1]["sameness"] = sameness(shown)
                _write(figures, out)
    finally:
        engine.close()


def _drawn(measured_set: MeasuredSet, plan: MeasurementPlan, *, on_item: OnItem) -> list[MeasuredItem]:
    items: list[MeasuredItem] = []
    on_item(f"{measured_set.name}: items", 0, None)
    for item in measured_set.items(plan.rows, seed=SEED, limit=plan.limit):
        items.append(item)
        on_item(f"{measured_set.name}: items", len(items), None)
    return items


@contextmanager
def _counter(name: str, total: int, on_item: OnItem) -> Iterator[Callable[[], None]]:
    """Return a function that counts items and reports the progress."""
    done = 0

    def count() -> None:
        nonlocal done
        done += 1
        on_item(name, done, total)

    on_item(name, 0, total)
    yield count


def item_record(judged: MeasuredJudgment, set_name: str) -> dict[str, Any]:
    """Return one judged item as JSON data: the prompt, the checks, and how they differ from those that are asked for."""
    item = judged.item
    record: dict[str, Any] = {
        "set": set_name,
        "id": item.id,
        "group": item.group,
        "credit": judged.credit,
        "basis": judged.basis,
        "confidence": judged.confidence,
        "right": sorted(item.right),
        "written": judged.written,
        "output": judged.output,
        "num_failed_calls": judged.num_failed_calls,
        "prompt": item.prompt,
        "responses": item.responses,
    }
    if item.asked is not None:
        found = compared(item.asked, judged.written or (), prompt=item.prompt)
        record["asked"] = [check.expression for check in item.asked]
        record |= {
            "exact": found.is_exact,
            "missing": found.missing,
            "spurious": found.spurious,
            "wrong_form": found.wrong_form,
            "wrong_values": found.wrong_values,
        }
    return record

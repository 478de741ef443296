"""The table of attacks, and the same as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tirjudge.types import Mode
from tirjudge_harness.reports.tables import Column, ReportTable, TableEntry, TableRow, percent

if TYPE_CHECKING:
    from tirjudge_harness.robustness.effects import Effect
    from tirjudge_harness.robustness.run import Attacked
    from tirjudge_harness.statistics.intervals import Share

COLUMNS = (
    Column(key="attack", title="attack", kind="text"),
    Column(key="flips", title="right → wrong %", ends=True),
    Column(key="right_before", title="of", kind="count"),
    Column(key="undecided", title="→ undecided", kind="count"),
    Column(key="mended", title="→ right", kind="count"),
    Column(key="before", title="before %"),
    Column(key="after", title="after %"),
)
OF_SCORES = (
    Column(key="change", title="score", kind="number"),
    Column(key="good_after", title="scored 6+ %"),
)
"""Pointwise alone."""


def attack_table(attacked: Attacked, *, title: str) -> ReportTable:
    """One row an attack, under its kind."""
    manifest = attacked.untouched.manifest
    is_pointwise = manifest.mode is Mode.POINTWISE
    columns = COLUMNS + OF_SCORES if is_pointwise else COLUMNS
    looks = "two responses and their scores" if is_pointwise else "one order of one comparison"
    return ReportTable(
        title=title,
        columns=columns,
        rows=tuple(_rows(attacked, num_columns=len(columns))),
        notes=(
            f"Counted are looks: {looks}. `of`: how many were right before. Intervals are of 95 %, over prompts.",
            f"Judged by {manifest.judge.model}, {manifest.mode.value}, {manifest.data.num_examples} examples.",
        ),
    )


def as_json(attacked: Attacked) -> dict[str, Any]:
    """All of it, shares from 0 to 1."""
    return {
        "manifest": attacked.untouched.manifest.model_dump(mode="json"),
        "attacks": [asdict(effect) for effect in attacked.effects],
        "worst": asdict(attacked.worst),
        "num_missing": attacked.num_missing,
    }


def _rows(attacked: Attacked, *, num_columns: int) -> Iterator[TableRow]:
    kind = None
    for effect in attacked.effects:
        if effect.kind != kind:
            kind = effect.kind
            yield TableRow(
                entries=(TableEntry(value=kind), *(TableEntry(value="") for _ in range(num_columns - 1))), ours=True
            )
        yield TableRow(entries=tuple(_entries(effect)), ours=True, depth=1)
    worst = (TableEntry(value="any attack"), _percent(attacked.worst), TableEntry(value=attacked.worst.num))
    yield TableRow(entries=(*worst, *(TableEntry(value="") for _ in range(num_columns - len(worst)))), ours=True)


def _entries(effect: Effect) -> Iterator[TableEntry]:
    yield TableEntry(value=effect.attack)
    yield _percent(effect.flips)
    yield TableEntry(value=effect.flips.num)
    yield TableEntry(value=effect.num_undecided)
    yield TableEntry(value=effect.num_mended)
    yield _percent(effect.before)
    yield _percent(effect.after)
    if effect.scores is not None:
        change = effect.scores.change
        yield TableEntry(value=change.value, interval=change.interval)
        yield _percent(effect.scores.good_after)


def _percent(share: Share) -> TableEntry:
    return percent(share.value, interval=share.interval)

"""Report the effects of attacks as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any

from tirjudge.types import Mode
from tirjudge_harness.reports.tables import Column, ReportTable, TableEntry, TableRow, percent_of, row

if TYPE_CHECKING:
    from tirjudge_harness.robustness.effects import Effect
    from tirjudge_harness.robustness.run import Attacked

COLUMNS = (
    Column(key="attack", title="attack", kind="text"),
    Column(key="flips", title="right → wrong %", ends=True),
    Column(key="right_before", title="of", kind="count"),
    Column(key="undecided", title="→ undecided", kind="count"),
    Column(key="mended", title="→ right", kind="count"),
    Column(key="before", title="before %"),
    Column(key="after", title="after %"),
    Column(key="coverage_before", title="verdicts before %"),
    Column(key="coverage_after", title="verdicts after %"),
    Column(key="verdicts_after", title="right of these %"),
)
OF_SCORES = (
    Column(key="change", title="score", kind="number"),
    Column(key="good_after", title="scored 6+ %"),
)
"""Further columns in pointwise mode."""


def attack_table(attacked: Attacked, *, title: str) -> ReportTable:
    """Return a table with one row per attack, grouped by kind."""
    manifest = attacked.untouched.manifest
    is_pointwise = manifest.mode is Mode.POINTWISE
    columns = COLUMNS + OF_SCORES if is_pointwise else COLUMNS
    looks = "two responses and their scores" if is_pointwise else "one order of one comparison"
    return ReportTable(
        title=title,
        columns=columns,
        rows=tuple(_rows(attacked, num_columns=len(columns))),
        notes=(
            f"A presentation is {looks}. `of`: presentations that are right without the attack. 95 % intervals over prompts.",
            f"Judged by {manifest.judge.model}, {manifest.mode_name}, {manifest.data.num_examples} examples.",
        ),
    )


def as_json(attacked: Attacked) -> dict[str, Any]:
    """Return all results; rates are from 0 to 1."""
    return {
        "manifest": attacked.untouched.manifest.model_dump(mode="json"),
        "attacks": [asdict(effect) for effect in attacked.effects],
        "worst": asdict(attacked.worst),
        "num_missing": attacked.num_missing,
    }


def _rows(attacked: Attacked, *, num_columns: int) -> Iterator[TableRow]:
    def filled(*values: TableEntry | float | str | None) -> TableRow:
        return row(*values, *[""] * (num_columns - len(values)), ours=True)

    for kind, effects in groupby(attacked.effects, key=lambda effect: effect.kind):
        yield filled(kind)
        for effect in effects:
            yield row(*_entries(effect), depth=1, ours=True)
    yield filled("any attack", percent_of(attacked.worst), attacked.worst.num)


def _entries(effect: Effect) -> Iterator[TableEntry | float | str | None]:
    yield from (effect.attack, percent_of(effect.flips), effect.flips.num, effect.num_undecided, effect.num_mended)
    yield from (percent_of(effect.before), percent_of(effect.after))
    yield from (
        percent_of(effect.coverage_before),
        percent_of(effect.coverage_after),
        percent_of(effect.verdicts_after),
    )
    if effect.scores is not None:
        change = effect.scores.change
        yield from (TableEntry(value=change.value, interval=change.interval), percent_of(effect.scores.good_after))

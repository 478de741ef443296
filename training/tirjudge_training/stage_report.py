"""A run on the terminal: a bar while it goes on, and a table of its stages at the end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from tirjudge_training.callbacks import Callback
from tirjudge_training.run_folder import StageRecord, State

SHOWN = (
    ("train/loss", "loss"),
    ("reward/total", "R"),
    ("reward/Rc", "right"),
    ("tool/use_rate", "tools"),
    ("dapo/kept_frac", "kept"),
    ("train/kl", "kl"),
    ("val/acc", "held out"),
)
"""Metrics that stand beside the bar, and their short names."""


class Reporter(Callback):
    """Draws a bar for what is going on, and a line for each stage that ended.

    Args:
        console: where to; one that is no terminal gets lines.
        line_every: without a terminal, the steps between two lines.
    """

    def __init__(self, *, console: Console, line_every: int = 10) -> None:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn())
        self._progress = Progress(
            *columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, disable=not console.is_terminal
        )
        self._console = console
        self._line_every = line_every
        self._stage = ""
        self._doing = ""
        self._task: TaskID | None = None

    def __enter__(self) -> Reporter:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()
        self._progress.stop()

    def began(self, stage: StageRecord) -> None:
        self._stage = stage.name

    def moved(self, doing: str, done: int, total: int, values: Mapping[str, float]) -> None:
        if doing != self._doing or self._task is None:
            self._remove()
            self._doing, self._task = doing, self._progress.add_task(doing, total=total)
        shown = "  ".join(f"{name} {values[metric]:.3f}" for metric, name in SHOWN if metric in values)
        description = f"{self._stage}: {doing}  {shown}".rstrip()
        self._progress.update(self._task, completed=done, total=total, description=description)
        if not self._console.is_terminal and doing != "validating" and (done % self._line_every == 0 or done == total):
            self._console.print(f"{description}  {done}/{total}", soft_wrap=True)

    def ended(self, stage: StageRecord) -> None:
        self._remove()
        self._console.print(f"{stage.name}: {outcome_of(stage)}", soft_wrap=True)
        for complaint in stage.complaints:
            self._console.print(f"  {complaint}", soft_wrap=True)

    def _remove(self) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._doing, self._task = "", None


def outcome_of(stage: StageRecord) -> str:
    """What a stage came to, in a few words."""
    if stage.status != "done":
        return stage.status
    said = [] if stage.validation is None else [f"held-out accuracy {stage.validation.accuracy:.1%}"]
    said += [_counted(stage)] if stage.counts else []
    if stage.accepted is False:
        said.append("REJECTED")
    return ", ".join(said) or "done"


def print_state(state: State, *, run: Path, console: Console, under_way: bool = False) -> None:
    """The stages of a run as a table, and where its best checkpoint is; `under_way`: whether a process trains in it."""
    table = Table(
        title=f"{state.command} in {run}", title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1)
    )
    for name in ("stage", "held out", "95 %", "tool use", "failed", "no verdict", "outcome"):
        table.add_column(name, justify="left" if name in ("stage", "outcome") else "right", no_wrap=True)
    for stage in state.stages:
        table.add_row(*_cells(stage, best=stage.name == state.best, under_way=under_way))
    console.print(table)
    for stage in state.stages:
        if stage.counts:
            console.print(f"{stage.name}: {_counted(stage)}", soft_wrap=True)
    for stage in state.stages:
        for complaint in stage.complaints:
            console.print(f"{stage.name}: {complaint}", soft_wrap=True)
    if state.best is not None:
        console.print(f"best: {state.best}, {run / 'best'}", soft_wrap=True)
    if not state.done:
        goes_on = "still going on" if under_way else "stopped before its end; the command that began it goes on"
        console.print(goes_on, soft_wrap=True)


def _cells(stage: StageRecord, *, best: bool, under_way: bool) -> list[str]:
    found = stage.validation
    if stage.status != "done":
        outcome = "interrupted" if stage.status == "running" and not under_way else stage.status
    elif stage.accepted is None:
        outcome = "done"
    else:
        outcome = "rejected" if not stage.accepted else "best" if best else "accepted"
    if found is None:
        return [stage.name, "", "", "", "", "", outcome]
    return [
        stage.name,
        f"{found.accuracy:.1%}",
        f"{100 * found.low:.1f} to {100 * found.high:.1f}",
        _share(found.tool_use),
        _share(found.failed_programs),
        _share(found.no_verdict),
        outcome,
    ]


def _counted(stage: StageRecord) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in stage.counts.items())


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"

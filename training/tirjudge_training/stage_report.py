"""Show a run on the terminal: a progress bar during the run, and a table of its stages at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from tirjudge_training.metrics import MetricRow, Validated, series, validations
from tirjudge_training.run_folder import StageRecord, State, ValidationRecord

SHOWN = (
    ("train/loss", "loss"),
    ("reward/total", "R"),
    ("reward/Rc", "right"),
    ("tool/use_rate", "tools"),
    ("dapo/kept_frac", "kept"),
    ("train/kl", "kl"),
    ("val/acc", "held out"),
)
"""Metrics shown beside the progress bar, with their short names."""

STYLES = {"rejected": "red", "interrupted": "red", "running": "green", "waiting": "dim"}
"""Outcome of a stage -> color of its line."""


class Reporter(Callback):
    """Draws a progress bar for the current stage, and prints a line for each finished stage.

    Args:
        console: Output. If it is not a terminal, lines are printed instead of a bar.
        line_every: Number of steps between two lines after the first step, if the output is not a terminal.
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

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._remove()
        self._progress.stop()
        if kind is KeyboardInterrupt:
            self._console.print("interrupted; run the same command again to resume", soft_wrap=True)

    def began(self, stage: StageRecord) -> None:
        self._stage = stage.name
        self._task = self._progress.add_task(f"{stage.name}: starting", total=None)
        if not self._console.is_terminal:
            self._console.print(f"{stage.name}: starting", soft_wrap=True)

    def moved(self, doing: str, done: int, total: int, values: Mapping[str, float]) -> None:
        first = doing != self._doing
        if first or self._task is None:
            self._remove()
            self._doing, self._task = doing, self._progress.add_task(doing, total=total)
        shown = "  ".join(f"{name} {values[metric]:.3f}" for metric, name in SHOWN if metric in values)
        description = f"{self._stage}: {doing}  {shown}".rstrip()
        self._progress.update(self._task, completed=done, total=total, description=description)
        due = first or done % self._line_every == 0 or done == total
        if due and not self._console.is_terminal and doing != "validating":
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


_SELECTIVE = (("coverage", "coverage"), ("accuracy of the verdicts", "accuracy"))


def outcome_of(stage: StageRecord) -> str:
    """Return the outcome of a stage in a few words."""
    if stage.status != "done":
        return stage.status
    parts = [] if stage.validation is None else [f"held-out accuracy {stage.validation.accuracy:.1%}"]
    parts += _selective(stage.validation)
    parts += [_counted(stage)] if stage.counts else []
    if stage.accepted is False:
        parts.append("REJECTED")
    return ", ".join(parts) or "done"


def _selective(validation: ValidationRecord | None) -> list[str]:
    """Return coverage and the accuracy of the verdicts as a part of a line, if they are recorded."""
    found = None if validation is None else validation.selective
    shown = [(name, found[key]) for name, key in _SELECTIVE if found is not None]
    return [f"{name} {value:.1%}" for name, value in shown if isinstance(value, float)]


def print_state(state: State, *, run: Path, console: Console, under_way: bool = False) -> None:
    """Print the stages of a run as a table, their counts and complaints, and the path of the best checkpoint.

    Args:
        state: State of the run.
        run: Folder of the run.
        console: Output.
        under_way: Whether a process works on the run.
    """
    console.print(f"{state.command} in {run}", soft_wrap=True)
    console.print(stage_table(state.stages, under_way=under_way, best=state.best))
    lines = [f"{stage.name}: {_counted(stage)}" for stage in state.stages if stage.counts]
    lines += [f"{stage.name}: {complaint}" for stage in state.stages for complaint in stage.complaints]
    lines += [] if state.best is None else [f"best: {state.best}, {run / 'best'}"]
    if not state.done:
        lines.append("running" if under_way else "stopped before the end; run the same command again to resume")
    for line in lines:
        console.print(line, soft_wrap=True)


def stage_table(
    stages: Sequence[StageRecord], *, under_way: bool, best: str | None = None, rows: Sequence[MetricRow] = ()
) -> Table:
    """Return a table with one row per stage: its outcome, steps, and results on the held-out items.

    Args:
        stages: Stages in order.
        under_way: Whether a process works on the run.
        best: Name of the stage with the best checkpoint. None: unknown.
        rows: Metrics of the run, for the steps and for the last validation of a stage that has not ended.
    """
    lines = []
    for stage in stages:
        own = [row for row in rows if row.stage == stage.name]
        steps = max((row.step for row in own), default=0)
        outcome = _outcome(stage, best=best, under_way=under_way)
        lines.append([stage.name, outcome, str(steps or ""), *_held_out(stage, rows=own)])
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    named = enumerate(("stage", "outcome", "steps", "held out", "95 % interval", "tool use", "failed", "no verdict"))
    filled = [(place, name) for place, name in named if any(line[place] for line in lines)]
    for place, name in filled:
        table.add_column(name, justify="left" if place < 2 else "right", no_wrap=place < 2)
    for line in lines:
        table.add_row(*(line[place] for place, _ in filled), style=STYLES.get(line[1]))
    return table


def _outcome(stage: StageRecord, *, best: str | None, under_way: bool) -> str:
    if stage.status != "done":
        return "interrupted" if stage.status == "running" and not under_way else stage.status
    if stage.accepted is None:
        return "done"
    return "rejected" if not stage.accepted else "best" if stage.name == best else "accepted"


def _held_out(stage: StageRecord, *, rows: Sequence[MetricRow]) -> Sequence[str]:
    """Return the cells of the final validation of a stage, or of its last one if the stage has not ended."""
    found: ValidationRecord | Validated | None = stage.validation or next(reversed(validations(rows)), None)
    if found is None:
        return [""] * 5
    if isinstance(found, ValidationRecord):
        shares = [found.tool_use, found.failed_programs, found.no_verdict]
    else:
        points = [series(rows, f"val/{name}") for name in ("tool_use", "failed_programs", "no_verdict")]
        shares = [each[-1].value if each else None for each in points]
    return [f"{found.accuracy:.1%}", interval_text(found), *("" if v is None else f"{v:.1%}" for v in shares)]


def interval_text(measured: Validated | ValidationRecord) -> str:
    """Return Wilson's interval and the number of items; an empty string if the number is unknown."""
    return "" if measured.num is None else f"{measured.low:.1%} to {measured.high:.1%}, n = {measured.num:,}"


def _counted(stage: StageRecord) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in stage.counts.items())

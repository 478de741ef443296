"""`tirjudge train watch`: shows a run in the terminal, during the run and afterwards.

The view reads `metrics.jsonl` and `state.json` of the run and changes nothing. The lock of the run shows whether a
process still works on it, because the lock is released when its process ends.
"""

from __future__ import annotations

import fcntl
import os
import select
import statistics
import sys
import termios
import time
import tty
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tirjudge_training.metrics import FILE, METRICS, NUM_STEPS, MetricRow, names_of, read_metrics, series, validations
from tirjudge_training.run_folder import STATE, State, read_state
from tirjudge_training.stage_report import interval_text, stage_table

BLOCKS = "▁▂▃▄▅▆▇█"
SPARK = 32
"""Width of a sparkline in characters."""

FRESH_S = 1.0
"""Seconds between two reads of the files."""

COLORS = {"running": "green", "finished": "cyan", "stopped": "red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Snapshot of a run."""

    path: Path
    """Folder of the run."""
    rows: Sequence[MetricRow]
    """All metrics of the run."""
    state: State
    pulse: Literal["running", "finished", "stopped"]
    """Whether a process works on the run, all stages are done, or neither."""
    now: float
    """Seconds since the epoch."""

    @property
    def stage(self) -> str | None:
        """Name of the running stage; if no stage is running, the stage of the last metrics."""
        measured = [row.stage for row in self.rows[-1:]]
        return next(iter([s.name for s in self.state.stages if s.status == "running"] + measured), None)

    @property
    def rows_of_stage(self) -> list[MetricRow]:
        """Metrics of the stage `stage`."""
        return [row for row in self.rows if row.stage == self.stage]

    @property
    def num_steps(self) -> int | None:
        """Total number of steps of the stage. None: unknown."""
        points = series(self.rows_of_stage, NUM_STEPS)
        return round(points[-1].value) if points else None


def watch(
    run: Annotated[Path, typer.Argument(help="Folder of a run.", show_default=False)],
    once: Annotated[bool, typer.Option("--once", help="Print the current state once and exit.")] = False,
) -> None:
    """Watch a run: stages, rewards, accuracy, tools, speed, time left. Press q to close the view; the run continues.

    In a terminal, the command waits for a run that has not started yet.

    Examples:
        tirjudge train watch runs/zero
        tirjudge train watch runs/zero --once
    """
    console = Console()
    try:
        if once or not console.is_terminal:
            console.print(frame(look_at(run)))
        else:
            _wait_for(run, console=console)
            _live(run, console=console, first=frame(look_at(run)))
    except KeyboardInterrupt:
        return
    except ValueError as error:
        typer.echo(f"tirjudge train watch: {error}", err=True)
        raise typer.Exit(2) from None


def _wait_for(run: Path, *, console: Console) -> None:
    """Wait until a run has begun."""
    with console.status(f"waiting for a run in {run}; Ctrl-C ends"):
        while not (run / STATE).exists():
            time.sleep(FRESH_S)


def _live(run: Path, *, console: Console, first: Panel) -> None:
    """Refresh the view until q is pressed. If the input is a terminal, keys are read without Enter."""
    keyboard = [sys.stdin] if sys.stdin.isatty() else []
    before = [termios.tcgetattr(each) for each in keyboard]
    try:
        for each in keyboard:
            tty.setcbreak(each)
        with Live(first, console=console, screen=True, auto_refresh=False) as live:
            while not select.select(keyboard, [], [], FRESH_S)[0] or os.read(sys.stdin.fileno(), 1) != b"q":
                live.update(frame(look_at(run)), refresh=True)
    finally:
        for each, settings in zip(keyboard, before, strict=True):
            termios.tcsetattr(each, termios.TCSADRAIN, settings)


def look_at(path: Path, *, now: float | None = None) -> Look:
    """Read a run.

    Args:
        path: Folder of the run.
        now: Current time in seconds since the epoch. None: the clock.

    Raises:
        ValueError: the folder has no run, or its files cannot be read.
    """
    state = read_state(path)
    pulse = "finished" if state.done else "running" if _is_held(path / ".lock") else "stopped"
    moment = time.time() if now is None else now
    return Look(path=path, rows=read_metrics(path / FILE), state=state, pulse=pulse, now=moment)


def _is_held(lock: Path) -> bool:
    """Whether a process holds the lock of the run."""
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # the lock file is missing, or the file system does not support locks
        pass
    return False


# Layout -----------------------------------------------------------------------------------------------------------------


def frame(look: Look) -> Panel:
    """Return the complete view of a run."""
    under_way = look.pulse == "running"
    parts: list[RenderableType] = [_headline(look), Text()]
    parts.append(stage_table(look.state.stages, rows=look.rows, under_way=under_way))
    parts += [
        Text(f"{stage.name}: {complaint}", "red") for stage in look.state.stages for complaint in stage.complaints
    ]
    details = [table for table in (_accuracy_table(look.rows), _metric_table(look.rows_of_stage)) if table.row_count]
    if details:
        parts += [Text(), Columns(details, padding=(1, 3))]  # side by side if the terminal is wide enough
    color = COLORS[look.pulse]
    title = f"{look.path.resolve().name}: [{color}]{look.pulse}[/]"
    return Panel(Group(*parts), title=title, title_align="left", border_style=color)


def _headline(look: Look) -> Text:
    words: list[str] = []
    if look.stage is not None:
        step = max((row.step for row in look.rows_of_stage), default=0)
        words.append(f"{look.stage}, step {step}" + ("" if look.num_steps is None else f" of {look.num_steps}"))
    if look.rows:
        end = look.now if look.pulse == "running" else look.rows[-1].time
        words.append(f"{clock(end - look.rows[0].time)} so far")
    if (left_s := eta_s(look)) is not None:
        words.append(f"{clock(left_s)} left in this stage")
    if look.pulse == "stopped":
        silent = f" for {clock(look.now - look.rows[-1].time)}" if look.rows else ""
        words.append(f"no process running{silent}; run the same command again to resume")
    return Text(", ".join(words) or "nothing measured yet")


def eta_s(look: Look) -> float | None:
    """Estimate the seconds until the stage ends, from the median duration of its last steps. None: unknown."""
    times = {row.step: row.time for row in look.rows_of_stage}
    steps = sorted(times)[-20:]
    if look.pulse != "running" or look.num_steps is None or len(steps) < 2:
        return None
    step_s = statistics.median((times[b] - times[a]) / (b - a) for a, b in pairwise(steps))
    return max(0.0, step_s * (look.num_steps - steps[-1]) - (look.now - times[steps[-1]]))


def _metric_table(rows: Sequence[MetricRow]) -> Table:
    """Return a table of the metrics of a stage: the last value and a sparkline."""
    table = Table("", "", "", "", box=None, pad_edge=False, show_header=False)
    table.columns[1].justify = "right"
    for metric in METRICS:
        if values := [point.value for point in series(rows, metric.name)]:
            shown = f"{values[-1]:.1%}" if metric.axis == "percent" else f"{values[-1]:.4g}"
            table.add_row(metric.title, shown, metric.unit, Text(sparkline(values, width=SPARK), "blue"))
    return table


def _accuracy_table(rows: Sequence[MetricRow]) -> Table:
    """Return a table of accuracy by task and mode: in training, and on held-out items with its interval."""
    table = Table("task, mode", "training", "", "held out", "interval", box=None, pad_edge=False, header_style="dim")
    cells = {name.removeprefix("judge/acc/").removeprefix("val/acc/") for name in names_of(rows) if "/acc/" in name}
    for cell in sorted(cells):
        values = [point.value for point in series(rows, f"judge/acc/{cell}")]
        held_out = [(f"{one.accuracy:.1%}", interval_text(one)) for one in validations(rows, f"val/acc/{cell}")]
        trained = (f"{values[-1]:.1%}" if values else "", Text(sparkline(values, width=SPARK // 2), "blue"))
        table.add_row(cell.replace("/", ", "), *trained, *(held_out or [("", "")])[-1])
    return table


def sparkline(values: Sequence[float], *, width: int) -> str:
    """Return a sparkline of at most `width` characters. Each character shows the mean of neighboring values.

    >>> sparkline([0, 1, 2, 3, 4, 5, 6, 7], width=8)
    '▁▂▃▄▅▆▇█'
    >>> sparkline([0, 0, 1, 1], width=2)
    '▁█'
    """
    count = min(width, len(values))
    edges = [len(values) * place // count for place in range(count + 1)] if count else []
    means = [statistics.fmean(values[a:b]) for a, b in pairwise(edges)]
    low, high = min(means, default=0.0), max(means, default=0.0)
    if high - low <= 1e-9 * max(abs(high), abs(low)):  # equal except for rounding
        return BLOCKS[3] * count
    return "".join(BLOCKS[round((mean - low) / (high - low) * (len(BLOCKS) - 1))] for mean in means)


def clock(seconds: float) -> str:
    """Format seconds as hours, minutes and seconds.

    >>> clock(3725)
    '1:02:05'
    """
    return str(timedelta(seconds=max(0, round(seconds))))

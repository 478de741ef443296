"""`tirjudge train watch`: a run in the terminal, while it trains and afterwards.

It reads what the run writes, `metrics.jsonl` and `state.json`, and never touches the run. Whether anybody still works on it
is told by the lock, which goes with the process that holds it.
"""

from __future__ import annotations

import fcntl
import os
import select
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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

from tirjudge_training.metrics import FILE, MetricRow, Validated, names_of, read_metrics, series, stages_of, validations
from tirjudge_training.run_folder import StageRecord, State, read_state

_Pressed = Callable[[float], str]
"""Seconds to wait -> the key that was pressed meanwhile, empty if none was."""

Pulse = Literal["running", "finished", "stopped"]

BLOCKS = "▁▂▃▄▅▆▇█"
SPARK = 32
"""Characters of a line of blocks."""

QUIET_S = 10.0
"""A run that wrote within this long is running: its lock is not looked at."""

FRESH_S = 1.0
"""Between two looks at the files."""

NUM_STEPS = "train/num_steps"
"""The metric that says how many steps the stage will have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One line of the table of metrics."""

    name: str
    """Of the metric."""
    title: str
    percent: bool = False
    unit: str = ""


LINES: tuple[Shown, ...] = (
    Shown(name="reward/total", title="reward"),
    Shown(name="reward/Rc", title="  correct (Rc)"),
    Shown(name="reward/Rf", title="  format (Rf)"),
    Shown(name="reward/Rt", title="  tools (Rt)"),
    Shown(name="tool/calls", title="calls a trajectory"),
    Shown(name="tool/use_rate", title="tool use", percent=True),
    Shown(name="tool/error_rate", title="tool errors", percent=True),
    Shown(name="dapo/kept_frac", title="kept groups", percent=True),
    Shown(name="length/tokens", title="length", unit="tokens"),
    Shown(name="train/loss", title="loss"),
    Shown(name="train/kl", title="KL", unit="nats"),
    Shown(name="train/grad_norm", title="gradient norm"),
    Shown(name="sync/dlogp_mean", title="engine - trainer, mean", unit="nats"),
    Shown(name="sync/dlogp_max", title="engine - trainer, largest", unit="nats"),
    Shown(name="perf/traj_per_s", title="trajectories", unit="/s"),
    Shown(name="perf/tok_s", title="tokens", unit="/s"),
    Shown(name="perf/sandbox_share", title="waits for the sandbox", percent=True),
    Shown(name="perf/step_s", title="a step", unit="s"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A run at one moment."""

    path: Path
    rows: Sequence[MetricRow]
    state: State | None
    """None: the folder has only metrics."""
    pulse: Pulse
    now: float
    """Seconds since the epoch."""

    @property
    def stages(self) -> list[StageRecord]:
        """Of the state; without one, what the metrics name."""
        if self.state is not None:
            return self.state.stages
        names = stages_of(self.rows)
        done = self.pulse == "finished"
        return [
            StageRecord(name=name, kind="rl", status="done" if done or name != names[-1] else "running")
            for name in names
        ]

    @property
    def stage(self) -> str | None:
        """The one that runs, or else the last that measured anything."""
        running = [stage.name for stage in self.stages if stage.status == "running"]
        return running[0] if running else next(iter(reversed(stages_of(self.rows))), None)

    @property
    def rows_of_stage(self) -> list[MetricRow]:
        return [row for row in self.rows if row.stage == self.stage]


def watch(
    run: Annotated[Path, typer.Argument(help="Folder of a run.", show_default=False)],
    once: Annotated[bool, typer.Option("--once", help="Print it as it is now, and end.")] = False,
) -> None:
    """Watch a run: stages, rewards, accuracy, tools, speed, and how long yet. q ends the view, not the run."""
    console = Console()
    try:
        first = look_at(run)
    except ValueError as error:
        typer.echo(f"tirjudge train watch: {error}", err=True)
        raise typer.Exit(2) from None
    if once or not console.is_terminal:
        console.print(frame(first))
        return
    try:
        _live(run, console=console, first=first)
    except KeyboardInterrupt:
        return
    except ValueError as error:
        typer.echo(f"tirjudge train watch: {error}", err=True)
        raise typer.Exit(2) from None


def look_at(path: Path, *, now: float | None = None) -> Look:
    """Read a run.

    Raises:
        ValueError: there is none, or its files cannot be read.
    """
    rows = read_metrics(path / FILE)
    if not rows and not (path / "state.json").exists():
        raise ValueError(f"{path}: no run here; a folder with {FILE} or state.json is one")
    state = read_state(path) if (path / "state.json").exists() else None
    moment = time.time() if now is None else now
    return Look(path=path, rows=rows, state=state, pulse=_pulse(path, state=state, now=moment), now=moment)


def _pulse(path: Path, *, state: State | None, now: float) -> Pulse:
    if state is not None and state.done:
        return "finished"
    wrote = [file.stat().st_mtime for file in (path / FILE, path / "state.json") if file.exists()]
    is_held = _is_held(path / ".lock")
    if is_held is None:
        return "running" if now - max(wrote) < QUIET_S else "stopped"
    return "running" if is_held else "stopped"


def _is_held(lock: Path) -> bool | None:
    """Whether a process holds the run. None: there is no lock, or locks cannot be asked for here."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    else:
        return False
    finally:
        os.close(descriptor)


# What is shown ----------------------------------------------------------------------------------------------------------


def frame(look: Look) -> Panel:
    """All of it."""
    details = [part for part in (_accuracies(look), _measured(look)) if part is not None]
    parts: list[RenderableType] = [_headline(look), Text(), _stages(look)]
    if details:
        parts += [Text(), Columns(details, padding=(1, 3))]  # beside one another where the terminal is wide enough
    colour = {"running": "green", "finished": "cyan", "stopped": "red"}[look.pulse]
    return Panel(
        Group(*parts),
        title=f"{look.path.resolve().name}: [{colour}]{look.pulse}[/]",
        title_align="left",
        border_style=colour,
    )


def _headline(look: Look) -> Text:
    words: list[str] = []
    rows = look.rows_of_stage
    if look.stage is not None:
        total = num_steps(look)
        step = max((row.step for row in rows), default=0)
        words.append(f"{look.stage}, step {step}" + ("" if total is None else f" of {total}"))
    if look.rows:
        end = look.rows[-1].time if look.pulse != "running" else look.now
        words.append(f"{clock(end - look.rows[0].time)} so far")
    left_s = eta_s(look)
    if left_s is not None:
        words.append(f"{clock(left_s)} left in this stage")
    if look.pulse == "stopped":
        silent = f", silent for {clock(look.now - look.rows[-1].time)}" if look.rows else ""
        words.append(f"nobody works on it{silent}; the command that began it goes on with it")
    return Text(", ".join(words) or "nothing measured yet")


def num_steps(look: Look) -> int | None:
    """Of the stage that runs; None: it does not say."""
    said = [row.values[NUM_STEPS] for row in look.rows_of_stage if NUM_STEPS in row.values]
    return round(said[-1]) if said else None


def eta_s(look: Look) -> float | None:
    """Seconds until the stage ends, at the median time of its last steps; None: not running, or not known."""
    total = num_steps(look)
    times = {row.step: row.time for row in look.rows_of_stage}
    steps = sorted(times)[-20:]
    if look.pulse != "running" or total is None or len(steps) < 2:
        return None
    paces = [(times[b] - times[a]) / (b - a) for a, b in pairwise(steps)]
    since = look.now - times[steps[-1]]
    return max(0.0, statistics.median(paces) * (total - steps[-1]) - since)


def _stages(look: Look) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("stage", "", "steps", "validation", "interval", "tool use", ""):
        table.add_column(name)
    for stage in look.stages:
        rows = [row for row in look.rows if row.stage == stage.name]
        steps = max((row.step for row in rows), default=0)
        table.add_row(
            Text(stage.name, style="bold" if stage.status == "running" else ""),
            _standing(stage, pulse=look.pulse),
            str(steps) if steps else "",
            *_validation_cells(stage, rows=rows),
            Text("; ".join(stage.complaints), style="red"),
        )
    return table


def _standing(stage: StageRecord, *, pulse: Pulse) -> Text:
    if stage.status == "done" and stage.accepted is False:
        return Text("rejected", style="red")
    if stage.status == "running" and pulse == "stopped":
        return Text("interrupted", style="red")
    styles = {"done": "cyan", "running": "green", "waiting": "dim"}
    return Text(stage.status, style=styles[stage.status])


def _validation_cells(stage: StageRecord, *, rows: Sequence[MetricRow]) -> tuple[str, str, str]:
    """Accuracy, interval and tool use: what the stage ended with, or else the last that it measured."""
    measured = validations(rows)
    tool_use = series(rows, "val/tool_use")
    if stage.validation is not None:
        record = stage.validation
        share = "" if record.tool_use is None else f"{record.tool_use:.1%}"
        return f"{record.accuracy:.1%}", _interval(record.low, record.high, num=record.num), share
    if not measured:
        return "", "", ""
    last = measured[-1]
    share = f"{tool_use[-1].value:.1%}" if tool_use else ""
    return f"{last.accuracy:.1%}", _interval(last.low, last.high, num=last.num), share


def _interval(low: float, high: float, *, num: int | None) -> str:
    return "" if num is None else f"{low:.1%} to {high:.1%}, n = {num:,}"


def _measured(look: Look) -> Table | None:
    """The metrics of the current stage: last value, and how it went."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for justify in ("left", "right", "left", "left"):
        table.add_column(justify=justify)
    rows = look.rows_of_stage
    for line in LINES:
        values = [point.value for point in series(rows, line.name)]
        if values:
            spark = Text(sparkline(values, width=SPARK), style="blue")
            table.add_row(line.title, _value(values[-1], percent=line.percent), line.unit, spark)
    return table if table.row_count else None


def _accuracies(look: Look) -> Table | None:
    """Accuracy by task and mode: in training, and on held-out items with its interval."""
    trained = _tails(look.rows, "judge/acc/")
    held_out = _tails(look.rows, "val/acc/")
    cells = sorted({*trained, *held_out})
    if not cells:
        return None
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("task, mode", "training", "", "held out", "interval"):
        table.add_column(name)
    for cell in cells:
        points = [point.value for point in series(look.rows, f"judge/acc/{cell}")]
        measured: list[Validated] = validations(look.rows, f"val/acc/{cell}")
        last = measured[-1] if measured else None
        table.add_row(
            cell.replace("/", ", "),
            f"{points[-1]:.1%}" if points else "",
            Text(sparkline(points, width=SPARK // 2), style="blue"),
            "" if last is None else f"{last.accuracy:.1%}",
            "" if last is None else _interval(last.low, last.high, num=last.num),
        )
    return table


def _tails(rows: Sequence[MetricRow], prefix: str) -> list[str]:
    return [name.removeprefix(prefix) for name in names_of(rows) if name.startswith(prefix)]


def sparkline(values: Sequence[float], *, width: int) -> str:
    """Blocks from the smallest value to the largest; each is the mean of the values that fall on it.

    >>> sparkline([0, 1, 2, 3, 4, 5, 6, 7], width=8)
    '▁▂▃▄▅▆▇█'
    >>> sparkline([0, 0, 1, 1], width=2)
    '▁█'
    """
    if not values:
        return ""
    count = min(width, len(values))
    edges = [len(values) * place // count for place in range(count + 1)]
    means = [statistics.fmean(values[a:b]) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    if high - low <= 1e-9 * max(abs(high), abs(low)):  # equal but for rounding
        return BLOCKS[3] * count
    return "".join(BLOCKS[round((mean - low) / (high - low) * (len(BLOCKS) - 1))] for mean in means)


def _value(value: float, *, percent: bool) -> str:
    if percent:
        return f"{value:.1%}"
    if value and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.1e}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3f}"


def clock(seconds: float) -> str:
    """Hours, minutes, seconds.

    >>> clock(3725)
    '1:02:05'
    """
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


# Live -------------------------------------------------------------------------------------------------------------------


def _live(run: Path, *, console: Console, first: Look) -> None:
    with _keys() as pressed, Live(frame(first), console=console, screen=True, auto_refresh=False) as live:
        while pressed(FRESH_S) != "q":
            live.update(frame(look_at(run)), refresh=True)


@contextmanager
def _keys() -> Iterator[_Pressed]:
    """Keys as they are pressed, without Enter; none where nobody sits at a keyboard."""
    if not sys.stdin.isatty():
        yield _no_key
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield _key
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _key(wait_s: float) -> str:
    ready, _, _ = select.select([sys.stdin], [], [], wait_s)
    return os.read(sys.stdin.fileno(), 1).decode("ascii", "replace") if ready else ""


def _no_key(wait_s: float) -> str:
    time.sleep(wait_s)
    return ""

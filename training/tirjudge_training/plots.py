"""`tirjudge train plot`: what runs measured of themselves, as SVG and PNG, several runs over one another.

Steps count over all stages, one after the other. The colours are Okabe and Ito's, which people with any kind of colour
vision can tell apart. Long series are drawn faintly, with their running mean over them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tirjudge_training.metrics import (
    FILE,
    MetricRow,
    Point,
    Validated,
    names_of,
    read_metrics,
    series,
    stages_of,
    validations,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX*<>"
LONG = 40
"""Series with more points than this get a running mean."""

STYLE: Any = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "figure.constrained_layout.use": True,
    "font.size": 9,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "tirjudge",
    "text.parse_math": False,
}

STEPS = "optimizer steps, all stages"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlottedRun:
    """One run, and what it is called in legends."""

    label: str
    rows: Sequence[MetricRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One metric against steps."""

    name: str
    """Of the metric."""
    title: str
    unit: str
    """Of the vertical axis."""
    scale: float = 1.0
    """Values are shown times this."""
    span: tuple[float, float] | None = None
    """Ends of the vertical axis; None: what the values need."""
    from_zero: bool = False


def _share(name: str, title: str, unit: str) -> Panel:
    return Panel(name=name, title=title, unit=f"{unit}, %", scale=100.0, span=(-3, 103))


def _from_zero(name: str, title: str, unit: str) -> Panel:
    return Panel(name=name, title=title, unit=unit, from_zero=True)


FIGURES: dict[str, tuple[Panel, ...]] = {
    "reward": (
        Panel(name="reward/total", title="Reward", unit="mean reward", span=(-0.03, 1.03)),
        Panel(name="reward/Rc", title="Correct (Rc)", unit="mean", span=(-0.03, 1.03)),
        Panel(name="reward/Rf", title="Format kept (Rf)", unit="share of trajectories", span=(-0.03, 1.03)),
        Panel(name="reward/Rt", title="Tools used well (Rt)", unit="share of trajectories", span=(-0.03, 1.03)),
    ),
    "tools": (
        _from_zero("tool/calls", "Calls", "programs a trajectory"),
        _share("tool/error_rate", "Tool errors", "programs that failed"),
        _share("tool/use_rate", "Tool use", "trajectories with a program"),
        _share("tool/no_tool_ok", "Right without a tool", "trajectories without a program"),
    ),
    "sampling": (
        _share("dapo/kept_frac", "Kept groups", "groups that were drawn"),
        _from_zero("dapo/draws", "Draws", "groups drawn a step"),
    ),
    "length": (
        _from_zero("length/tokens", "Length of trajectories", "tokens, mean"),
        _from_zero("length/prompt", "Length of prompts", "tokens, mean"),
    ),
    "training": (
        Panel(name="train/loss", title="Loss", unit="loss"),
        _from_zero("train/kl", "Distance from the reference (KL)", "nats a token"),
        _from_zero("train/grad_norm", "Gradient", "norm before clipping"),
        _from_zero("train/entropy", "Entropy", "nats a token"),
    ),
    "logprobs": (
        _from_zero("sync/dlogp_mean", "Engine against trainer, mean", "|difference of log-probability|, nats"),
        _from_zero("sync/dlogp_max", "Engine against trainer, largest", "|difference of log-probability|, nats"),
    ),
    "speed": (
        _from_zero("perf/traj_per_s", "Speed", "trajectories a second"),
        _from_zero("perf/tok_s", "Speed", "tokens a second"),
        _from_zero("perf/step_s", "Time of a step", "seconds"),
        _share("perf/sandbox_share", "Waiting for the sandbox", "time of collecting"),
    ),
}


def plot(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Folder for the plots; made if there is none.")] = Path("plots"),
) -> None:
    """Draw what runs measured: rewards, accuracy, tools, sampling, length, KL, log-probabilities, validation."""
    try:
        files = write_plots([read_run(path, among=runs) for path in runs], out=out)
    except ValueError as error:
        typer.echo(f"tirjudge train plot: {error}", err=True)
        raise typer.Exit(2) from None
    for file in files:
        typer.echo(str(file))


def read_run(path: Path, *, among: Sequence[Path] = ()) -> PlottedRun:
    """A run's metrics, called by its folder's name, or by a longer part of its path where that is not enough.

    Raises:
        ValueError: there are none.
    """
    rows = read_metrics(path / FILE)
    if not rows:
        raise ValueError(f"{path}: no run with measurements; a folder with {FILE} is one")
    names = [each.resolve().name for each in among]
    whole = path.resolve()
    return PlottedRun(label="/".join(whole.parts[-2:]) if names.count(whole.name) > 1 else whole.name, rows=rows)


def write_plots(runs: Sequence[PlottedRun], *, out: Path) -> list[Path]:
    """Every plot that the runs have the data for.

    Returns:
        The files.

    Raises:
        ValueError: the folder cannot be written, or matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise ValueError("plots need matplotlib; `pip install matplotlib` installs it") from error
    matplotlib.use("agg")
    drawings: dict[str, Callable[[], Canvas | None]] = {
        "validation": lambda: _validation(runs),
        "accuracy": lambda: _panels(runs, panels=accuracy_panels(runs)),
        **{name: lambda panels=panels: _panels(runs, panels=panels) for name, panels in FIGURES.items()},
    }
    files: list[Path] = []
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, draw in drawings.items():
            with matplotlib.rc_context(STYLE):
                canvas = draw()
                files += [] if canvas is None else _save(canvas, out=out, name=name)
    except OSError as error:
        raise ValueError(f"{out}: {error.strerror}; a folder that can be written is needed") from error
    return files


def accuracy_panels(runs: Sequence[PlottedRun]) -> tuple[Panel, ...]:
    """One for each task and mode that any run trained on."""
    names = dict.fromkeys(name for run in runs for name in names_of(run.rows) if name.startswith("judge/acc/"))
    return tuple(
        _share(name, name.removeprefix("judge/acc/").replace("/", ", "), "right of all rollouts")
        for name in sorted(names)
    )


def running_mean(values: Sequence[float], *, width: int) -> list[float]:
    """Mean over up to `width` values around each, fewer at the ends.

    >>> running_mean([0.0, 3.0, 6.0, 3.0], width=3)
    [1.5, 3.0, 4.0, 4.5]
    """
    half = width // 2
    around = [values[max(0, i - half) : i + half + 1] for i in range(len(values))]
    return [sum(some) / len(some) for some in around]


def _panels(runs: Sequence[PlottedRun], *, panels: Sequence[Panel]) -> Canvas | None:
    """Panels beside one another; those that no run has data for are left out."""
    drawn = [panel for panel in panels if any(series(run.rows, panel.name) for run in runs)]
    if not drawn:
        return None
    columns = min(len(drawn), 2 if len(drawn) in (2, 4) else 3)
    canvas, all_axes = _canvas(len(drawn), columns=columns)
    for panel, axes in zip(drawn, all_axes, strict=True):
        for place, run in enumerate(runs):
            _curve(axes, series(run.rows, panel.name), panel=panel, place=place)
        axes.set(title=panel.title, ylabel=panel.unit, xlabel=STEPS)
        if panel.span is not None:
            axes.set_ylim(*panel.span)
        elif panel.from_zero:
            axes.set_ylim(bottom=0)
        if len(runs) == 1:
            _borders(axes, runs[0].rows)
    _legend(canvas, runs)
    return canvas


def _curve(axes: Axes, points: Sequence[Point], *, panel: Panel, place: int) -> None:
    """Stage by stage: nothing was measured between two of them, so no line joins them."""
    colour = COLOURS[place % len(COLOURS)]
    for stage in dict.fromkeys(point.stage for point in points):
        at = [point.at for point in points if point.stage == stage]
        values = [panel.scale * point.value for point in points if point.stage == stage]
        if len(points) <= LONG:
            axes.plot(at, values, color=colour, linewidth=1.4, marker=".", markersize=4)
            continue
        axes.plot(at, values, color=colour, linewidth=0.7, alpha=0.3)
        axes.plot(at, running_mean(values, width=len(points) // 20 + 1), color=colour, linewidth=1.6)


def _borders(axes: Axes, rows: Sequence[MetricRow]) -> None:
    """Where stages begin, with their names."""
    at = 0
    lengths = {stage: max(row.step for row in rows if row.stage == stage) for stage in stages_of(rows)}
    lengths = {stage: length for stage, length in lengths.items() if length}
    for stage, length in lengths.items() if len(lengths) > 1 else ():
        if at:
            axes.axvline(at, color="#777777", linestyle=":", linewidth=0.8)
        name = axes.annotate(
            f" {stage}", (at, 1.0), xycoords=("data", "axes fraction"), color="#555555", fontsize=7, va="top"
        )
        name.set_in_layout(False)  # a name that is wider than its stage must not squeeze the axes
        at += length


def last_of_stages(rows: Sequence[MetricRow], name: str) -> list[Validated]:
    """The last measurement of each stage."""
    return list({one.stage: one for one in validations(rows, name)}.values())


def _validation(runs: Sequence[PlottedRun]) -> Canvas | None:
    """Held-out accuracy, with Wilson's intervals, and tool use after each stage."""
    panels = [
        ("val/acc", "Accuracy after each stage", "right of held-out items, %\n(95 % interval)"),
        ("val/tool_use", "Tool use after each stage", "rollouts on verifiable items\nwith a program, %"),
    ]
    drawn = [panel for panel in panels if any(last_of_stages(run.rows, panel[0]) for run in runs)]
    if not drawn:
        return None
    canvas, all_axes = _canvas(len(drawn), columns=len(drawn))
    for (name, title, unit), axes in zip(drawn, all_axes, strict=True):
        stages = list(dict.fromkeys(one.stage for run in runs for one in last_of_stages(run.rows, name)))
        for place, run in enumerate(runs):
            shift = 0.24 * (place / (len(runs) - 1) - 0.5) if len(runs) > 1 else 0.0
            _stage_line(axes, last_of_stages(run.rows, name), stages=stages, place=place, shift=shift)
        axes.set(title=title, ylabel=unit, ylim=(-3, 103), xlim=(-0.5, len(stages) - 0.5))
        axes.set_xticks(range(len(stages)), stages)
    _legend(canvas, runs, marked=True)
    return canvas


def _stage_line(axes: Axes, measured: Sequence[Validated], *, stages: Sequence[str], place: int, shift: float) -> None:
    at = [stages.index(one.stage) + shift for one in measured]
    arms = [
        [100 * (one.accuracy - one.low) for one in measured],
        [100 * (one.high - one.accuracy) for one in measured],
    ]
    axes.errorbar(at, [100 * one.accuracy for one in measured], yerr=arms, **_look(place), linewidth=1.2, capsize=3)


def _look(place: int) -> dict[str, Any]:
    return {"color": COLOURS[place % len(COLOURS)], "marker": MARKERS[place % len(MARKERS)], "markersize": 5}


def _canvas(num_panels: int, *, columns: int) -> tuple[Canvas, Sequence[Axes]]:
    from matplotlib.figure import Figure as Canvas

    lines = -(-num_panels // columns)
    canvas = Canvas(figsize=(6.0 if columns == 1 else 4.2 * columns, 3.0 * lines + 0.3))
    all_axes = canvas.subplots(lines, columns, squeeze=False).ravel()
    for axes in all_axes[num_panels:]:
        axes.remove()
    return canvas, list(all_axes[:num_panels])


def _legend(canvas: Canvas, runs: Sequence[PlottedRun], *, marked: bool = False) -> None:
    """Names the runs, where there are several."""
    from matplotlib.lines import Line2D

    if len(runs) > 1:
        colours: list[dict[str, Any]] = [{"color": COLOURS[place % len(COLOURS)]} for place in range(len(runs))]
        looks = [_look(place) for place in range(len(runs))] if marked else colours
        lines = [Line2D([], [], label=run.label, **look) for run, look in zip(runs, looks, strict=True)]
        canvas.legend(handles=lines, loc="outside lower center", ncols=min(4, len(runs)))


def _save(canvas: Canvas, *, out: Path, name: str) -> list[Path]:
    files = [out / f"{name}.svg", out / f"{name}.png"]
    canvas.savefig(files[0], metadata={"Date": None})
    canvas.savefig(files[1], dpi=150)
    return files

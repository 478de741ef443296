"""`tirjudge train plot`: metrics of one or more runs as SVG and PNG, several runs in one plot.

Steps are counted over all stages. The colors are the Okabe-Ito palette, which is safe for color-blind readers. Long
series are drawn in a light color, with their running mean on top.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tirjudge_training.metrics import FILE, METRICS, Metric, MetricRow, names_of, read_metrics, series, validations

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LONG = 40
"""Series with more points than this get a running mean."""
LEGEND_WIDTH = 60
"""Maximum length of a line in a legend, in characters. Longer names of runs get several lines."""

STYLE: Any = {
    "axes.grid": True, "axes.spines.right": False, "axes.spines.top": False, "axes.titlesize": 10, "font.size": 9,
    "figure.constrained_layout.use": True, "grid.alpha": 0.3, "legend.frameon": False, "svg.fonttype": "none",
    "svg.hashsalt": "tirjudge", "text.parse_math": False,
}  # fmt: skip

VALIDATION = (
    Metric("val/acc", "accuracy after each stage", "of held-out items (95 % interval)", "validation", "percent"),
    Metric("val/tool_use", "tool use after each stage", "of rollouts on verifiable items", "validation", "percent"),
)


@dataclass(frozen=True, slots=True)
class PlottedRun:
    """One run with its name in legends."""

    label: str
    """Name in legends."""
    rows: Sequence[MetricRow]
    """Metrics of the run."""


def plot(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Folder for the plots; created if it is missing.")] = Path("plots"),
) -> None:
    """Plot the metrics of runs: rewards, accuracy, tools, sampling, length, KL, log-probabilities, validation.

    Examples:
        tirjudge train plot runs/zero --out plots
    """
    try:
        files = write_plots([read_run(path, among=runs) for path in runs], out=out)
    except ValueError as error:
        typer.echo(f"tirjudge train plot: {error}", err=True)
        raise typer.Exit(2) from None
    for file in files:
        typer.echo(str(file))


def read_run(path: Path, *, among: Sequence[Path] = ()) -> PlottedRun:
    """Read the metrics of a run.

    Args:
        path: Folder of the run. Its name is the label of the run.
        among: Folders of all runs. If two have the same name, the label also has the name of the parent folder.

    Raises:
        ValueError: the folder has no metrics.
    """
    rows = read_metrics(path / FILE)
    if not rows:
        raise ValueError(f"{path}: no measurements found; give the folder of a run, with a file {FILE}")
    is_unique = [each.resolve().name for each in among].count(path.resolve().name) < 2
    return PlottedRun("/".join(path.resolve().parts[-1 if is_unique else -2 :]), rows)


def write_plots(runs: Sequence[PlottedRun], *, out: Path) -> list[Path]:
    """Draw all plots for which the runs have data.

    Args:
        runs: Runs to plot together.
        out: Folder for the plots; created if it is missing.

    Returns:
        Paths of the written files.

    Raises:
        ValueError: the folder cannot be written, or matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise ValueError("matplotlib is not installed; run `pip install matplotlib`") from error
    matplotlib.use("agg")
    accuracies = sorted({name for run in runs for name in names_of(run.rows) if name.startswith("judge/acc/")})
    titles = [name.removeprefix("judge/acc/").replace("/", ", ") for name in accuracies]
    panels = [*VALIDATION, *METRICS]
    panels += [Metric(*each, "right of all rollouts", "accuracy", "percent") for each in zip(accuracies, titles)]  # noqa: B905
    drawn = [panel for panel in panels if any(series(run.rows, panel.name) for run in runs)]
    try:
        out.mkdir(parents=True, exist_ok=True)
        with matplotlib.rc_context(STYLE):
            figures = dict.fromkeys(panel.figure for panel in drawn)
            return [
                file
                for figure in figures
                for file in _figure(runs, [panel for panel in drawn if panel.figure == figure], out=out / figure)
            ]
    except OSError as error:
        raise ValueError(f"{out}: {error.strerror}; give a writable folder") from error


def _figure(runs: Sequence[PlottedRun], panels: Sequence[Metric], *, out: Path) -> list[Path]:
    """Draw the panels of one figure, with a legend if there are several runs, and write an SVG and a PNG."""
    figure = draw(runs, panels)
    files = [out.with_suffix(".svg"), out.with_suffix(".png")]
    figure.savefig(files[0], metadata={"Date": None})
    figure.savefig(files[1], dpi=150)
    return files


def draw(runs: Sequence[PlottedRun], panels: Sequence[Metric]) -> Figure:
    """Draw one panel for each metric."""
    from matplotlib.figure import Figure

    columns = min(len(panels), 2 if len(panels) in (2, 4) else 3)
    lines = -(-len(panels) // columns)
    figure = Figure(figsize=(6.0 if columns == 1 else 4.2 * columns, 3.0 * lines + 0.3))
    all_axes = figure.subplots(lines, columns, squeeze=False).ravel()
    for panel, axes in zip(panels, all_axes, strict=False):
        percent = panel.axis == "percent"
        axes.set(title=panel.title, ylabel=f"{panel.unit}, %" if percent else panel.unit)
        (_draw_stages if panel in VALIDATION else _draw_steps)(axes, panel, runs)
        if panel.axis == "from zero":
            axes.set_ylim(bottom=0)
        elif panel.axis != "free":
            axes.set_ylim((-3, 103) if percent else (-0.03, 1.03))
    for axes in all_axes[len(panels) :]:
        axes.remove()
    if len(runs) > 1:
        _add_legend(figure)
    return figure


def _add_legend(figure: Figure) -> None:
    """Add a legend below the panels, with as many columns as fit. The figure grows with it, so that the panels keep
    their size."""
    named: dict[str, Any] = {
        fill(str(line.get_label()), LEGEND_WIDTH): line
        for axes in figure.axes
        for line in axes.get_legend_handles_labels()[0]
    }
    place: Any = {"loc": "outside lower center"}
    columns = min(4, len(named))
    legend = figure.legend(named.values(), named.keys(), ncols=columns, **place)
    while columns > 1 and legend.get_window_extent().width > figure.bbox.width:
        columns -= 1
        legend.remove()
        legend = figure.legend(named.values(), named.keys(), ncols=columns, **place)
    figure.set_figheight(figure.get_figheight() + legend.get_window_extent().height / figure.dpi)


def _draw_steps(axes: Axes, panel: Metric, runs: Sequence[PlottedRun]) -> None:
    """Draw a metric against steps. Stages are not connected by lines, because they are separate series."""
    scale = 100.0 if panel.axis == "percent" else 1.0
    axes.set_xlabel("optimizer steps, all stages")
    axes.locator_params(axis="x", integer=True)
    for number, run in enumerate(runs):
        points = series(run.rows, panel.name)
        look: dict[str, Any] = {"color": COLORS[number % len(COLORS)], "label": run.label}
        for stage in dict.fromkeys(point.stage for point in points):
            at = [point.at for point in points if point.stage == stage]
            values = [scale * point.value for point in points if point.stage == stage]
            if len(points) > LONG:
                axes.plot(at, values, color=look["color"], linewidth=0.7, alpha=0.3)
                axes.plot(at, running_mean(values, width=len(points) // 20 + 1), linewidth=1.6, **look)
            else:
                axes.plot(at, values, linewidth=1.4, marker=".", markersize=4, **look)
    if len(runs) == 1:
        _name_stages(axes, runs[0].rows)


def _name_stages(axes: Axes, rows: Sequence[MetricRow]) -> None:
    """Mark the start of each stage with its name."""
    lengths = {row.stage: 0 for row in rows}
    for row in rows:
        lengths[row.stage] = max(lengths[row.stage], row.step)
    lengths = {stage: length for stage, length in lengths.items() if length}
    at = 0
    if len(lengths) > 1:
        axes.set_xlim(left=0)  # a stage begins after the last step of the stage before it
    for stage, length in lengths.items() if len(lengths) > 1 else ():
        if at > 0:
            axes.axvline(at, color="#777777", linestyle=":", linewidth=0.8)
        place: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "va": "top"}
        name = axes.annotate(f" {stage}", (at, 1.0), color="#555555", fontsize=7, **place)
        name.set_in_layout(False)  # a name wider than its stage must not shrink the axes
        at += length


def _draw_stages(axes: Axes, panel: Metric, runs: Sequence[PlottedRun]) -> None:
    """Draw the last validation of each stage with its confidence interval."""
    last = [{one.stage: one for one in validations(run.rows, panel.name)} for run in runs]
    stages = list(dict.fromkeys(stage for of_run in last for stage in of_run))
    for number, (run, of_run) in enumerate(zip(runs, last, strict=True)):
        shift = 0.24 * (number / (len(runs) - 1) - 0.5) if len(runs) > 1 else 0.0
        at = [stages.index(stage) + shift for stage in of_run]
        arms = [[100 * (one.accuracy - one.low), 100 * (one.high - one.accuracy)] for one in of_run.values()]
        look: dict[str, Any] = {"color": COLORS[number % len(COLORS)], "marker": "osD^vPX*<>"[number % 10]}
        look |= {"markersize": 5, "linewidth": 1.2, "capsize": 3, "label": run.label}
        if arms:
            axes.errorbar(
                at, [100 * one.accuracy for one in of_run.values()], yerr=list(zip(*arms, strict=True)), **look
            )
    axes.set_xlim(-0.5, len(stages) - 0.5)
    axes.set_xticks(range(len(stages)), stages)


def running_mean(values: Sequence[float], *, width: int) -> list[float]:
    """Return the mean over up to `width` values around each value, fewer at the ends.

    >>> running_mean([0.0, 3.0, 6.0, 3.0], width=3)
    [1.5, 3.0, 4.0, 4.5]
    """
    half = width // 2
    around = [values[max(0, i - half) : i + half + 1] for i in range(len(values))]
    return [sum(some) / len(some) for some in around]

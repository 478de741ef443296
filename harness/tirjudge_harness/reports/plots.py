"""Plots of runs as SVG and PNG: accuracy against cost, reliability, and effects of the order of responses.

The palette is Okabe and Ito's, which is distinguishable with color blindness. Each run also has a different marker.
Plotting the same runs again produces the same SVG, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from tirjudge.calibration import calibration_of
from tirjudge_harness.items import InputError
from tirjudge_harness.reports.scored import ScoredRun
from tirjudge_harness.reports.tables import plain, short
from tirjudge_harness.statistics.bias import flips_of, positions_of
from tirjudge_harness.statistics.calibration import confidences_of
from tirjudge_harness.statistics.intervals import Estimate
from tirjudge_harness.statistics.rates import costs_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas


COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX*<>"
LEGEND_WIDTH = 60
"""Maximum length of a line in a legend, in characters. Longer labels get several lines."""
TICK_WIDTH = 40
"""Maximum length of a line of a label beside an axis, in characters."""
LINE_HEIGHT = 0.16
"""Height of a line of text, in inches."""

STYLE: Any = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "font.size": 9,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "tirjudge",
    "text.parse_math": False,
}


def write_plots(runs: Sequence[ScoredRun], *, out: Path) -> list[Path]:
    """Write every plot that the runs have data for.

    Args:
        runs: runs of any benchmarks.
        out: the folder to write to; it is created if needed.

    Returns:
        The files written.

    Raises:
        InputError: the folder cannot be written.
    """
    import matplotlib

    matplotlib.use("agg")
    labels = labels_of(runs)
    files: list[Path] = []
    drawings: list[tuple[str, Callable[[Sequence[ScoredRun], Sequence[str]], Canvas | None]]] = [
        ("accuracy-tokens", accuracy_by_tokens),
        ("accuracy-seconds", accuracy_by_seconds),
        ("reliability", reliability),
        ("orders", orders),
    ]
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, draw in drawings:
            with matplotlib.rc_context(STYLE):
                canvas = draw(runs, labels)
                files += [] if canvas is None else _save(canvas, out=out, name=name)
    except OSError as error:
        raise InputError(f"{out}: {error.strerror}; give a folder that can be written") from error
    return files


def labels_of(runs: Sequence[ScoredRun]) -> list[str]:
    """Return the legend labels of runs: judge, mode and benchmark, and the folder if two labels would be equal."""
    names = [short(f"{run.manifest.judge.model}, {run.manifest.mode_name}, {run.benchmark.title}") for run in runs]
    return [
        f"{name} ({plain('/'.join(run.path.parts[-2:]))})" if names.count(name) > 1 else name
        for name, run in zip(names, runs, strict=True)
    ]


def accuracy_by_tokens(runs: Sequence[ScoredRun], labels: Sequence[str]) -> Canvas | None:
    """Plot the main figure of each run against the mean number of output tokens per judgment."""
    return _accuracy(runs, labels, axis="output tokens per judgment, mean", quantity="output_tokens")


def accuracy_by_seconds(runs: Sequence[ScoredRun], labels: Sequence[str]) -> Canvas | None:
    """Plot the main figure of each run against the mean number of seconds per judgment."""
    return _accuracy(runs, labels, axis="seconds per judgment, mean", quantity="latency_s")


def _accuracy(runs: Sequence[ScoredRun], labels: Sequence[str], *, axis: str, quantity: str) -> Canvas | None:
    points = []
    for at, run in enumerate(runs):
        spread = getattr(costs_of(run.judged), quantity)
        if spread is not None and run.figures and run.figures[0].value is not None:
            points.append((at, spread.mean, run.figures[0].value, run.figures[0].interval))
    if not points:
        return None
    canvas, (axes,) = _canvas(1)
    for at, cost, value, interval in points:
        low, high = interval or (value, value)
        arms = [[100 * (value - low)], [100 * (high - value)]]
        axes.errorbar(cost, 100 * value, yerr=arms, **_look(at), label=labels[at], capsize=3)
    axes.set(xlabel=axis, ylabel="accuracy, % (95 % interval)", title="Accuracy against cost")
    axes.set_xlim(left=0)
    _legend(canvas)
    return canvas


def reliability(runs: Sequence[ScoredRun], labels: Sequence[str]) -> Canvas | None:
    """Plot accuracy against confidence, one point per bin of confidence."""
    found = [calibration_of(confidences_of(run.judged, marks=run.marks)) for run in runs]
    if not any(calibration.num for calibration in found):
        return None
    canvas, (axes,) = _canvas(1)
    axes.plot([0, 100], [0, 100], color="#777777", linestyle="--", linewidth=1, label="perfect calibration")
    for at, calibration in enumerate(found):
        if not calibration.num:
            continue
        arms = [
            [100 * (each.accuracy - each.interval[0]) for each in calibration.bins],
            [100 * (each.interval[1] - each.accuracy) for each in calibration.bins],
        ]
        axes.errorbar(
            [100 * each.confidence for each in calibration.bins],
            [100 * each.accuracy for each in calibration.bins],
            yerr=arms,
            **_look(at),
            linewidth=1,
            capsize=2,
            label=f"{labels[at]}: ECE {100 * (calibration.expected_error or 0.0):.1f} %, n = {calibration.num:,}",
        )
    axes.set(
        xlabel="confidence, %", ylabel="right, % (95 % interval)", title="Reliability", xlim=(0, 102), ylim=(0, 102)
    )
    _legend(canvas)
    return canvas


def orders(runs: Sequence[ScoredRun], labels: Sequence[str]) -> Canvas | None:
    """Plot how often verdicts flip with the order, and how often the first of two responses is chosen."""
    flips = [(at, flips_of(run.judged).rate) for at, run in enumerate(runs)]
    firsts = [
        (at, position.named[0])
        for at, run in enumerate(runs)
        for position in positions_of(run.judged)
        if position.num_shown == 2
    ]
    panels = [
        ("Verdicts that flip with the order", [(at, share) for at, share in flips if share.num], None),
        ("First of two shown is chosen", firsts, 50.0),
    ]
    panels = [panel for panel in panels if panel[1]]
    if not panels:
        return None
    labels = [fill(label, TICK_WIDTH) for label in labels]
    num_lines = sum(label.count("\n") + 2 for label in labels)  # the last line has the number
    canvas, all_axes = _canvas(len(panels), height=1.2 + 1.1 * LINE_HEIGHT * num_lines)
    for axes, (title, shares, no_bias) in zip(all_axes, panels, strict=True):
        _shares(axes, shares, labels=labels)
        axes.set(title=title, xlabel="% (95 % interval)", xlim=(-2, 102))
        if no_bias is not None:
            axes.axvline(no_bias, color="#777777", linestyle="--", linewidth=1)
    return canvas


def _shares(axes: Axes, shares: Sequence[tuple[int, Estimate]], *, labels: Sequence[str]) -> None:
    """Draw one line per run, the first run on top."""
    for line, (at, share) in enumerate(shares):
        value = share.value or 0.0
        low, high = share.interval or (value, value)
        arms = [[100 * (value - low)], [100 * (high - value)]]
        axes.errorbar(100 * value, line, xerr=arms, **_look(at), capsize=3)
    axes.set_yticks(range(len(shares)), [f"{labels[at]}\nn = {share.num:,}" for at, share in shares])
    axes.set_ylim(len(shares) - 0.5, -0.5)


def _look(at: int) -> dict[str, Any]:
    return {"color": COLORS[at % len(COLORS)], "marker": MARKERS[at % len(MARKERS)], "markersize": 6}


def _canvas(num_panels: int, *, height: float = 4.0) -> tuple[Canvas, Sequence[Axes]]:
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(6.5 if num_panels == 1 else 10.0, height))
    return canvas, canvas.subplots(1, num_panels, squeeze=False)[0]


def _legend(canvas: Canvas) -> None:
    """Add a legend below the axes. The figure grows with it, so that the axes keep their size."""
    handles, labels = canvas.axes[0].get_legend_handles_labels()
    labels = [fill(label, LEGEND_WIDTH) for label in labels]
    canvas.legend(handles, labels, loc="outside lower center", ncols=1)
    canvas.set_figheight(canvas.get_figheight() + LINE_HEIGHT * sum(label.count("\n") + 1 for label in labels))


def _save(canvas: Canvas, *, out: Path, name: str) -> list[Path]:
    files = [out / f"{name}.svg", out / f"{name}.png"]
    canvas.savefig(files[0], metadata={"Date": None})
    canvas.savefig(files[1], dpi=200)
    return files

"""Metrics of a run: `metrics.jsonl`, with one JSON object per line for a stage and step.

A killed process may leave an incomplete last line. The reader skips it, and the writer removes it. A resumed run
repeats the steps since its newest checkpoint. If a step has two values, the later one counts.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tirjudge.durable import Journal, whole_lines
from tirjudge.statistics import wilson_interval

FILE = "metrics.jsonl"
"""Name of the metrics file in the folder of a run."""

_RESERVED = ("stage", "step", "time")

NUM_STEPS = "train/num_steps"
"""Metric with the total number of steps of the stage."""


@dataclass(frozen=True, slots=True)
class Metric:
    """How one metric is shown."""

    name: str
    title: str
    unit: str
    figure: str
    """Name of the plot that shows the metric."""
    axis: Literal["free", "from zero", "0 to 1", "percent"] = "from zero"
    """Vertical axis of its plot. `percent`: values are multiplied by 100."""


METRICS: tuple[Metric, ...] = (
    Metric("reward/total", "reward", "mean", "reward", "0 to 1"),
    Metric("reward/Rc", "correct (Rc)", "mean", "reward", "0 to 1"),
    Metric("reward/Rf", "format kept (Rf)", "share of rollouts", "reward", "0 to 1"),
    Metric("reward/Rt", "tools used well (Rt)", "share of rollouts", "reward", "0 to 1"),
    Metric("tool/calls", "calls a rollout", "programs", "tools"),
    Metric("tool/error_rate", "tool errors", "of programs", "tools", "percent"),
    Metric("tool/use_rate", "tool use", "of rollouts on verifiable items", "tools", "percent"),
    Metric("tool/no_tool_ok", "no tool where none helps", "of rollouts on other items", "tools", "percent"),
    Metric("dapo/kept_frac", "kept groups", "of groups drawn", "sampling", "percent"),
    Metric("dapo/draws", "draws a step", "items", "sampling"),
    Metric("length/tokens", "length of rollouts", "tokens", "length"),
    Metric("length/prompt", "length of prompts", "tokens", "length"),
    Metric("train/loss", "loss", "", "training", "free"),
    Metric("train/kl", "KL to the reference", "nats a token", "training"),
    Metric("train/grad_norm", "gradient norm", "before clipping", "training"),
    Metric("train/entropy", "entropy", "nats a token", "training"),
    Metric("sync/dlogp_mean", "engine - trainer, mean", "nats", "logprobs"),
    Metric("sync/dlogp_max", "engine - trainer, largest", "nats", "logprobs"),
    Metric("perf/traj_per_s", "rollouts", "a second", "speed"),
    Metric("perf/tok_s", "tokens", "a second", "speed"),
    Metric("perf/step_s", "time of a step", "seconds", "speed"),
    Metric("perf/sandbox_share", "waiting for the sandbox", "of rollout time", "speed", "percent"),
)
"""Metrics that `tirjudge train watch` and `tirjudge train plot` show, in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """One row of metrics."""

    stage: str
    step: int
    """Optimizer step within the stage, starting at 1. 0: before the first step."""
    time: float
    """Seconds since the epoch."""
    values: Mapping[str, float]
    """Name -> value. Values that are not finite are omitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One value of a series."""

    stage: str
    step: int
    at: int
    """Step counted over all stages."""
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated:
    """A held-out accuracy with its confidence interval."""

    stage: str
    step: int
    accuracy: float
    num: int | None
    """Number of decisions. None: unknown."""
    low: float
    """Lower end of Wilson's 95 % interval; equal to the accuracy if `num` is unknown."""
    high: float
    """Upper end of Wilson's 95 % interval; equal to the accuracy if `num` is unknown."""


class MetricsWriter:
    """Appends rows to a metrics file. `write` returns after the line has been passed to the kernel.

    Args:
        path: Path of the file. Its folder is created if it is missing. An incomplete last line is removed.

    Raises:
        StorageError: another process has the file open, or it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._journal = Journal(path, closed=False)

    def __enter__(self) -> MetricsWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Flush the file to disk and close it."""
        self._journal.close()

    def write(self, values: Mapping[str, float | None], *, stage: str, step: int) -> None:
        """Append one row. Values that are not finite numbers are written as null.

        Args:
            values: Name -> value.
            stage: Name of the stage.
            step: Optimizer step within the stage.

        Raises:
            ValueError: a metric has a reserved name: stage, step or time.
            OSError: the disk is full, or fails.
        """
        taken = sorted(set(values) & set(_RESERVED))
        if taken:
            raise ValueError(f"metrics: reserved names given as metrics: {', '.join(taken)}; rename them")
        finite = {name: value if _is_number(value) else None for name, value in values.items()}
        row = {"stage": stage, "step": step, "time": round(time.time(), 3), **finite}
        self._journal.write(json.dumps(row, default=float).encode())


def read_metrics(path: Path) -> list[MetricRow]:
    """Read all rows, in the order written. A missing file has no rows.

    Raises:
        ValueError: a complete line is not a valid row. The message has the file and the line number.
    """
    return [_row(line, where=f"{path}:{number}") for number, line in enumerate(whole_lines(path), start=1)]


def stages_of(rows: Iterable[MetricRow]) -> list[str]:
    """Return the names of the stages, in the order of their first rows."""
    return list(dict.fromkeys(row.stage for row in rows))


def names_of(rows: Iterable[MetricRow]) -> list[str]:
    """Return the names of the metrics, in the order of their first occurrence."""
    return list(dict.fromkeys(name for row in rows for name in row.values))


def series(rows: Sequence[MetricRow], name: str) -> list[Point]:
    """Return one metric over all stages: a point for each step with a value, in the order of steps."""
    before: dict[str, int] = {}
    total = 0
    for stage in stages_of(rows):
        before[stage] = total
        total += max(row.step for row in rows if row.stage == stage)
    latest = {(row.stage, row.step): row.values[name] for row in rows if name in row.values}
    points = [
        Point(stage=stage, step=step, at=before[stage] + step, value=value) for (stage, step), value in latest.items()
    ]
    order = {stage: place for place, stage in enumerate(before)}
    return sorted(points, key=lambda point: (order[point.stage], point.step))


def validations(rows: Sequence[MetricRow], name: str = "val/acc") -> list[Validated]:
    """Return all validations on held-out items with their intervals, in the order of steps.

    The interval treats the `val/n` decisions as independent Bernoulli trials. `val/acc/TASK/MODE` uses
    `val/n/TASK/MODE`. Other metrics have no interval, because the rows do not have their number of trials.
    """
    num_name = "val/n" + name.removeprefix("val/acc")
    num_points = series(rows, num_name) if name.startswith("val/acc") else []
    nums = {(point.stage, point.step): round(point.value) for point in num_points}
    found = []
    for point in series(rows, name):
        num, share = nums.get((point.stage, point.step)), point.value
        low, high = wilson_interval(share * num, num_trials=num) if num else (share, share)
        found.append(Validated(stage=point.stage, step=point.step, accuracy=share, num=num, low=low, high=high))
    return found


def _row(line: bytes, *, where: str) -> MetricRow:
    try:
        read: dict[str, Any] = json.loads(line)
        stage, step, moment = str(read["stage"]), int(read["step"]), float(read["time"])
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"{where}: not a row of metrics; a JSON object with stage, step and time is expected"
        ) from error
    values = {name: float(value) for name, value in read.items() if name not in _RESERVED and _is_number(value)}
    return MetricRow(stage=stage, step=step, time=moment, values=values)


def _is_number(value: object) -> bool:
    try:
        return value is not None and math.isfinite(float(value))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False

"""What a run measures of itself: one JSON object a line in `metrics.jsonl`, with its stage and step.

A process that is killed leaves whole lines and perhaps a torn last one, which the reader leaves out and the writer takes
off. A run that is resumed repeats the steps since its last checkpoint: of two values for one step, the later counts.
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
"""Its name in a run's folder."""

_OURS = ("stage", "step", "time")

NUM_STEPS = "train/num_steps"
"""The metric that says how many steps the stage will have."""


@dataclass(frozen=True, slots=True)
class Metric:
    """How one metric is shown."""

    name: str
    title: str
    unit: str
    figure: str
    """The plot that it belongs to."""
    axis: Literal["free", "from zero", "0 to 1", "percent"] = "from zero"
    """Vertical axis of its plot; `percent`: shown times 100."""


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
"""What `tirjudge train watch` and `tirjudge train plot` show, in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """What was measured at one moment."""

    stage: str
    step: int
    """Optimizer step within the stage, the first is 1; 0: before any."""
    time: float
    """Seconds since the epoch."""
    values: Mapping[str, float]
    """Name -> value; what was not a finite number is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One value of a series."""

    stage: str
    step: int
    at: int
    """Step counted over all stages, one after the other."""
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated:
    """A held-out accuracy with what is known of its error."""

    stage: str
    step: int
    accuracy: float
    num: int | None
    """Decisions that it was measured on; None: the row does not say."""
    low: float
    """Lower end of Wilson's 95 % interval; the accuracy itself where `num` is not known."""
    high: float


class MetricsWriter:
    """Appends to one such file; every line is with the kernel before `write` returns.

    Args:
        path: of the file; its folder is made. A torn last line is taken off.

    Raises:
        StorageError: another process has it open, or it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._journal = Journal(path, closed=False)

    def __enter__(self) -> MetricsWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file, with all of it on disk."""
        self._journal.close()

    def write(self, values: Mapping[str, float | None], *, stage: str, step: int) -> None:
        """Add one row. What is no finite number becomes null, which JSON can hold.

        Raises:
            ValueError: a name that rows have themselves: stage, step, time.
            OSError: the disk is full, or fails.
        """
        taken = sorted(set(values) & set(_OURS))
        if taken:
            raise ValueError(f"metrics: {', '.join(taken)} given as a metric, but every row has its own")
        finite = {name: value if _is_number(value) else None for name, value in values.items()}
        row = {"stage": stage, "step": step, "time": round(time.time(), 3), **finite}
        self._journal.write(json.dumps(row, default=float).encode())


def read_metrics(path: Path) -> list[MetricRow]:
    """All rows, in the order written; none if there is no such file yet.

    Raises:
        ValueError: a line that is whole and yet no row; names the file and the line.
    """
    return [_row(line, where=f"{path}:{number}") for number, line in enumerate(whole_lines(path), start=1)]


def stages_of(rows: Iterable[MetricRow]) -> list[str]:
    """Their names, as they first come."""
    return list(dict.fromkeys(row.stage for row in rows))


def names_of(rows: Iterable[MetricRow]) -> list[str]:
    """What was measured, as it first comes."""
    return list(dict.fromkeys(name for row in rows for name in row.values))


def series(rows: Sequence[MetricRow], name: str) -> list[Point]:
    """One metric over all stages: a point for each step that has it, in the order of steps."""
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
    """Every measurement on held-out items, in the order of steps, with its interval.

    The interval takes `val/n` decisions for as many throws of one coin; `val/acc/TASK/MODE` uses `val/n/TASK/MODE`.
    Nothing else has one: what it is a share of is not in the rows.
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
        raise ValueError(f"{where}: no row of metrics; a JSON object with stage, step and time is one") from error
    values = {name: float(value) for name, value in read.items() if name not in _OURS and _is_number(value)}
    return MetricRow(stage=stage, step=step, time=moment, values=values)


def _is_number(value: object) -> bool:
    try:
        return value is not None and math.isfinite(float(value))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False

"""What trainers consume, and what a run keeps of every rollout: ids, mask, log-probabilities, and what it earned."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tirjudge.durable import replacing_file
from tirjudge.types import Mode, Rollout, StopReason
from tirjudge_training.items import TrainingItem
from tirjudge_training.rewards import RolloutReward


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSample:
    """One rollout with its reward. `ids`, `mask` and `logprobs` are as long as one another."""

    item_id: str
    source: str
    task: str
    mode: Mode
    shown: tuple[int, ...]
    """Indexes into the item's responses, in the order shown."""
    number: int
    """Which of the rollouts on what was shown it is."""
    weights_version: int
    """Of the policy that sampled it."""
    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]
    """Everything after the prompt."""
    mask: tuple[int, ...]
    """1 for each id that the policy sampled, 0 for each that was put there (observations)."""
    logprobs: tuple[float, ...]
    """Of each sampled id at temperature 1 under the policy that sampled it, natural logarithm, float32; 0 where `mask` is."""
    label: str | None
    """Of the verdict, as shown to the model; None: it gave none."""
    stop_reason: StopReason
    num_calls: int
    num_failed_calls: int
    """Of the calls, those that did not end well."""
    verifiable: bool
    """Whether a program can settle its item."""
    sandbox_s: float
    """Running its programs and waiting for a slot to run them."""
    wall_s: float
    """From the start of the rollout to its end."""
    reward: RolloutReward


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRollout:
    """One rollout as it was made."""

    rollout: Rollout
    number: int
    wall_s: float


def trajectory_of(
    item: TrainingItem, timed: TimedRollout, *, shown: tuple[int, ...], weights_version: int, reward: RolloutReward
) -> TrainingSample:
    """A rollout of an item as the trainer takes it. Engines that tell no log-probabilities leave zeros."""
    import numpy as np

    rollout = timed.rollout
    results = [turn.result for turn in rollout.turns if turn.result is not None]
    ids = rollout.token_ids
    logprobs = rollout.logprobs if len(rollout.logprobs) == len(ids) else (0.0,) * len(ids)
    return TrainingSample(
        item_id=item.id,
        source=item.source,
        task=item.task,
        mode=item.mode,
        shown=shown,
        number=timed.number,
        weights_version=weights_version,
        prompt_ids=rollout.prompt_ids,
        ids=ids,
        mask=rollout.loss_mask,
        logprobs=tuple(np.asarray(logprobs, dtype=np.float32).tolist()),  # as files keep them
        label=rollout.label,
        stop_reason=rollout.stop_reason,
        num_calls=rollout.num_calls,
        num_failed_calls=rollout.num_failed_calls,
        verifiable=item.verifiable,
        sandbox_s=sum(result.wall_s + result.queue_s for result in results),
        wall_s=timed.wall_s,
        reward=reward,
    )


# Files ------------------------------------------------------------------------------------------------------------------

_PARTS = ("total", "correct", "format", "tool")
"""Of the reward; each has a column `reward_PART`."""


def write_trajectories(path: Path | str, trajectories: Iterable[TrainingSample]) -> None:
    """Write a Parquet file, a row each; it appears whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist([_row(trajectory) for trajectory in trajectories], schema=_schema())
    with replacing_file(Path(path)) as unfinished:
        pq.write_table(table, unfinished, compression="zstd")


def read_trajectories(path: Path | str) -> list[TrainingSample]:
    """All trajectories of a file, as they were written.

    Raises:
        ValueError: it is not a file of trajectories.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path}: cannot be read as Parquet: {error}") from None
    missing = set(_schema().names) - set(table.column_names)
    if missing:
        raise ValueError(f'{path}: the column "{min(missing)}" is missing; a file of trajectories is expected')
    return [_trajectory(row) for row in table.select(_schema().names).to_pylist()]


def _schema() -> Any:
    import pyarrow as pa

    ids = pa.list_(pa.int32())
    types = {
        "shown": ids, "number": pa.int32(), "weights_version": pa.int64(), "prompt_ids": ids, "ids": ids, "mask": ids,
        "logprobs": pa.list_(pa.float32()), "num_calls": pa.int32(), "num_failed_calls": pa.int32(),
        "verifiable": pa.bool_(), "sandbox_s": pa.float64(), "wall_s": pa.float64(),
    }  # fmt: skip
    columns = [
        (field.name, types.get(field.name, pa.string())) for field in fields(TrainingSample) if field.name != "reward"
    ]
    parts = {"total": pa.float64(), "correct": pa.float64(), "format": pa.bool_(), "tool": pa.bool_()}
    return pa.schema(columns + [(f"reward_{part}", parts[part]) for part in _PARTS])


def _row(trajectory: TrainingSample) -> dict[str, Any]:
    row = {field.name: getattr(trajectory, field.name) for field in fields(TrainingSample)}
    reward = row.pop("reward")
    named = {"mode": str(trajectory.mode), "stop_reason": str(trajectory.stop_reason)}
    return {**row, **named, **{f"reward_{part}": getattr(reward, part) for part in _PARTS}}


def _trajectory(row: dict[str, Any]) -> TrainingSample:
    reward = RolloutReward(**{part: row.pop(f"reward_{part}") for part in _PARTS})
    sequences = {name: tuple(row[name]) for name in ("shown", "prompt_ids", "ids", "mask", "logprobs")}
    typed = {"mode": Mode(row["mode"]), "stop_reason": StopReason(row["stop_reason"]), "reward": reward}
    return TrainingSample(**{**row, **sequences, **typed})

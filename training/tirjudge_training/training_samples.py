"""Training samples: token ids, loss mask, log-probabilities and reward of each rollout, and Parquet files of them."""

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
    """One rollout with its reward. `ids`, `mask` and `logprobs` have the same length."""

    item_id: str
    source: str
    task: str
    mode: Mode
    shown: tuple[int, ...]
    """Indices of the item's responses, in the order shown."""
    number: int
    """Number of the rollout within its prompt, starting at 0."""
    weights_version: int
    """Version of the weights that sampled it."""
    prompt_ids: tuple[int, ...]
    """Token ids of the prompt."""
    ids: tuple[int, ...]
    """All token ids after the prompt."""
    mask: tuple[int, ...]
    """1 for each id that the policy sampled, 0 for each inserted id (observations)."""
    logprobs: tuple[float, ...]
    """Log-probability of each sampled id at temperature 1 under the sampling policy: natural logarithm, float32. 0
    where `mask` is 0."""
    label: str | None
    """Label of the verdict, as shown to the model. None: there was no verdict."""
    stop_reason: StopReason
    num_calls: int
    """Number of programs that ran."""
    num_failed_calls: int
    """Number of programs that failed."""
    verifiable: bool
    """Whether a program can decide its item."""
    sandbox_s: float
    """Seconds of running its programs and of waiting for a sandbox slot."""
    wall_s: float
    """Duration of the rollout in seconds."""
    reward: RolloutReward


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRollout:
    """One rollout with its duration."""

    rollout: Rollout
    number: int
    """Number of the rollout within its prompt, starting at 0."""
    wall_s: float
    """Duration in seconds."""


def trajectory_of(
    item: TrainingItem, timed: TimedRollout, *, shown: tuple[int, ...], weights_version: int, reward: RolloutReward
) -> TrainingSample:
    """Return a rollout of an item as a training sample. If the engine reports no log-probabilities, they are 0."""
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
        logprobs=tuple(np.asarray(logprobs, dtype=np.float32).tolist()),  # rounded as in files
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
"""Parts of the reward. Each has a column `reward_PART`."""


def write_trajectories(path: Path | str, trajectories: Iterable[TrainingSample]) -> None:
    """Write trajectories to a Parquet file, one row each. The file is written atomically."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist([_row(trajectory) for trajectory in trajectories], schema=_schema())
    with replacing_file(Path(path)) as unfinished:
        pq.write_table(table, unfinished, compression="zstd")


def read_trajectories(path: Path | str) -> list[TrainingSample]:
    """Read all trajectories of a file.

    Raises:
        ValueError: the file cannot be read as Parquet, or a column is missing.
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
    typed: dict[str, Any] = {"mode": Mode(row["mode"]), "stop_reason": StopReason(row["stop_reason"]), "reward": reward}
    typed |= {name: tuple(row[name]) for name in ("shown", "prompt_ids", "ids", "mask", "logprobs")}
    return TrainingSample(**(row | typed))

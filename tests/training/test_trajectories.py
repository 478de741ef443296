"""Trajectories are read exactly as they were written."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tirjudge.types import Completion, ExecResult, Mode, Outcome, Rollout, StopReason, ToolCall, Turn
from tirjudge_training.items import TrainingItem
from tirjudge_training.rewards import RolloutReward
from tirjudge_training.training_samples import (
    TimedRollout,
    TrainingSample,
    read_trajectories,
    trajectory_of,
    write_trajectories,
)

ITEM = TrainingItem(
    id="i",
    mode=Mode.PAIRWISE,
    prompt="?",
    responses=("a", "b"),
    best=0,
    task="math",
    source="hand",
    verifiable=True,
    order=(1, 0),
)
ROLLOUT = Rollout(
    prompt_ids=(5, 6, 7),
    turns=(
        Turn(
            completion=Completion(
                text="..", token_ids=(10, 11, 12), logprobs=(-0.1, -1 / 3, 0.0), finish_reason="stop", num_appended=1
            ),
            call=ToolCall(tool="python", source="1/0"),
            result=ExecResult(outcome=Outcome.ERROR, wall_s=0.25, queue_s=0.5),
            output="",
            observation_ids=(20, 21),
        ),
        Turn(completion=Completion(text=".", token_ids=(13,), logprobs=(-2e-7,), finish_reason="stop")),
    ),
    stop_reason=StopReason.VERDICT,
    model="m",
    label="B",
)
REWARD = RolloutReward(total=0.1, correct=1.0, format=True, tool=False)


def make(rollout: Rollout = ROLLOUT) -> TrainingSample:
    timed = TimedRollout(rollout=rollout, number=3, wall_s=1.5)
    return trajectory_of(ITEM, timed, shown=(1, 0), weights_version=7, reward=REWARD)


def test_rollout_becomes_ids_mask_and_logprobs_of_equal_length() -> None:
    trajectory = make()
    assert trajectory.prompt_ids == (5, 6, 7)
    assert trajectory.ids == (10, 11, 12, 20, 21, 13)
    assert trajectory.mask == (1, 1, 0, 0, 0, 1)  # the loop appended 12; 20 and 21 are the observation
    assert trajectory.logprobs == tuple(float(np.float32(p)) for p in (-0.1, -1 / 3, 0, 0, 0, -2e-7))
    assert (trajectory.num_calls, trajectory.num_failed_calls, trajectory.sandbox_s) == (1, 1, 0.75)


def test_engine_without_logprobs_gives_zeros() -> None:
    bare = replace(
        ROLLOUT, turns=tuple(replace(t, completion=replace(t.completion, logprobs=())) for t in ROLLOUT.turns)
    )
    assert make(bare).logprobs == (0.0,) * 6


def test_trajectories_survive_a_round_trip_through_a_file(tmp_path: Path) -> None:
    path = tmp_path / "rollouts" / "step-000001.parquet"
    others = [
        make(),
        replace(make(), label=None, stop_reason=StopReason.LENGTH, ids=(), mask=(), logprobs=(), verifiable=False),
        replace(
            make(),
            mode=Mode.POINTWISE,
            shown=(1,),
            reward=RolloutReward(total=1 / 3, correct=1 / 3, format=True, tool=True),
        ),
    ]
    write_trajectories(path, others)
    assert read_trajectories(path) == others
    assert [file.name for file in path.parent.iterdir()] == ["step-000001.parquet"]
    table = pq.read_table(path)
    assert table.num_rows == 3
    assert (table.schema.field("ids").type, table.schema.field("logprobs").type) == (
        pa.list_(pa.int32()),
        pa.list_(pa.float32()),
    )


def test_empty_file_has_no_trajectories(tmp_path: Path) -> None:
    write_trajectories(tmp_path / "none.parquet", [])
    assert read_trajectories(tmp_path / "none.parquet") == []


def test_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "step.parquet"
    write_trajectories(path, [make()])
    with pytest.raises(pa.ArrowException):
        write_trajectories(path, [replace(make(), ids=(2**40,))])  # beyond int32
    assert read_trajectories(path) == [make()]
    assert [file.name for file in tmp_path.iterdir()] == ["step.parquet"]


def test_file_without_trajectories_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        read_trajectories(tmp_path / "none.parquet")
    pq.write_table(pa.table({"ids": [[1]]}), tmp_path / "other.parquet")
    with pytest.raises(ValueError, match='the column "item_id" is missing'):
        read_trajectories(tmp_path / "other.parquet")

"""The trainer `verl`: RL on eight or more GPUs, in processes started by verl. This module imports no heavy packages."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from tirjudge.extras import check_extra
from tirjudge_training.trainers.base import OnStep, StageJob, TrainedKind, TrainedStage
from tirjudge_training.trainers.verl.options import VerlSettings, check_options, check_settings

if TYPE_CHECKING:
    from tirjudge_training.config import Recipe
    from tirjudge_training.training_data import TrainingData


class VerlTrainer:
    """Trainer for RL only. verl starts its processes and runs the validation in them."""

    name = "verl"
    kinds = frozenset[TrainedKind](("rl",))
    settings = VerlSettings
    shared = False

    def check(self, recipe: Recipe, *, kind: TrainedKind, without_labels: bool) -> None:
        if without_labels:
            raise ValueError("trainer: verl given, but only trainer trl supports pseudo-labels; set trainer to trl")
        missing = [name for name in ("verl", "ray", "vllm", "transfer_queue") if find_spec(name) is None]
        if missing:
            raise ValueError(
                f"trainer: verl given, but {', '.join(missing)} cannot be imported here; run: pip install "
                "'tirjudge[train-verl]' in a separate environment, or set trainer to trl"
            )
        check_extra("train-verl")
        check_settings(recipe.rl, rule=recipe.reward)
        check_options(recipe.settings_of("verl").options, rl=recipe.rl)

    def train(self, job: StageJob, *, data: TrainingData, on_step: OnStep) -> TrainedStage:
        from tirjudge_training.trainers.verl.launch import train_with_verl

        return train_with_verl(job, data=data, on_step=on_step)


TRAINER = VerlTrainer()

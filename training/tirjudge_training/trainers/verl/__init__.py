"""The trainer `verl`: RL on eight GPUs and more, in processes of verl's own. Nothing heavy is imported here."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from tirjudge_training.trainers.base import OnStep, StageJob, TrainedKind, TrainedStage
from tirjudge_training.trainers.verl.options import VerlSettings, check_options, check_settings

if TYPE_CHECKING:
    from tirjudge_training.config import Recipe
    from tirjudge_training.training_data import TrainingData


class VerlTrainer:
    """RL alone. verl starts its processes itself, and validates in them too."""

    name = "verl"
    kinds = frozenset[TrainedKind](("rl",))
    settings = VerlSettings
    shared = False

    def check(self, recipe: Recipe, *, kind: TrainedKind, without_labels: bool) -> None:
        if without_labels:
            raise ValueError(
                "trainer: verl given, but pseudo-labels are voted in TRL's processes only; use trainer trl"
            )
        missing = [name for name in ("verl", "ray", "vllm", "transfer_queue") if find_spec(name) is None]
        if missing:
            raise ValueError(
                f"trainer: verl given, but {', '.join(missing)} cannot be imported here; run: pip install "
                "'tirjudge[train-verl]' in an environment of its own, or use trainer trl"
            )
        check_settings(recipe.rl, rule=recipe.reward)
        check_options(recipe.settings_of("verl").options, rl=recipe.rl)

    def train(self, job: StageJob, *, data: TrainingData, on_step: OnStep) -> TrainedStage:
        from tirjudge_training.trainers.verl.launch import train_with_verl

        return train_with_verl(job, data=data, on_step=on_step)


TRAINER = VerlTrainer()

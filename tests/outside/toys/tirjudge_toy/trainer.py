"""A trainer in a separate package: it counts the sampled tokens, and does not change the weights."""

import shutil

from pydantic import BaseModel, ConfigDict, Field

from tirjudge_training.config import Recipe
from tirjudge_training.trainers import OnStep, StageJob, TrainedKind, TrainedStage
from tirjudge_training.training_data import TrainingData
from tirjudge_training.training_samples import read_trajectories


class ToySettings(BaseModel):
    """The section `toy` of a recipe."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: int = Field(default=1, ge=1)


class ToyTrainer:
    """Copies the start checkpoint."""

    name = "toy"
    kinds = frozenset[TrainedKind](("sft",))
    settings = ToySettings
    shared = False

    def check(self, recipe: Recipe, *, kind: TrainedKind, without_labels: bool) -> None:
        if not recipe.sft.mask_observations:
            raise ValueError("sft.mask_observations: must be true, because toy counts only sampled tokens")

    def train(self, job: StageJob, *, data: TrainingData, on_step: OnStep) -> TrainedStage:
        steps = job.recipe.settings_of("toy").steps
        num_tokens = sum(sum(sample.mask) for file in job.samples for sample in read_trajectories(file))
        for step in range(1, steps + 1):
            on_step(step, steps, {"train/tokens": num_tokens})
        shutil.copytree(job.start, job.folder / "same", dirs_exist_ok=True)
        return TrainedStage(checkpoint=job.folder / "same", step=steps)


TRAINER = ToyTrainer()

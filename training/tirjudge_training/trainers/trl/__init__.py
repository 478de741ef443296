"""The trainer `trl`: TRL's losses, optimizers and processes on one machine. This module imports no heavy packages."""

from __future__ import annotations

import os
from contextlib import nullcontext, redirect_stdout
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from tirjudge.extras import check_extra
from tirjudge_training.trainers.base import OnStep, StageJob, TrainedKind, TrainedStage
from tirjudge_training.trainers.trl.options import check_version
from tirjudge_training.training_samples import read_trajectories

if TYPE_CHECKING:
    from tirjudge_training.config import Recipe
    from tirjudge_training.training_data import TrainingData


class TRLTrainer:
    """Trainer for SFT and RL. Its settings are the sections `sft` and `rl` of a recipe, with TRL's options under
    `trl`."""

    name = "trl"
    kinds = frozenset[TrainedKind](("sft", "rl"))
    settings = None
    shared = True

    def check(self, recipe: Recipe, *, kind: TrainedKind, without_labels: bool) -> None:
        try:
            check_version(version("trl"))
            check_extra("train")
        except PackageNotFoundError:
            raise ValueError("trainer: trl is not installed; run: pip install 'tirjudge[train]'") from None

    def train(self, job: StageJob, *, data: TrainingData, on_step: OnStep) -> TrainedStage:
        settings = job.recipe.sft if job.kind == "sft" else job.recipe.rl
        # TRL prints its metrics to the standard output of this process. They are in metrics.jsonl already.
        with Path(os.devnull).open("w") as devnull, nullcontext() if settings.verbose else redirect_stdout(devnull):
            if job.kind == "rl":
                from tirjudge_training.trainers.trl.rl import train_rl

                return train_rl(job, data=data, on_step=on_step)
            from tirjudge_training.trainers.trl.sft import train_sft

            samples = [sample for file in job.samples for sample in read_trajectories(file)]
            return train_sft(samples, start=job.start, folder=job.folder, settings=job.recipe.sft, on_step=on_step)


TRAINER = TRLTrainer()

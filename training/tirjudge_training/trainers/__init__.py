"""Trainers, which change the weights of a judge. Each has a file or folder and an entry point
(docs/adding-a-trainer.md)."""

from tirjudge_training.trainers.base import TRAINERS, OnStep, StageJob, TrainedKind, TrainedStage, Trainer, trainer_of

__all__ = ["TRAINERS", "OnStep", "StageJob", "TrainedKind", "TrainedStage", "Trainer", "trainer_of"]

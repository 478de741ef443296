"""Trainers: what changes weights. One file or folder each, found by its entry point (docs/adding-a-trainer.md)."""

from tirjudge_training.trainers.base import TRAINERS, OnStep, StageJob, TrainedKind, TrainedStage, Trainer, trainer_of

__all__ = ["TRAINERS", "OnStep", "StageJob", "TrainedKind", "TrainedStage", "Trainer", "trainer_of"]

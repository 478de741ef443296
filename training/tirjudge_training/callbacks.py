"""Callbacks that receive the progress of a run."""

from __future__ import annotations

from collections.abc import Mapping

from tirjudge_training.run_folder import StageRecord


class Callback:
    """Receives the progress of a run. The methods do nothing; subclasses override them."""

    def began(self, stage: StageRecord) -> None:
        """Called when a stage starts or resumes."""

    def moved(self, doing: str, done: int, total: int, values: Mapping[str, float]) -> None:
        """Called on progress within a stage.

        Args:
            doing: Name of the activity, such as `training` or `validating`.
            done: Number of steps or items that are done.
            total: Number of all steps or items.
            values: Metrics of the step; empty for items.
        """

    def ended(self, stage: StageRecord) -> None:
        """Called when a stage is done."""

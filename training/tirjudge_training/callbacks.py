"""Who is told how a run goes."""

from __future__ import annotations

from collections.abc import Mapping

from tirjudge_training.run_folder import StageRecord


class Callback:
    """Is told how a run goes, and does nothing about it."""

    def began(self, stage: StageRecord) -> None:
        """A stage begins, or goes on."""

    def moved(self, doing: str, done: int, total: int, values: Mapping[str, float]) -> None:
        """Progress within a stage: how much of how much is done, and what was measured."""

    def ended(self, stage: StageRecord) -> None:
        """A stage is done."""

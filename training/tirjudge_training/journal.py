"""Writes the metrics of a run to `metrics.jsonl` and to the trackers of its recipe."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tirjudge_training.config import Recipe
from tirjudge_training.metrics import FILE, MetricsWriter
from tirjudge_training.trackers import open_trackers


class MetricsJournal:
    """Writes rows of metrics. It is a context manager, which closes the file and the trackers.

    Args:
        run: Folder of the run.
        recipe: Recipe of the run, with the names of the trackers.
        silent: Whether to write no metrics. Set in all processes of a run except the first.

    Raises:
        ValueError: a tracker is unknown or not installed.
    """

    def __init__(self, run: Path, *, recipe: Recipe, silent: bool = False) -> None:
        self._metrics = None if silent else MetricsWriter(run / FILE)
        self._trackers = [] if silent else open_trackers(recipe.report_to, run=run, config=recipe.resolved())

    def __enter__(self) -> MetricsJournal:
        return self

    def __exit__(self, *_: object) -> None:
        if self._metrics is not None:
            self._metrics.close()
        for tracker in self._trackers:
            tracker.close()

    def write(self, values: Mapping[str, float | None], *, stage: str, step: int) -> None:
        """Write one row. Values that are None are written to metrics.jsonl only."""
        if self._metrics is None:
            return
        self._metrics.write(values, stage=stage, step=step)
        known = {name: float(value) for name, value in values.items() if value is not None}
        for tracker in self._trackers:
            tracker.log(known, stage=stage, step=step)

"""Where a run writes what it measures: `metrics.jsonl` always, and the trackers that its recipe names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tirjudge_training.config import Recipe
from tirjudge_training.metrics import FILE, MetricsWriter
from tirjudge_training.trackers import open_trackers


class MetricsJournal:
    """Writes rows until it is closed.

    Args:
        run: folder of the run.
        recipe: names the trackers, and is what they are told of the run.
        silent: write nothing; for all processes of a run but the first.

    Raises:
        ValueError: a tracker that there is none of, or that is not installed.
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
        """One row."""
        if self._metrics is None:
            return
        self._metrics.write(values, stage=stage, step=step)
        known = {name: float(value) for name, value in values.items() if value is not None}
        for tracker in self._trackers:
            tracker.log(known, stage=stage, step=step)

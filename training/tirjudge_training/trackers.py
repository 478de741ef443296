"""Trackers, which receive metrics in addition to `metrics.jsonl`: TensorBoard, Weights & Biases and Trackio.

A library is imported only by a run that uses it. Steps are counted within a stage. So TensorBoard gets a separate run
per stage, which it draws in one plot. The other two get metric names that start with the stage.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

TRACKERS = ("tensorboard", "wandb", "trackio")

PROJECT = "tirjudge"
"""Project name in wandb and trackio."""


class Tracker(Protocol):
    """Receives the metrics of a run."""

    def log(self, values: Mapping[str, float], *, stage: str, step: int) -> None:
        """Log the metrics of one step of a stage."""
        ...

    def close(self) -> None:
        """Write all pending metrics."""
        ...


def open_trackers(report_to: Sequence[str], *, run: Path, config: Mapping[str, Any] | None = None) -> list[Tracker]:
    """Open trackers.

    Args:
        report_to: Names of trackers; `none` is ignored.
        run: Folder of the run. Its name is the name of the run in the trackers.
        config: Configuration of the run, for wandb and trackio. None: empty.

    Raises:
        ValueError: a name is unknown, or a library is not installed.
    """
    names = [name for name in dict.fromkeys(report_to) if name != "none"]
    for name in names:
        if name not in TRACKERS:
            raise ValueError(f"report_to: unknown tracker {name}; give {', '.join(TRACKERS)} or none")
        if find_spec(name) is None:
            raise ValueError(f"report_to: {name} given, but it is not installed; run `pip install {name}`")
    return [_TensorBoard(run) if name == "tensorboard" else _Board(name, run, config or {}) for name in names]


class _TensorBoard:
    """Writes event files to `RUN/tensorboard`, one folder per stage."""

    def __init__(self, run: Path) -> None:
        self._folder = run / "tensorboard"
        self._writers: dict[str, Any] = {}

    def log(self, values: Mapping[str, float], *, stage: str, step: int) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        if stage not in self._writers:
            # A resumed run repeats steps. TensorBoard hides the earlier values of these steps.
            self._writers[stage] = SummaryWriter(str(self._folder / stage), purge_step=step)
        for name, value in values.items():
            self._writers[stage].add_scalar(name, value, global_step=step)
        self._writers[stage].flush()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


class _Board:
    """Logs to Weights & Biases, or to Trackio, which has the same functions."""

    def __init__(self, library: str, run: Path, config: Mapping[str, Any]) -> None:
        self._library = import_module(library)
        path = run.resolve()
        # Trackio resumes a run by its name, wandb by its id.
        number = hashlib.sha256(str(path).encode()).hexdigest()[:12]
        own = {"dir": str(run), "id": f"{path.name}-{number}"} if library == "wandb" else {}
        self._library.init(project=PROJECT, name=path.name, config=dict(config), resume="allow", **own)

    def log(self, values: Mapping[str, float], *, stage: str, step: int) -> None:
        self._library.log({f"{stage}/step": step, **{f"{stage}/{name}": value for name, value in values.items()}})

    def close(self) -> None:
        self._library.finish()

"""Where metrics go besides `metrics.jsonl`, if asked: TensorBoard, Weights & Biases, Trackio.

Each library is loaded only by the run that asks for it. Steps count within a stage, and stages start anew; so TensorBoard
gets a run a stage, which it draws over one another, and the other two get names that begin with the stage.
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
"""Under which wandb and trackio keep runs."""


class Tracker(Protocol):
    """Takes the metrics of a run."""

    def log(self, values: Mapping[str, float], *, stage: str, step: int) -> None: ...

    def close(self) -> None: ...


def open_trackers(report_to: Sequence[str], *, run: Path, config: Mapping[str, Any] | None = None) -> list[Tracker]:
    """The trackers that were asked for.

    Args:
        report_to: their names; `none` is none.
        run: folder of the run; its name is what the run is called.
        config: what else is known of the run, for wandb and trackio.

    Raises:
        ValueError: an unknown name, or a library that is not installed.
    """
    names = [name for name in dict.fromkeys(report_to) if name != "none"]
    for name in names:
        if name not in TRACKERS:
            raise ValueError(f"report_to: {name} given; {', '.join(TRACKERS)} or none would do")
        if find_spec(name) is None:
            raise ValueError(f"report_to: {name} given, but it is not installed; `pip install {name}` does that")
    return [_TensorBoard(run) if name == "tensorboard" else _Board(name, run, config or {}) for name in names]


class _TensorBoard:
    """Event files in `RUN/tensorboard`, a folder a stage."""

    def __init__(self, run: Path) -> None:
        self._folder = run / "tensorboard"
        self._writers: dict[str, Any] = {}

    def log(self, values: Mapping[str, float], *, stage: str, step: int) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        if stage not in self._writers:
            # A run that is resumed repeats steps: what an earlier process wrote of them is not shown.
            self._writers[stage] = SummaryWriter(str(self._folder / stage), purge_step=step)
        for name, value in values.items():
            self._writers[stage].add_scalar(name, value, global_step=step)
        self._writers[stage].flush()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


class _Board:
    """Weights & Biases, or Trackio, which has the same functions."""

    def __init__(self, library: str, run: Path, config: Mapping[str, Any]) -> None:
        self._library = import_module(library)
        path = run.resolve()
        # Trackio goes on with a run by its name, wandb by its id.
        number = hashlib.sha256(str(path).encode()).hexdigest()[:12]
        own = {"dir": str(run), "id": f"{path.name}-{number}"} if library == "wandb" else {}
        self._library.init(project=PROJECT, name=path.name, config=dict(config), resume="allow", **own)

    def log(self, values: Mapping[str, float], *, stage: str, step: int) -> None:
        self._library.log({f"{stage}/step": step, **{f"{stage}/{name}": value for name, value in values.items()}})

    def close(self) -> None:
        self._library.finish()

"""Where metrics go besides `metrics.jsonl`, if asked: TensorBoard, Weights & Biases, Trackio.

Each library is loaded only by the run that asks for it. Steps count within a stage, and stages start anew; so TensorBoard
gets a run a stage, which it draws over one another, and the other two get names that begin with the stage.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol

TrackerName = Literal["tensorboard", "wandb", "trackio"]
TRACKERS: tuple[TrackerName, ...] = ("tensorboard", "wandb", "trackio")

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
        ValueError: a name there is none of, or a library that is not installed.
    """
    names = [name for name in report_to if name != "none"]
    for name in names:
        _check(name)
    return [_open(name, run=run, config=config or {}) for name in dict.fromkeys(names)]


def _check(name: str) -> None:
    if name not in TRACKERS:
        raise ValueError(f"report_to: {name} given; {', '.join(TRACKERS)} or none would do")
    if find_spec(name) is None:
        raise ValueError(f"report_to: {name} given, but it is not installed; `pip install {name}` does that")


def _open(name: str, *, run: Path, config: Mapping[str, Any]) -> Tracker:
    if name == "tensorboard":
        return TensorBoard(run / "tensorboard")
    return Board(name, run=run, config=config)


class TensorBoard:
    """Event files, in a folder a stage.

    Args:
        folder: what `tensorboard --logdir` is given.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[str, Any] = {}

    def log(self, values: Mapping[str, float], *, stage: str, step: int) -> None:
        writer = self._writers.get(stage) or self._open(stage, step=step)
        for name, value in values.items():
            writer.add_scalar(name, value, global_step=step)
        writer.flush()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _open(self, stage: str, *, step: int) -> Any:
        from torch.utils.tensorboard.writer import SummaryWriter

        # A run that is resumed repeats steps: what an earlier process wrote of them is not shown.
        writer = self._writers[stage] = SummaryWriter(str(self._folder / stage), purge_step=step)
        return writer


class Board:
    """Weights & Biases, or Trackio, which is called alike.

    Args:
        library: `wandb` or `trackio`.
        run: folder of the run.
        config: shown with it.
    """

    def __init__(self, library: str, *, run: Path, config: Mapping[str, Any]) -> None:
        from importlib import import_module

        self._library = import_module(library)
        where = {"dir": str(run)} if library == "wandb" else {}
        # Trackio goes on with a run by its name, wandb by its id.
        path = run.resolve()
        number = hashlib.sha256(str(path).encode()).hexdigest()[:12]
        identity = {"id": f"{path.name}-{number}"} if library == "wandb" else {}
        self._library.init(project=PROJECT, name=path.name, config=dict(config), resume="allow", **where, **identity)

    def log(self, values: Mapping[str, float], *, stage: str, step: int) -> None:
        self._library.log({f"{stage}/step": step, **{f"{stage}/{name}": value for name, value in values.items()}})

    def close(self) -> None:
        self._library.finish()

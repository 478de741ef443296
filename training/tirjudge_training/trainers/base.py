"""The interface of trainers: the protocol, its input for one stage, and its result.

    [project.entry-points."tirjudge.trainers"]
    trl = "tirjudge_training.trainers.trl:TRAINER"

A trainer is loaded when a recipe with its name is read. So its module must import torch and other heavy packages inside
of functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from pydantic import BaseModel

from tirjudge.kinds import Kinds

if TYPE_CHECKING:
    from tirjudge_training.config import Recipe
    from tirjudge_training.training_data import TrainingData

TrainedKind = Literal["sft", "rl"]
"""The kinds of stages that change weights."""

OnStep = Callable[[int, int, Mapping[str, float]], None]
"""Called after each optimizer step with its number (starting at 1), the number of all steps, and its metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageJob:
    """One stage that changes weights. All paths are absolute."""

    recipe: Recipe
    kind: TrainedKind
    name: str
    """Name of the stage, such as `rl-1`."""
    run: Path
    """Folder of the run."""
    start: Path
    """Checkpoint folder with the initial weights. The trainer must not write to it."""
    folder: Path
    """Working folder of the trainer. After a killed stage, the folder keeps its files, and the stage is started again."""
    samples: tuple[Path, ...] = ()
    """Files of trajectories to learn from, for `read_trajectories` (SFT)."""
    without_labels: bool = False
    """Whether the rollouts vote on the labels (T3RL)."""

    @property
    def seed(self) -> int:
        """Seed for random draws in this stage."""
        return self.recipe.seed_of(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedStage:
    """The result of a trainer."""

    checkpoint: Path
    """Hugging Face folder with `judge.json` and `tokenizer.json`. RL: the best validated weights, or the last ones."""
    step: int
    """Number of optimizer steps that produced these weights."""


class Trainer(Protocol):
    """Changes the weights of a checkpoint."""

    @property
    def name(self) -> str:
        """Name of the trainer: its entry point, and its section in a recipe, have this name."""
        ...

    @property
    def kinds(self) -> frozenset[TrainedKind]:
        """Supported kinds of stages. TRL runs the other stages of a run."""
        ...

    @property
    def settings(self) -> type[BaseModel] | None:
        """Pydantic model of the trainer's section in a recipe. All keys need defaults. None: the trainer has no section.

        `recipe.settings_of(name)` returns the settings.
        """
        ...

    @property
    def shared(self) -> bool:
        """Whether `launch.processes` processes call `train` together, each with its RANK in the environment."""
        ...

    def check(self, recipe: Recipe, *, kind: TrainedKind, without_labels: bool) -> None:
        """Check a recipe before the run starts. Called for each kind of stage that the trainer will run.

        Raises:
            ValueError: the trainer is not installed, or does not support the recipe. The message must have the key and
                a valid value.
        """
        ...

    def train(self, job: StageJob, *, data: TrainingData, on_step: OnStep) -> TrainedStage:
        """Train. If the folder of the job has the state of a killed stage, resume it.

        Raises:
            ValueError: an option, the data or a checkpoint is invalid, or a gradient is not finite.
            EngineUnavailable, SandboxUnavailable: rollouts failed.
            TirjudgeError, OSError, RuntimeError: another failure; the same command resumes the run.
        """
        ...


TRAINERS: Kinds[Trainer] = Kinds("tirjudge.trainers", what="trainer")

DEFAULT = "trl"


def trainer_of(recipe: Recipe, kind: TrainedKind) -> Trainer:
    """Return the trainer of a recipe for a kind of stage; TRL if that trainer does not support the kind."""
    named = TRAINERS.named(recipe.trainer)
    return named if kind in named.kinds else TRAINERS[DEFAULT]

"""What a trainer is, what it is given for one stage, and what it gives back.

    [project.entry-points."tirjudge.trainers"]
    trl = "tirjudge_training.trainers.trl:TRAINER"

The object is loaded when a recipe is read that names it, so its module imports torch and the like within its functions.
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
"""Told of each optimizer step: its number (the first is 1), the number of steps, and its metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageJob:
    """One stage that changes weights; paths are absolute."""

    recipe: Recipe
    kind: TrainedKind
    name: str
    """Of the stage, such as `rl-1`."""
    run: Path
    """Folder of the run."""
    start: Path
    """Checkpoint folder to begin with; never written to."""
    folder: Path
    """The trainer's own. A stage that was killed is started again with what is in it."""
    samples: tuple[Path, ...] = ()
    """Files to learn from, for `read_trajectories` (SFT)."""
    without_labels: bool = False
    """Whether the rollouts vote for the labels (T3RL)."""

    @property
    def seed(self) -> int:
        """Of what is drawn in this stage."""
        return self.recipe.seed_of(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedStage:
    """What a trainer leaves."""

    checkpoint: Path
    """A Hugging Face folder with `judge.json` and `tokenizer.json`. With RL: the best validated weights, or the last."""
    step: int
    """Optimizer steps behind these weights."""


class Trainer(Protocol):
    """Changes the weights of a checkpoint."""

    @property
    def name(self) -> str:
        """As in its entry point, and of its section in a recipe."""
        ...

    @property
    def kinds(self) -> frozenset[TrainedKind]:
        """The kinds of stages that it does. TRL does the others of a run."""
        ...

    @property
    def settings(self) -> type[BaseModel] | None:
        """Of its section in a recipe, `recipe.settings_of(name)`; every key has a default. None: it has no section."""
        ...

    @property
    def shared(self) -> bool:
        """Whether `launch.processes` processes call `train` together, each with its RANK in the environment."""
        ...

    def check(self, recipe: Recipe, *, kind: TrainedKind, without_labels: bool) -> None:
        """Called before a run begins, for each kind of stage that the trainer shall do.

        Raises:
            ValueError: it is not installed, or cannot do what the recipe says. The message names the key and what fixes it.
        """
        ...

    def train(self, job: StageJob, *, data: TrainingData, on_step: OnStep) -> TrainedStage:
        """Train; called again with the same folder, go on where it was killed.

        Raises:
            ValueError: an option, the data or a checkpoint is wrong, or a gradient is not finite.
            EngineUnavailable, SandboxUnavailable: the rollouts could not be made.
            TirjudgeError, OSError, RuntimeError: something else failed; the same command goes on.
        """
        ...


TRAINERS: Kinds[Trainer] = Kinds("tirjudge.trainers", what="trainer")

DEFAULT = "trl"


def trainer_of(recipe: Recipe, kind: TrainedKind) -> Trainer:
    """The trainer that a recipe names, or TRL for a kind of stage that it does not do."""
    named = TRAINERS.named(recipe.trainer)
    return named if kind in named.kinds else TRAINERS[DEFAULT]

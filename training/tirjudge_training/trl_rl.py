"""Reinforcement learning with TRL: a thin adapter between the collector and `GRPOTrainer`.

TRL asks `rollout_func` for so many rows with prompts of its own choosing. The prompts are ignored; the answer is what the
collector brings: ids, which of them the policy sampled, and rewards that are computed already. TRL does the rest:
advantages within each group of G neighbouring rows, the reference, the loss, the optimizer, processes and devices.

One step:

    weights -> policy.load -> collector.collect -> rows -> TRL's loss (Eq. 2) -> optimizer -> every so often validate
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Protocol

from tirjudge.durable import write_file
from tirjudge.types import StopReason
from tirjudge_training.dapo import overlong_penalty
from tirjudge_training.policies import Policy
from tirjudge_training.settings import RLSettings

if TYPE_CHECKING:
    from trl.trainer.grpo_config import GRPOConfig

    from tirjudge_training.groups import Collected, RolloutGroup
    from tirjudge_training.training_samples import TrainingSample
    from tirjudge_training.trl_trainer import RLTrainer

BEST, LAST = "best", "last"
"""Checkpoint folders of a stage: the best validated weights, and those after the last step."""


class Collects(Protocol):
    """Brings groups of rollouts; `step` counts from 0, and the same step brings the same groups again."""

    async def collect(self, *, step: int, num_groups: int, rank: int = 0) -> Collected: ...


class RunsAsync(Protocol):
    """Runs a coroutine to its end on the loop where engine and sandbox live, such as `asyncio.Runner().run`."""

    def __call__(self, coroutine: Coroutine[Any, Any, Any], /) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What a stage is told while it trains; only ever on the main process."""

    log: Callable[[dict[str, Any]], None]
    """A row of metrics with its `step`; the first is 1."""
    keep: Callable[[int, Sequence[TrainingSample]], None]
    """The step, and all that it learns from."""
    validate: Callable[[int, Policy], Mapping[str, float]] | None = None
    """Judges held-out items with the policy after so many steps; `val/acc` decides which weights are best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedStage:
    """What a stage left."""

    last: Path
    best: Path
    """The best validated weights; the last ones where nothing was validated."""
    best_step: int
    steps: int


def train_rl(
    *,
    start: Path,
    folder: Path,
    collector: Collects,
    policy: Policy,
    settings: RLSettings,
    num_steps: int,
    run: RunsAsync,
    hooks: Hooks,
    max_answer_tokens: int,
) -> TrainedStage:
    """Train the checkpoint in `start` by Eq. 2.

    Args:
        start: a Hugging Face checkpoint folder, which is the KL's reference too; never written to.
        folder: the stage's own. A run that was killed goes on from the newest checkpoint in it, with the same draws.
        collector: brings the groups; seeded by step and rank.
        policy: what the collector rolls out with; gets the weights of each step.
        settings: sizes, rates, clips.
        num_steps: optimizer steps, those of a killed run included.
        run: runs what is asynchronous.
        hooks: told of metrics, trajectories; validates.
        max_answer_tokens: most tokens that the policy samples in a rollout; the soft penalty grows towards it.

    Raises:
        ValueError: an option would change the equation, or sizes do not divide.
        NonFiniteLoss: a gradient was no number; the weights were not touched by it.
        EngineUnavailable, SandboxUnavailable: from the collector.
    """
    from tirjudge_training.trl_trainer import newest_checkpoint, open_model, open_tokenizer, set_quiet

    set_quiet(verbose=settings.verbose)
    config = grpo_config(settings, folder=folder, num_steps=num_steps)
    stage = _Stage(
        start=start,
        folder=folder,
        collector=collector,
        policy=policy,
        settings=settings,
        run=run,
        hooks=hooks,
        max_answer_tokens=max_answer_tokens,
    )
    trainer = make_trainer(
        stage, config=config, model=open_model(start, settings=settings), tokenizer=open_tokenizer(start)
    )
    found = newest_checkpoint(folder)
    trainer.train(resume_from_checkpoint=str(found) if found else None)
    return stage.finish(trainer)


def make_trainer(stage: _Stage, *, config: GRPOConfig, model: Any, tokenizer: Any) -> RLTrainer:
    """TRL's trainer around a stage."""
    from datasets import Dataset

    from tirjudge_training.trl_trainer import RLTrainer

    trainer = RLTrainer(
        report=stage.report,
        ratio_to_engine=stage.settings.old_policy == "engine",
        model=model,
        args=config,
        reward_funcs=[precomputed],
        rollout_func=stage.rows,
        # As many as will be asked for, so that there is one epoch; nobody reads them.
        train_dataset=Dataset.from_dict({"prompt": [""] * (stage.settings.prompts_per_step * config.max_steps)}),
        processing_class=tokenizer,
    )
    trainer.add_callback(_validation_callback(stage, trainer))
    return trainer


def grpo_config(settings: RLSettings, *, folder: Path, num_steps: int) -> GRPOConfig:
    """TRL's config for these settings, checked.

    Raises:
        ValueError: an option would change the equation, or sizes do not divide.
    """
    from accelerate import PartialState
    from trl.trainer.grpo_config import GRPOConfig

    from tirjudge_training.presets import check_grpo, check_trl_options

    check_trl_options(settings.trl, known=GRPOConfig)
    processes = PartialState(cpu=settings.device == "cpu").num_processes
    if settings.prompts_per_step % processes:
        raise ValueError(
            f"prompts_per_step: {settings.prompts_per_step} given with {processes} processes, each of which collects "
            "whole groups; a multiple of the processes would do"
        )
    accumulation = settings.grad_accumulation(sequences=settings.sequences_per_step, num_processes=processes)
    options: dict[str, Any] = {
        **settings.trainer_options(folder),
        "max_steps": num_steps,
        "gradient_accumulation_steps": accumulation,
        "steps_per_generation": accumulation,
        "num_generations": settings.group_size,
        "temperature": settings.temperature,
        "loss_type": "dapo",
        "scale_rewards": "group",
        "epsilon": settings.clip_low,
        "epsilon_high": settings.clip_high,
        "beta": settings.kl,
        "use_bias_correction_kl": False,
        "mask_truncated_completions": False,
        "disable_dropout": True,
        "ignore_data_skip": True,  # the rows are placeholders
    }
    config = GRPOConfig(**{**options, **settings.trl})
    check_grpo(config, settings=settings)
    return config


def precomputed(reward: Sequence[float], **_: Any) -> list[float]:
    """The reward function that TRL calls: what the collector's rule gave."""
    return list(reward)


def rows_of(groups: Sequence[RolloutGroup], *, settings: RLSettings, max_answer_tokens: int) -> dict[str, Any]:
    """Groups as TRL's `rollout_func` returns them, a list entry a rollout, the rollouts of a group side by side. One that
    only fills the step up carries no loss, though its whole rewards may differ.

    `env_mask` holds weights: TRL divides the sum of weighted losses by the sum of weights, so 1 a token makes the mean
    over all tokens, and 1 / (tokens of the group) makes the mean over groups of their means.
    """
    rows: dict[str, list[Any]] = {"prompt_ids": [], "completion_ids": [], "logprobs": [], "env_mask": [], "reward": []}
    for group in groups:
        trajectories = group.trajectories
        masks = [
            [0] * len(trajectory.ids) if group.fills else loss_mask(trajectory, settings=settings)
            for trajectory in trajectories
        ]
        tokens = max(sum(map(sum, masks)), 1)
        weight = 1.0 if settings.normaliser == "token_mean" else 1.0 / tokens
        for trajectory, mask in zip(trajectories, masks, strict=True):
            unknown = 0.0 if settings.mask_observations else float("nan")  # the engine did not sample it
            rows["prompt_ids"].append(list(trajectory.prompt_ids))
            rows["completion_ids"].append(list(trajectory.ids))
            rows["logprobs"].append(
                [p if sampled else unknown for p, sampled in zip(trajectory.logprobs, trajectory.mask, strict=True)]
            )
            rows["env_mask"].append([weight * m for m in mask])
            rows["reward"].append(shaped_reward(trajectory, settings=settings, max_answer_tokens=max_answer_tokens))
    return rows


def loss_mask(trajectory: TrainingSample, *, settings: RLSettings) -> list[int]:
    """1 for each token of the answer that carries loss."""
    if settings.overlong == "mask" and trajectory.stop_reason is StopReason.LENGTH:
        return [0] * len(trajectory.ids)
    return list(trajectory.mask) if settings.mask_observations else [1] * len(trajectory.ids)


def shaped_reward(trajectory: TrainingSample, *, settings: RLSettings, max_answer_tokens: int) -> float:
    """The reward, less the soft penalty for length where that is asked for; outputs of programs cost nothing."""
    if settings.overlong != "penalty":
        return trajectory.reward.total
    return trajectory.reward.total + overlong_penalty(
        sum(trajectory.mask), max_tokens=max_answer_tokens, buffer_tokens=settings.overlong_buffer_tokens
    )


@dataclass(kw_only=True)
class _Stage:
    """One stage under way, as TRL calls back into it."""

    start: Path
    folder: Path
    collector: Collects
    policy: Policy
    settings: RLSettings
    run: RunsAsync
    hooks: Hooks
    max_answer_tokens: int
    loaded: int | None = None
    """Steps behind the weights that the policy has; None: it was not given any yet."""
    measured: dict[str, float] = field(default_factory=dict)
    """Of the collection that the current step learns from."""
    step_began: float = 0.0
    is_main: bool = True

    def rows(self, prompts: Sequence[Any], trainer: RLTrainer) -> dict[str, Any]:
        """TRL's `rollout_func`: as many rows as there are prompts, which are ignored."""
        self.step_began = time.perf_counter()
        self.is_main = trainer.accelerator.is_main_process
        step = trainer.state.global_step + 1
        self.load(trainer)
        num_groups, rank = len(prompts) // self.settings.group_size, trainer.accelerator.process_index
        collected = self.run(self.collector.collect(step=step - 1, num_groups=num_groups, rank=rank))
        self._note(step, [group.trajectories for group in collected.groups], stats=collected.stats)
        return rows_of(collected.groups, settings=self.settings, max_answer_tokens=self.max_answer_tokens)

    def load(self, trainer: RLTrainer) -> None:
        """Give the policy the trainer's weights, unless it has them. Every process takes part: shards are gathered."""
        version = trainer.state.global_step
        if self.loaded != version:
            weights = trainer.accelerator.get_state_dict(trainer.model_wrapped)
            self.run(self.policy.load(weights, version=version))
            self.loaded = version

    def _note(self, step: int, groups: Sequence[Sequence[TrainingSample]], *, stats: Mapping[str, float]) -> None:
        from accelerate.utils import gather_object

        trajectories = gather_object([trajectory for group in groups for trajectory in group])
        each = gather_object([dict(stats)])
        self.measured = {}
        for name in sorted({name for one in each for name in one}):
            values = [one[name] for one in each if name in one]
            self.measured[name] = sum(values) if name in _SUMMED else fmean(values)
        if self.is_main:
            self.hooks.keep(step, trajectories)

    def report(self, step: int, found: Mapping[str, float]) -> None:
        """A row of metrics, after each step."""
        row = {ours: float(found[theirs]) for theirs, ours in _METRICS.items() if found.get(theirs) is not None}
        if self.is_main:
            elapsed = time.perf_counter() - self.step_began
            self.hooks.log({"step": step, **self.measured, **row, "perf/step_s": elapsed})

    def validate(self, trainer: RLTrainer) -> None:
        """Judge held-out items with the current weights, and keep the weights if none were better."""
        step, began = trainer.state.global_step, time.perf_counter()
        self.load(trainer)
        accuracy = None
        if self.is_main and self.hooks.validate:
            found = dict(self.hooks.validate(step, self.policy))
            self.hooks.log({"step": step, **found})
            accuracy = found["val/acc"]
        weights = trainer.accelerator.get_state_dict(trainer.model_wrapped)
        best = _read_best(self.folder)
        if accuracy is not None and (best is None or accuracy > best["val/acc"]):
            self._write(trainer, BEST, weights)
            _write_best(self.folder, {"step": step, "val/acc": accuracy})
        trainer.accelerator.wait_for_everyone()
        self.step_began += time.perf_counter() - began  # no part of the step, whose row is written after this

    def _write(self, trainer: RLTrainer, name: str, weights: Mapping[str, Any]) -> None:
        from tirjudge_training.trl_trainer import write_checkpoint

        model: Any = trainer.accelerator.unwrap_model(trainer.model_wrapped)
        write_checkpoint(model, self.folder / name, state=weights, start=self.start)

    def finish(self, trainer: RLTrainer) -> TrainedStage:
        """Write the last weights, and say what there is."""
        weights = trainer.accelerator.get_state_dict(trainer.model_wrapped)
        if trainer.accelerator.is_main_process:
            self._write(trainer, LAST, weights)
        trainer.accelerator.wait_for_everyone()
        steps, best = trainer.state.global_step, _read_best(self.folder)
        return TrainedStage(
            last=self.folder / LAST,
            best=self.folder / (BEST if best else LAST),
            best_step=best["step"] if best else steps,
            steps=steps,
        )


_SUMMED = frozenset({"dapo/draws", "dapo/dropped", "dapo/filled", "perf/traj_per_s", "perf/tok_s"})
"""Of several processes' figures these add up; of the others the mean is taken."""

_METRICS = {
    "loss": "train/loss",
    "kl": "train/kl",
    "grad_norm": "train/grad_norm",
    "learning_rate": "train/lr",
    "clip_ratio/region_mean": "train/clip_frac",
    "entropy": "train/entropy",
    "dlogp_mean": "sync/dlogp_mean",
    "dlogp_max": "sync/dlogp_max",
}
"""TRL's name -> ours."""


def _validation_callback(stage: _Stage, trainer: RLTrainer) -> Any:
    from transformers import TrainerCallback

    class Validation(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            due = state.global_step % stage.settings.validate_every == 0 or state.global_step == args.max_steps
            if due and stage.hooks.validate:
                stage.validate(trainer)

    return Validation()


def best_step(trained: Path) -> int | None:
    """After how many steps the weights in a folder that `train_rl` left were best; None: it is not the folder of the best."""
    best = _read_best(trained.parent) if trained.name == BEST else None
    return None if best is None else int(best["step"])


def _read_best(folder: Path) -> dict[str, Any] | None:
    path = folder / "best.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() and (folder / BEST).exists() else None


def _write_best(folder: Path, best: Mapping[str, Any]) -> None:
    write_file(folder / "best.json", json.dumps(best) + "\n", closed=False)

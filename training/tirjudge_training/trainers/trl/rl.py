"""Reinforcement learning with TRL: a thin adapter between the collector and `GRPOTrainer`.

TRL calls `rollout_func` with prompts from its data set and expects a number of rows. The prompts are ignored. The rows
come from the collector: token ids, the mask of sampled ids, and computed rewards. TRL does the rest: advantages within
each group of G adjacent rows, the reference, the loss, the optimizer, processes and devices.

One step:

    weights -> policy.load -> collector.collect -> rows -> TRL's loss (Eq. 2) -> optimizer -> validation, if due
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Protocol

from tirjudge.durable import write_file
from tirjudge_training.policies import Policy
from tirjudge_training.rollouts import ResumableCollector, open_policy, validate_held_out
from tirjudge_training.settings import RLSettings
from tirjudge_training.trainers.base import OnStep, StageJob, TrainedStage
from tirjudge_training.trainers.shaping import loss_mask, shaped_reward
from tirjudge_training.trainers.trl.options import grpo_config
from tirjudge_training.training_samples import TrainingSample, write_trajectories

if TYPE_CHECKING:
    from tirjudge_training.groups import Collected, RolloutGroup
    from tirjudge_training.trainers.trl.adapters import RLTrainer
    from tirjudge_training.training_data import TrainingData


def train_rl(job: StageJob, *, data: TrainingData, on_step: OnStep) -> TrainedStage:
    """Run a stage of RL in this process, with the policy, sandbox and collector of its recipe.

    Raises:
        ValueError: as in `RLStage.train`.
        EngineUnavailable, SandboxUnavailable: rollouts failed.
    """
    recipe, rollouts = job.recipe, job.run / "rollouts" / job.name
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        try:
            policy = runner.run(open_policy(job.start, recipe=recipe, stack=stack))

            def validate(policy: Policy) -> Mapping[str, float]:
                measured = runner.run(validate_held_out(policy.judge, data, recipe=recipe)).metrics()
                return {name: value for name, value in measured.items() if value is not None}

            return RLStage(
                start=job.start,
                folder=job.folder,
                collector=ResumableCollector(job, data=data, policy=policy),
                policy=policy,
                settings=recipe.rl,
                num_steps=recipe.rl.num_steps(num_prompts=data.num_prompts),
                run=runner.run,
                on_step=on_step,
                keep=lambda step, kept: write_trajectories(rollouts / f"step-{step:06d}.parquet", kept),
                validate=validate if data.held_out else None,
                take_last=job.without_labels,
                max_answer_tokens=policy.judge.profile.rollout_tokens,
            ).train()
        finally:
            runner.run(stack.aclose())


class Collects(Protocol):
    """A source of groups of rollouts, such as `Collector`."""

    async def collect(self, *, step: int, num_groups: int, rank: int = 0) -> Collected:
        """Return the groups of a step. `step` starts at 0. The same step must return the same groups."""
        ...


class RunsAsync(Protocol):
    """Runs a coroutine to completion on the event loop of the engine and the sandbox, such as
    `asyncio.Runner().run`."""

    def __call__(self, coroutine: Coroutine[Any, Any, Any], /) -> Any:
        """Return the result of the coroutine."""
        ...


@dataclass(kw_only=True)
class RLStage:
    """One stage that trains the checkpoint in `start` by Eq. 2. Its methods are callbacks of TRL."""

    start: Path
    """Hugging Face checkpoint folder with the initial weights, which are also the reference of the KL. It is not
    changed."""
    folder: Path
    """Working folder of the stage. A killed stage resumes from the newest checkpoint in it, with the same draws."""
    collector: Collects
    """Source of the groups, seeded by step and rank."""
    policy: Policy
    """Policy that the collector rolls out with. It gets the weights of each step."""
    settings: RLSettings
    num_steps: int
    """Number of optimizer steps, including those before an interruption."""
    run: RunsAsync
    """Runs coroutines of the collector and the policy."""
    max_answer_tokens: int
    """Maximum number of tokens that the policy samples in a rollout. The soft penalty is largest there."""
    on_step: OnStep
    """Called with the metrics of each step, in the main process only."""
    keep: Callable[[int, Sequence[TrainingSample]], None]
    """Called with each step and its trajectories, in the main process only."""
    validate: Callable[[Policy], Mapping[str, float]] | None = None
    """Judges the held-out items and returns metrics, in the main process only. `val/acc` selects the best weights.
    None: the last weights are taken."""
    take_last: bool = False
    """Whether to take the last weights even if earlier ones validated better."""
    loaded: int | None = None
    """Step of the weights that the policy has. None: no weights were loaded yet."""
    measured: dict[str, float] = field(default_factory=dict)
    """Metrics of the collection for the current step."""
    step_began: float = 0.0
    """Start of the current step, on the clock of `time.perf_counter`."""
    is_main: bool = True
    """Whether this is the main process."""

    def train(self) -> TrainedStage:
        """Train to the last step.

        Raises:
            ValueError: an option would change the equation, or sizes do not divide evenly.
            NonFiniteLoss: a gradient was not finite; the weights are those before that step.
        """
        from tirjudge_training.trainers.trl.adapters import train

        trainer = self.make_trainer()
        last = train(trainer, self.folder, start=self.start)
        best = None if self.take_last else self._read_best()
        if best is None:
            return TrainedStage(checkpoint=last, step=trainer.state.global_step)
        return TrainedStage(checkpoint=self.folder / "best", step=best["step"])

    def make_trainer(self) -> RLTrainer:
        """Return TRL's trainer, configured to call this stage."""
        from datasets import Dataset
        from transformers import TrainerCallback

        from tirjudge_training.trainers.trl.adapters import RLTrainer, open_model, open_tokenizer, set_quiet

        stage = self

        class ValidateWhenDue(TrainerCallback):
            """Validates every `validate_every` steps, and after the last step."""

            def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                due = state.global_step % stage.settings.validate_every == 0 or state.global_step == args.max_steps
                if due and stage.validate is not None:
                    stage.validate_now(trainer)

        set_quiet(verbose=self.settings.verbose)
        trainer = RLTrainer(
            report=self.report,
            ratio_to_engine=self.settings.old_policy == "engine",
            model=open_model(self.start, settings=self.settings),
            args=grpo_config(self.settings, folder=self.folder, num_steps=self.num_steps),
            reward_funcs=[precomputed],
            rollout_func=self.rows,
            # Placeholders, which are not used. Their number gives one epoch.
            train_dataset=Dataset.from_dict({"prompt": [""] * (self.settings.prompts_per_step * self.num_steps)}),
            processing_class=open_tokenizer(self.start),
        )
        trainer.add_callback(ValidateWhenDue())
        return trainer

    def rows(self, prompts: Sequence[Any], trainer: RLTrainer) -> dict[str, Any]:
        """Return one row per prompt. This is TRL's `rollout_func`; only the number of prompts is used."""
        self.step_began = time.perf_counter()
        self.is_main = trainer.accelerator.is_main_process
        step = trainer.state.global_step + 1
        self.load(trainer)
        num_groups, rank = len(prompts) // self.settings.group_size, trainer.accelerator.process_index
        collected = self.run(self.collector.collect(step=step - 1, num_groups=num_groups, rank=rank))
        self._note(step, collected)
        return rows_of(collected.groups, settings=self.settings, max_answer_tokens=self.max_answer_tokens)

    def load(self, trainer: RLTrainer) -> None:
        """Load the trainer's weights into the policy, unless it has them already."""
        from tirjudge_training.trainers.trl.adapters import gathered_weights

        version = trainer.state.global_step
        if self.loaded != version:
            self.run(self.policy.load(gathered_weights(trainer), version=version))
            self.loaded = version

    def _note(self, step: int, collected: Collected) -> None:
        from accelerate.utils import gather_object

        trajectories = gather_object([one for group in collected.groups for one in group.trajectories])
        each = gather_object([dict(collected.stats)])
        self.measured = {}
        for name in sorted({name for one in each for name in one}):
            values = [one[name] for one in each if name in one]
            self.measured[name] = sum(values) if name in _SUMMED else fmean(values)
        if self.is_main:
            self.keep(step, trajectories)

    def report(self, step: int, metrics: Mapping[str, float]) -> None:
        """Report the metrics of a step together with those of its collection."""
        if self.is_main:
            elapsed = time.perf_counter() - self.step_began
            self.on_step(step, self.num_steps, {**self.measured, **metrics, "perf/step_s": elapsed})

    def validate_now(self, trainer: RLTrainer) -> None:
        """Judge the held-out items with the current weights, and save the weights if they are the best so far."""
        from tirjudge_training.trainers.trl.adapters import gathered_weights, write_checkpoint

        step, began = trainer.state.global_step, time.perf_counter()
        self.load(trainer)
        weights = gathered_weights(trainer)
        if self.is_main and self.validate is not None:
            metrics = self.validate(self.policy)
            self.on_step(step, self.num_steps, metrics)
            best = self._read_best()
            if best is None or metrics["val/acc"] > best["val/acc"]:
                write_checkpoint(trainer, self.folder / "best", weights=weights, start=self.start)
                write_file(
                    self.folder / "best.json",
                    json.dumps({"step": step, "val/acc": metrics["val/acc"]}) + "\n",
                    closed=False,
                )
        trainer.accelerator.wait_for_everyone()
        self.step_began += time.perf_counter() - began  # the duration of the step excludes the validation

    def _read_best(self) -> dict[str, Any] | None:
        file = self.folder / "best.json"
        if not file.exists() or not (self.folder / "best").exists():
            return None
        return json.loads(file.read_text(encoding="utf-8"))


def precomputed(reward: Sequence[float], **_: Any) -> list[float]:
    """Return the rewards that the collector computed. This is the reward function for TRL."""
    return list(reward)


def rows_of(groups: Sequence[RolloutGroup], *, settings: RLSettings, max_answer_tokens: int) -> dict[str, Any]:
    """Convert groups to the result of TRL's `rollout_func`: lists with one entry per rollout, groups adjacent.

    `env_mask` contains weights. TRL divides the sum of weighted losses by the sum of weights. Weight 1 for each token
    gives the mean over all tokens. Weight 1 / (tokens of the group) gives the mean over groups of their means. A group
    that only fills up the step has weight 0, even if its total rewards differ.

    Args:
        groups: Groups of the step.
        settings: Settings of RL.
        max_answer_tokens: Maximum number of tokens that the policy samples in a rollout.
    """
    rows: dict[str, list[Any]] = {"prompt_ids": [], "completion_ids": [], "logprobs": [], "env_mask": [], "reward": []}
    unknown = 0.0 if settings.mask_observations else float("nan")  # log-probability of tokens that were not sampled
    for group in groups:
        masks = [
            [0] * len(one.ids) if group.fills else loss_mask(one.mask, stop_reason=one.stop_reason, settings=settings)
            for one in group.trajectories
        ]
        tokens = max(sum(map(sum, masks)), 1)
        weight = 1.0 if settings.normaliser == "token_mean" else 1.0 / tokens
        for one, mask in zip(group.trajectories, masks, strict=True):
            rows["prompt_ids"].append(list(one.prompt_ids))
            rows["completion_ids"].append(list(one.ids))
            rows["logprobs"].append([p if m else unknown for p, m in zip(one.logprobs, one.mask, strict=True)])
            rows["env_mask"].append([weight * m for m in mask])
            rows["reward"].append(
                shaped_reward(one.reward.total, sampled=one.mask, settings=settings, max_tokens=max_answer_tokens)
            )
    return rows


_SUMMED = frozenset({"dapo/draws", "dapo/dropped", "dapo/filled", "perf/traj_per_s", "perf/tok_s"})
"""Metrics that are summed over processes. The others are averaged."""

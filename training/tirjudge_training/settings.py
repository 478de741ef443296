"""What a training stage is told: the paper's numbers (section 5.1) unless a recipe says otherwise.

`trl` is handed to TRL's own config after ours; what changes the equation is refused there (`trainers/trl/options.py`).
"""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class OptimizerSettings(BaseModel):
    """What supervised and reinforcement learning share."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    learning_rate: float = Field(gt=0.0)
    lr_scheduler: str = "linear"
    """A schedule of transformers: `linear`, `cosine`, `constant_with_warmup`, ..."""
    warmup_steps: int = Field(default=0, ge=0)
    weight_decay: float = Field(default=0.0, ge=0.0)
    max_grad_norm: float = Field(default=1.0, gt=0.0)
    optim: str = "adamw_torch"
    """An optimizer of transformers."""
    seed: int = Field(default=0, ge=0)
    """Of the trainer; rollouts have seeds of their own."""
    device: Literal["cpu", "auto"] = "auto"
    """`cpu`: even where there is a GPU."""
    weights: Literal["float32", "bfloat16"] = "float32"
    """What the weights are held in while they are trained."""
    bf16: bool = False
    """Whether matrices are multiplied in bfloat16 (autocast)."""
    gradient_checkpointing: bool = False
    context_tokens: int = Field(default=8192, gt=0)
    """Longest sequence that SFT trains on, prompt and answer together; longer ones are left out and counted. Rollouts of RL
    are as long as the checkpoint's profile lets them be."""
    per_device_batch: int = Field(default=4, ge=1)
    """Sequences in one forward pass on one device."""
    report_to: tuple[str, ...] = ()
    """Trackers that TRL writes to by itself; metrics.jsonl is always written."""
    save_every: int = Field(default=50, ge=1)
    """Steps between checkpoints that a killed run goes on from."""
    verbose: bool = False
    """Whether transformers and TRL may speak."""
    trl: dict[str, Any] = Field(default_factory=dict)
    """Options of TRL's own config, by its names."""

    def grad_accumulation(self, *, sequences: int, num_processes: int) -> int:
        """Forward passes that make up one optimizer step.

        Raises:
            ValueError: the step's sequences do not split evenly over devices and passes.
        """
        at_once = self.per_device_batch * num_processes
        if sequences % at_once:
            raise ValueError(
                f"per_device_batch: {self.per_device_batch} on {num_processes} process(es) makes {at_once} sequences a "
                f"pass, and a step has {sequences}, which is no multiple of it; give a divisor of "
                f"{sequences // math.gcd(sequences, num_processes)}"
            )
        return sequences // at_once


class SFTSettings(OptimizerSettings):
    """Supervised learning on trajectories."""

    learning_rate: float = Field(default=2e-6, gt=0.0)
    batch: int = Field(default=64, ge=1)
    """Trajectories in one optimizer step."""
    epochs: float = Field(default=1.0, gt=0.0)
    mask_observations: bool = True
    """False: what programs printed carries loss too (an ablation)."""


class RLSettings(OptimizerSettings):
    """DAPO, Eq. 2 of the paper."""

    learning_rate: float = Field(default=1e-6, gt=0.0)
    lr_scheduler: str = "constant_with_warmup"
    group_size: int = Field(default=8, ge=2)
    """Rollouts of one prompt, G."""
    prompts_per_step: int = Field(default=128, ge=1)
    """Groups in one optimizer step; a pointwise item makes two."""
    epochs: float = Field(default=2.0, gt=0.0)
    """How often the prompts are gone through; `steps` overrides it."""
    steps: int | None = Field(default=None, ge=1)
    """Optimizer steps; None: as many as `epochs` needs."""
    clip_low: float = Field(default=0.2, ge=0.0, lt=1.0)
    clip_high: float = Field(default=0.3, ge=0.0)
    kl: float = Field(default=0.01, ge=0.0)
    """Weight of the k3 divergence from the weights that the stage began with, beta; 0: none, and no second model."""
    normaliser: Literal["token_mean", "group_mean"] = "token_mean"
    """`token_mean`: over all tokens of the step. `group_mean`: over the tokens of each group, then over groups, which is
    Eq. 2 to the letter."""
    old_policy: Literal["trainer", "engine"] = "trainer"
    """Whose probabilities the ratio is taken to: the trainer's own before the step, or those the engine sampled with."""
    temperature: float = Field(default=1.0, gt=0.0)
    max_tool_calls: int = Field(default=3, ge=0)
    mask_observations: bool = True
    """False: what programs printed carries loss too (an ablation)."""
    group_filter: Literal["correctness", "reward"] = "correctness"
    """What must differ within a group for dynamic sampling to keep it: Rc (Eq. 2), or the whole reward."""
    dynamic_sampling: bool = True
    difficulty: bool = False
    """Whether prompts that were lately mixed are drawn more often."""
    overlong: Literal["mask", "penalty", "none"] = "mask"
    """A rollout that ran out of tokens: carries no loss (its reward still counts in its group's mean), loses reward by
    DAPO's soft penalty, or is like any other."""
    overlong_buffer_tokens: int = Field(default=1024, gt=0)
    """Over how many tokens before the limit the penalty grows from 0 to 1."""
    validate_every: int = Field(default=25, ge=1)
    """Steps between validations; the last step is always validated."""

    @model_validator(mode="after")
    def _engine_knows_what_it_sampled(self) -> RLSettings:
        if self.old_policy == "engine" and not self.mask_observations:
            raise ValueError(
                "old_policy: engine given with mask_observations false, but an engine has no probabilities for what "
                "programs printed; set old_policy to trainer"
            )
        if self.old_policy == "engine" and self.temperature != 1.0:
            raise ValueError(
                f"old_policy: engine given with temperature {self.temperature}, but an engine tells its probabilities "
                "at temperature 1; set temperature to 1, or old_policy to trainer"
            )
        return self

    @property
    def sequences_per_step(self) -> int:
        return self.group_size * self.prompts_per_step

    def num_steps(self, *, num_prompts: int) -> int:
        """Optimizer steps for so many prompts (a pointwise item counts twice)."""
        return self.steps or math.ceil(self.epochs * num_prompts / self.prompts_per_step)

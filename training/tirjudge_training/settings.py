"""Settings of training stages. The defaults are the values of the paper (section 5.1).

Options under `trl` are passed to TRL's config and override the options derived from these settings. Options that would
change the equation are rejected (`trainers/trl/options.py`).
"""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class OptimizerSettings(BaseModel):
    """Common settings of supervised and reinforcement learning."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    learning_rate: float = Field(gt=0.0)
    lr_scheduler: str = "linear"
    """Name of a schedule of transformers: `linear`, `cosine`, `constant_with_warmup`, ..."""
    warmup_steps: int = Field(default=0, ge=0)
    weight_decay: float = Field(default=0.0, ge=0.0)
    max_grad_norm: float = Field(default=1.0, gt=0.0)
    optim: str = "adamw_torch"
    """Name of an optimizer of transformers."""
    seed: int = Field(default=0, ge=0)
    """Seed of the trainer. Rollouts use separate seeds."""
    device: Literal["cpu", "auto"] = "auto"
    """`cpu`: do not use a GPU. `auto`: use a GPU if there is one."""
    weights: Literal["float32", "bfloat16"] = "float32"
    """Data type of the weights during training."""
    bf16: bool = False
    """Whether matrices are multiplied in bfloat16 (autocast)."""
    gradient_checkpointing: bool = False
    context_tokens: int = Field(default=8192, gt=0)
    """Maximum number of tokens, prompt and answer together, of a sequence in SFT. Longer sequences are skipped and
    counted. The length of rollouts in RL is limited by the profile of the checkpoint."""
    per_device_batch: int = Field(default=4, ge=1)
    """Number of sequences in one forward pass on one device."""
    report_to: tuple[str, ...] = ()
    """Trackers that TRL writes to. metrics.jsonl is always written."""
    save_every: int = Field(default=50, ge=1)
    """Number of steps between the checkpoints that a killed run can resume from."""
    verbose: bool = False
    """Whether transformers and TRL may print messages."""
    trl: dict[str, Any] = Field(default_factory=dict)
    """Options of TRL's config, by their names in TRL."""

    def grad_accumulation(self, *, sequences: int, num_processes: int) -> int:
        """Return the number of forward passes per optimizer step.

        Args:
            sequences: Number of sequences in one optimizer step.
            num_processes: Number of processes that share the step.

        Raises:
            ValueError: the sequences of a step do not divide evenly over processes and passes.
        """
        per_pass = self.per_device_batch * num_processes
        if sequences % per_pass:
            raise ValueError(
                f"per_device_batch: {self.per_device_batch} on {num_processes} process(es) makes {per_pass} sequences per "
                f"pass, and a step has {sequences}, which is not a multiple of {per_pass}; give a divisor of "
                f"{sequences // math.gcd(sequences, num_processes)}"
            )
        return sequences // per_pass


class SFTSettings(OptimizerSettings):
    """Supervised learning on trajectories."""

    learning_rate: float = Field(default=2e-6, gt=0.0)
    batch: int = Field(default=64, ge=1)
    """Number of trajectories in one optimizer step."""
    epochs: float = Field(default=1.0, gt=0.0)
    """Number of passes over the trajectories."""
    mask_observations: bool = True
    """Whether outputs of programs are excluded from the loss. False: they are included (an ablation)."""


class RLSettings(OptimizerSettings):
    """Reinforcement learning with DAPO, Eq. 2 of the paper."""

    learning_rate: float = Field(default=1e-6, gt=0.0)
    lr_scheduler: str = "constant_with_warmup"
    group_size: int = Field(default=8, ge=2)
    """Number of rollouts per prompt, G."""
    prompts_per_step: int = Field(default=128, ge=1)
    """Number of groups in one optimizer step. A pointwise item makes two groups."""
    epochs: float = Field(default=2.0, gt=0.0)
    """Number of passes over the prompts; `steps` overrides it."""
    steps: int | None = Field(default=None, ge=1)
    """Number of optimizer steps. None: derived from `epochs`."""
    clip_low: float = Field(default=0.2, ge=0.0, lt=1.0)
    """The ratio is clipped at 1 - clip_low from below."""
    clip_high: float = Field(default=0.3, ge=0.0)
    """The ratio is clipped at 1 + clip_high from above."""
    kl: float = Field(default=0.01, ge=0.0)
    """Weight of the k3 divergence from the initial weights of the stage, beta. 0: no divergence and no reference
    model."""
    normaliser: Literal["token_mean", "group_mean"] = "token_mean"
    """`token_mean`: mean over all tokens of the step. `group_mean`: mean over the tokens of each group, then over
    groups, exactly as in Eq. 2."""
    old_policy: Literal["trainer", "engine"] = "trainer"
    """Source of the old probabilities in the ratio. `trainer`: recomputed before the step. `engine`: recorded while
    sampling."""
    temperature: float = Field(default=1.0, gt=0.0)
    max_tool_calls: int = Field(default=3, ge=0)
    """Maximum number of tool calls per rollout."""
    mask_observations: bool = True
    """Whether outputs of programs are excluded from the loss. False: they are included (an ablation)."""
    group_filter: Literal["correctness", "reward"] = "correctness"
    """Quantity that must differ within a group, so that dynamic sampling keeps the group. `correctness`: Rc (Eq. 2).
    `reward`: the total reward."""
    dynamic_sampling: bool = True
    """Whether groups without a difference are discarded and replaced by other groups."""
    difficulty: bool = False
    """Whether prompts with mixed results are drawn more often."""
    overlong: Literal["mask", "penalty", "none"] = "mask"
    """Handling of a rollout that reached the token limit. `mask`: its tokens are excluded from the loss, but its
    reward counts in the mean of its group. `penalty`: DAPO's soft penalty reduces its reward. `none`: no special handling."""
    overlong_buffer_tokens: int = Field(default=1024, gt=0)
    """Number of tokens before the limit over which the penalty grows from 0 to 1."""
    validate_every: int = Field(default=25, ge=1)
    """Number of steps between validations. The last step is always validated."""

    @model_validator(mode="after")
    def _engine_has_old_logprobs(self) -> RLSettings:
        if self.old_policy == "engine" and not self.mask_observations:
            raise ValueError(
                "old_policy: engine given with mask_observations false, but an engine has no probabilities for outputs "
                "of programs; set old_policy to trainer"
            )
        if self.old_policy == "engine" and self.temperature != 1.0:
            raise ValueError(
                f"old_policy: engine given with temperature {self.temperature}, but an engine reports probabilities "
                "at temperature 1; set temperature to 1, or old_policy to trainer"
            )
        return self

    @property
    def sequences_per_step(self) -> int:
        """Number of rollouts in one optimizer step."""
        return self.group_size * self.prompts_per_step

    def num_steps(self, *, num_prompts: int) -> int:
        """Return the number of optimizer steps for `num_prompts` prompts. A pointwise item has two prompts."""
        return self.steps or math.ceil(self.epochs * num_prompts / self.prompts_per_step)

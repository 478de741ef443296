"""Refuses to train where an option of TRL would silently change the equation: by a default of the library, or by what a
recipe passes through.

Each rule names what Eq. 2 needs and why. It looks at the config that TRL will really use, after everything was merged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tirjudge_training.settings import OptimizerSettings, RLSettings, SFTSettings

if TYPE_CHECKING:
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.sft_config import SFTConfig

TRL_VERSION = "1.16."
"""What the adapters were tested with; they lean on inner workings that a release may change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What one option has to be."""

    option: str
    needed: Any
    why: str


def check_version(version: str) -> None:
    """Raises ValueError for a TRL that the adapters were not tested with."""
    if not version.startswith(TRL_VERSION):
        raise ValueError(
            f"trl: {version} found, {TRL_VERSION}* needed: its rollout_func is experimental, and row order, masks and "
            "normalisers are relied on"
        )


def check_trl_options(options: Mapping[str, Any], *, known: type) -> None:
    """Raises ValueError for options that TRL's config does not know."""
    from dataclasses import fields

    names = {field.name for field in fields(known)}
    for name in options:
        if name not in names:
            raise ValueError(f"trl.{name}: {known.__name__} of TRL {TRL_VERSION}* has no such option")


def check_grpo(config: GRPOConfig, *, settings: RLSettings) -> None:
    """Look that TRL will compute what `settings` say.

    Raises:
        ValueError: naming the option, what was found, what is needed, and why.
    """
    for rule in (*_equation(settings), *_batches(config, settings=settings), *_sampling(settings)):
        _hold(config, rule)
    _check_device(config, settings=settings)


def check_sft(config: SFTConfig, *, settings: SFTSettings) -> None:
    """Look that TRL will train on exactly the labels it is given.

    Raises:
        ValueError: naming the option, what was found, what is needed, and why.
    """
    for rule in _LABELS:
        _hold(config, rule)
    _check_device(config, settings=settings)


def _hold(config: Any, rule: Rule) -> None:
    found = getattr(config, rule.option)
    if found != rule.needed:
        raise ValueError(f"trl.{rule.option}: {found!r} found, {rule.needed!r} needed: {rule.why}")


def _equation(settings: RLSettings) -> tuple[Rule, ...]:
    return (
        Rule(option="loss_type", needed="dapo", why="other losses are averaged otherwise than Eq. 2"),
        Rule(option="beta", needed=settings.kl, why="the weight of the KL is the setting `kl`; TRL's default is 0"),
        Rule(option="epsilon", needed=settings.clip_low, why="the lower clip is the setting `clip_low`"),
        Rule(
            option="epsilon_high",
            needed=settings.clip_high,
            why="the upper clip is the setting `clip_high`; TRL's default is the lower one",
        ),
        Rule(option="delta", needed=None, why="Eq. 2 has no third clip"),
        Rule(option="scale_rewards", needed="group", why="advantages are normalised within their group"),
        Rule(option="reward_weights", needed=None, why="the reward is already whole"),
        Rule(option="multi_objective_aggregation", needed="sum_then_normalize", why="the reward is already whole"),
        Rule(option="importance_sampling_level", needed="token", why="Eq. 2 takes the ratio of each token"),
        Rule(
            option="use_bias_correction_kl",
            needed=False,
            why="TRL's default multiplies k3 by the ratio, which changes its gradient",
        ),
        Rule(
            option="mask_truncated_completions",
            needed=False,
            why="it looks for an end-of-turn token, and a rollout ends with its verdict; `overlong` looks at the stop reason",
        ),
        Rule(option="top_entropy_quantile", needed=1.0, why="Eq. 2 counts every sampled token"),
        Rule(option="entropy_coef", needed=0.0, why="Eq. 2 has no entropy term"),
        Rule(option="use_adaptive_entropy", needed=False, why="Eq. 2 has no entropy term"),
        Rule(option="off_policy_mask_threshold", needed=None, why="Eq. 2 counts every sampled token"),
        Rule(option="sync_ref_model", needed=False, why="the reference is what the stage began with"),
        Rule(option="disable_dropout", needed=True, why="dropout makes the ratio of unchanged weights differ from 1"),
    )


def _batches(config: GRPOConfig, *, settings: RLSettings) -> tuple[Rule, ...]:
    accumulation = settings.grad_accumulation(sequences=settings.sequences_per_step, num_processes=config.world_size)
    return (
        Rule(option="num_generations", needed=settings.group_size, why="groups have `group_size` rollouts"),
        Rule(option="num_iterations", needed=1, why="each rollout is learnt from once, by the weights that sampled it"),
        Rule(option="per_device_train_batch_size", needed=settings.per_device_batch, why="`per_device_batch` sets it"),
        Rule(option="gradient_accumulation_steps", needed=accumulation, why="a step has `prompts_per_step` groups"),
        Rule(
            option="steps_per_generation",
            needed=accumulation,
            why="equal to gradient_accumulation_steps: else the loss is divided by the average of several steps' tokens",
        ),
        Rule(option="logging_steps", needed=1, why="every step writes its metrics"),
        Rule(option="save_only_model", needed=False, why="a killed run goes on from optimizer and random state"),
    )


def _sampling(settings: RLSettings) -> tuple[Rule, ...]:
    whole = "rollouts are sampled from the whole distribution, and probabilities are computed on it"
    return (
        Rule(option="temperature", needed=settings.temperature, why="TRL divides by the temperature of the rollouts"),
        Rule(option="top_p", needed=1.0, why=whole),
        Rule(option="top_k", needed=0, why=whole),
        Rule(option="min_p", needed=None, why=whole),
        Rule(option="repetition_penalty", needed=1.0, why=whole),
        Rule(option="generation_kwargs", needed=None, why="the judge's own engine generates"),
        Rule(
            option="use_vllm",
            needed=False,
            why="the judge's own engine generates; TRL's would bring importance weights that drop whole sequences",
        ),
        Rule(option="use_transformers_continuous_batching", needed=False, why="the judge's own engine generates"),
    )


_LABELS = (
    Rule(option="packing", needed=False, why="a trajectory is a row; packed rows are cut where a row is full"),
    Rule(option="padding_free", needed=False, why="rows need their own attention"),
    Rule(
        option="max_length",
        needed=None,
        why="a cut trajectory loses its verdict; `context_tokens` leaves long ones out",
    ),
    Rule(
        option="completion_only_loss", needed=None, why="the labels decide; a completion_mask would be ignored silently"
    ),
    Rule(option="assistant_only_loss", needed=False, why="the labels decide"),
    Rule(option="loss_type", needed="nll", why="others are not the mean over the labelled tokens"),
    Rule(option="label_smoothing_factor", needed=0.0, why="the labels are what was sampled"),
    Rule(option="neftune_noise_alpha", needed=None, why="noise on embeddings is not in the recipe"),
    Rule(option="logging_steps", needed=1, why="every step writes its metrics"),
    Rule(option="save_only_model", needed=False, why="a killed run goes on from optimizer and random state"),
)


def _check_device(config: Any, *, settings: OptimizerSettings) -> None:
    on_cpu = config.device.type == "cpu"
    if on_cpu and (config.bf16 or config.fp16):
        raise ValueError(
            f"trl.bf16, trl.fp16: {config.bf16}, {config.fp16} found, False needed on a CPU: it is slower there, and the "
            "engine computes in float32"
        )
    if config.bf16 != settings.bf16:
        raise ValueError(f"trl.bf16: {config.bf16} found, {settings.bf16} needed: the setting `bf16` decides")
    if config.max_grad_norm != settings.max_grad_norm:
        raise ValueError(f"trl.max_grad_norm: {config.max_grad_norm} found: the setting `max_grad_norm` decides")

"""TRL's options from our settings: what Eq. 2 and the labels need is set, and nothing may change it.

Some defaults of TRL compute something else, and a recipe can pass options through. So each option that decides what is
computed is a `Requirement`, and they are looked up in the config that TRL really uses, after everything was merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tirjudge_training.settings import OptimizerSettings, RLSettings, SFTSettings
from tirjudge_training.trainers.requirements import Requirement

if TYPE_CHECKING:
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.sft_config import SFTConfig

TRL_VERSION = "1.16."
"""What the adapters were tested with; they rely on internals that a release may change."""


def check_version(version: str) -> None:
    """Raises ValueError for a TRL that the adapters were not tested with."""
    if not version.startswith(TRL_VERSION):
        raise ValueError(
            f"trl: {version} found, {TRL_VERSION}* needed: its rollout_func is experimental, and row order, masks and "
            "normalisers are relied on"
        )


def grpo_config(settings: RLSettings, *, folder: Path, num_steps: int) -> GRPOConfig:
    """TRL's config for these settings, checked.

    Raises:
        ValueError: an option would change the equation, or sizes do not divide.
    """
    from trl.trainer.grpo_config import GRPOConfig

    processes = _num_processes(settings)
    if settings.prompts_per_step % processes:
        raise ValueError(
            f"prompts_per_step: {settings.prompts_per_step} given with {processes} processes, each of which collects "
            f"whole groups; give a multiple of {processes}"
        )
    accumulation = settings.grad_accumulation(sequences=settings.sequences_per_step, num_processes=processes)
    options = {"max_steps": num_steps, "ignore_data_skip": True}  # there is nothing to skip: the rows are placeholders
    required = (*_equation(settings), *_batches(settings, accumulation=accumulation), *_sampling(settings))
    return _checked(GRPOConfig, settings=settings, folder=folder, options=options, required=required)


def sft_config(settings: SFTSettings, *, folder: Path) -> SFTConfig:
    """TRL's config for these settings, checked.

    Raises:
        ValueError: an option that would change what is trained.
    """
    from trl.trainer.sft_config import SFTConfig

    accumulation = settings.grad_accumulation(sequences=settings.batch, num_processes=_num_processes(settings))
    options = {
        "gradient_accumulation_steps": accumulation,
        "num_train_epochs": settings.epochs,
        "dataset_kwargs": {"skip_prepare_dataset": True},
    }
    return _checked(SFTConfig, settings=settings, folder=folder, options=options, required=_LABELS)


def _num_processes(settings: OptimizerSettings) -> int:
    from accelerate import PartialState

    return PartialState(cpu=settings.device == "cpu").num_processes


def _checked(
    config_type: Any,
    *,
    settings: OptimizerSettings,
    folder: Path,
    options: dict[str, Any],
    required: Sequence[Requirement],
) -> Any:
    known = {field.name for field in fields(config_type)}
    for name in settings.trl:
        if name not in known:
            raise ValueError(f"trl.{name}: {config_type.__name__} of TRL {TRL_VERSION}* has no such option")
    required = (*required, *_shared(settings))
    needed = {one.option: one.needed for one in required}
    config = config_type(**{**_optimizer(settings, folder=folder), **options, **needed, **settings.trl})
    if config.device.type == "cpu" and (config.bf16 or config.fp16):
        raise ValueError(
            f"trl.bf16, trl.fp16: {config.bf16}, {config.fp16} found, False needed on a CPU: it is slower there, and the "
            "engine computes in float32"
        )
    for one in required:
        one.check(getattr(config, one.option), key=f"trl.{one.option}")
    return config


def _optimizer(settings: OptimizerSettings, *, folder: Path) -> dict[str, Any]:
    return {
        "output_dir": str(folder),
        "learning_rate": settings.learning_rate,
        "lr_scheduler_type": settings.lr_scheduler,
        "warmup_steps": settings.warmup_steps,
        "weight_decay": settings.weight_decay,
        "optim": settings.optim,
        "seed": settings.seed,
        "use_cpu": settings.device == "cpu",
        "activation_checkpointing": settings.gradient_checkpointing,
        "report_to": list(settings.report_to) or "none",
        "save_steps": settings.save_every,
        "save_total_limit": 2,
        "disable_tqdm": not settings.verbose,
        "dataloader_pin_memory": False,
    }


def _shared(settings: OptimizerSettings) -> list[Requirement]:
    return [
        Requirement("per_device_train_batch_size", settings.per_device_batch, "the setting per_device_batch decides"),
        Requirement("bf16", settings.bf16, "the setting bf16 decides"),
        Requirement("max_grad_norm", settings.max_grad_norm, "the setting max_grad_norm decides"),
        Requirement("logging_steps", 1, "every step writes its metrics"),
        Requirement("save_only_model", False, "a killed run goes on from optimizer and random state"),
    ]


def _equation(settings: RLSettings) -> list[Requirement]:
    whole_reward = "the reward is already whole"
    every_token = "Eq. 2 counts every sampled token"
    return [
        Requirement("loss_type", "dapo", "other losses are averaged otherwise than Eq. 2"),
        Requirement("beta", settings.kl, "the weight of the KL is the setting kl; TRL's default is 0"),
        Requirement("epsilon", settings.clip_low, "the lower clip is the setting clip_low"),
        Requirement(
            "epsilon_high", settings.clip_high, "the setting clip_high decides; TRL's default is the lower clip"
        ),
        Requirement("delta", None, "Eq. 2 has no third clip"),
        Requirement("scale_rewards", "group", "advantages are normalised within their group"),
        Requirement("reward_weights", None, whole_reward),
        Requirement("multi_objective_aggregation", "sum_then_normalize", whole_reward),
        Requirement("importance_sampling_level", "token", "Eq. 2 takes the ratio of each token"),
        Requirement(
            "use_bias_correction_kl", False, "TRL's default multiplies k3 by the ratio, which changes its gradient"
        ),
        # It looks for an end-of-turn token.
        Requirement(
            "mask_truncated_completions", False, "a rollout ends with its verdict; the setting overlong decides"
        ),
        Requirement("top_entropy_quantile", 1.0, every_token),
        Requirement("off_policy_mask_threshold", None, every_token),
        Requirement("entropy_coef", 0.0, "Eq. 2 has no entropy term"),
        Requirement("use_adaptive_entropy", False, "Eq. 2 has no entropy term"),
        Requirement("sync_ref_model", False, "the reference is what the stage began with"),
        Requirement("disable_dropout", True, "dropout makes the ratio of unchanged weights differ from 1"),
    ]


def _batches(settings: RLSettings, *, accumulation: int) -> list[Requirement]:
    average = "else the loss is divided by the average of several steps' tokens"
    return [
        Requirement("num_generations", settings.group_size, "groups have group_size rollouts"),
        Requirement("num_iterations", 1, "each rollout is learnt from once, by the weights that sampled it"),
        Requirement("gradient_accumulation_steps", accumulation, "a step has prompts_per_step groups"),
        Requirement("steps_per_generation", accumulation, f"equal to gradient_accumulation_steps: {average}"),
    ]


def _sampling(settings: RLSettings) -> list[Requirement]:
    whole = "rollouts are sampled from the whole distribution, and probabilities are computed on it"
    own_engine = "the judge's own engine generates"
    return [
        Requirement("temperature", settings.temperature, "TRL divides by the temperature of the rollouts"),
        Requirement("top_p", 1.0, whole),
        Requirement("top_k", 0, whole),
        Requirement("min_p", None, whole),
        Requirement("repetition_penalty", 1.0, whole),
        Requirement("generation_kwargs", None, own_engine),
        Requirement("use_transformers_continuous_batching", False, own_engine),
        Requirement("use_vllm", False, f"{own_engine}; TRL's brings importance weights that drop whole sequences"),
    ]


_LABELS = (
    Requirement("packing", False, "a trajectory is a row; packed rows are cut where a row is full"),
    Requirement("padding_free", False, "rows need their own attention"),
    Requirement("max_length", None, "a cut trajectory loses its verdict; context_tokens leaves long ones out"),
    Requirement("completion_only_loss", None, "the labels decide; a completion_mask is ignored silently"),
    Requirement("assistant_only_loss", False, "the labels decide"),
    Requirement("loss_type", "nll", "others are not the mean over the labelled tokens"),
    Requirement("label_smoothing_factor", 0.0, "the labels are what was sampled"),
    Requirement("neftune_noise_alpha", None, "noise on embeddings is not in the recipe"),
)

"""Translates settings to TRL's options, and checks that the options compute Eq. 2.

Some defaults of TRL compute another loss, and a recipe can pass options to TRL. So each option that affects the
computation is a `Requirement`. The requirements are checked in the final config of TRL, after all options were merged.
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
"""Version of TRL that the adapters were tested with. The adapters depend on internals that another release may change."""


def check_version(version: str) -> None:
    """Check the version of TRL.

    Raises:
        ValueError: the adapters were not tested with this version.
    """
    if not version.startswith(TRL_VERSION):
        raise ValueError(
            f"trl: got version {version}; the adapters need {TRL_VERSION}*, because they depend on its experimental "
            "rollout_func, its row order, masks and normalizers; run: pip install 'tirjudge[train]'"
        )


def grpo_config(settings: RLSettings, *, folder: Path, num_steps: int) -> GRPOConfig:
    """Return TRL's config for RL, checked.

    Args:
        settings: Settings of RL.
        folder: Working folder of the trainer.
        num_steps: Number of optimizer steps.

    Raises:
        ValueError: an option would change the equation, or sizes do not divide evenly.
    """
    from trl.trainer.grpo_config import GRPOConfig

    processes = _num_processes(settings)
    if settings.prompts_per_step % processes:
        raise ValueError(
            f"prompts_per_step: {settings.prompts_per_step} given with {processes} processes, but each process collects "
            f"whole groups; give a multiple of {processes}"
        )
    accumulation = settings.grad_accumulation(sequences=settings.sequences_per_step, num_processes=processes)
    options = {"max_steps": num_steps, "ignore_data_skip": True}  # the data set has placeholders, so skip no rows
    required = (*_equation(settings), *_batches(settings, accumulation=accumulation), *_sampling(settings))
    return _checked(GRPOConfig, settings=settings, folder=folder, options=options, required=required)


def sft_config(settings: SFTSettings, *, folder: Path) -> SFTConfig:
    """Return TRL's config for SFT, checked.

    Args:
        settings: Settings of SFT.
        folder: Working folder of the trainer.

    Raises:
        ValueError: an option would change the loss, or sizes do not divide evenly.
    """
    accumulation = settings.grad_accumulation(sequences=settings.batch, num_processes=_num_processes(settings))

    from trl.trainer.sft_config import SFTConfig

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
            raise ValueError(f"trl.{name}: unknown option of {config_type.__name__} in TRL {TRL_VERSION}*")
    required = (*required, *_shared(settings))
    needed = {one.option: one.needed for one in required}
    config = config_type(**{**_optimizer(settings, folder=folder), **options, **needed, **settings.trl})
    if config.device.type == "cpu" and (config.bf16 or config.fp16):
        raise ValueError(
            f"trl.bf16, trl.fp16: {config.bf16}, {config.fp16} found, False needed on a CPU: they are slower there, and "
            "the engine computes in float32"
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
        Requirement("save_only_model", False, "a killed run resumes from the optimizer and random state"),
    ]


def _equation(settings: RLSettings) -> list[Requirement]:
    whole_reward = "there is only one, total reward"
    every_token = "Eq. 2 counts every sampled token"
    return [
        Requirement("loss_type", "dapo", "other losses are not averaged as in Eq. 2"),
        Requirement("beta", settings.kl, "the weight of the KL is the setting kl; TRL's default is 0"),
        Requirement("epsilon", settings.clip_low, "the lower clip is the setting clip_low"),
        Requirement(
            "epsilon_high", settings.clip_high, "the setting clip_high decides; TRL's default is the lower clip"
        ),
        Requirement("delta", None, "Eq. 2 has no third clip"),
        Requirement("scale_rewards", "group", "advantages are normalized within their group"),
        Requirement("reward_weights", None, whole_reward),
        Requirement("multi_objective_aggregation", "sum_then_normalize", whole_reward),
        Requirement("importance_sampling_level", "token", "Eq. 2 takes the ratio of each token"),
        Requirement(
            "use_bias_correction_kl", False, "TRL's default multiplies k3 by the ratio, which changes its gradient"
        ),
        # TRL recognizes truncation by a missing end-of-turn token.
        Requirement(
            "mask_truncated_completions", False, "a rollout ends with its verdict; the setting overlong decides"
        ),
        Requirement("top_entropy_quantile", 1.0, every_token),
        Requirement("off_policy_mask_threshold", None, every_token),
        Requirement("entropy_coef", 0.0, "Eq. 2 has no entropy term"),
        Requirement("use_adaptive_entropy", False, "Eq. 2 has no entropy term"),
        Requirement("sync_ref_model", False, "the reference is the initial model of the stage"),
        Requirement("disable_dropout", True, "dropout makes the ratio of unchanged weights differ from 1"),
    ]


def _batches(settings: RLSettings, *, accumulation: int) -> list[Requirement]:
    average = "otherwise the loss is divided by the average number of tokens of several steps"
    return [
        Requirement("num_generations", settings.group_size, "groups have group_size rollouts"),
        Requirement("num_iterations", 1, "each rollout is used once, by the weights that sampled it"),
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
        Requirement("use_vllm", False, f"{own_engine}; TRL's engine adds importance weights that drop whole sequences"),
    ]


_LABELS = (
    Requirement("packing", False, "each trajectory is one row; packing may cut a trajectory"),
    Requirement("padding_free", False, "rows must not attend to each other"),
    Requirement("max_length", None, "a truncated trajectory loses its verdict; context_tokens skips long ones"),
    Requirement("completion_only_loss", None, "the labels decide; a completion_mask is ignored silently"),
    Requirement("assistant_only_loss", False, "the labels decide"),
    Requirement("loss_type", "nll", "other losses are not the mean over the labeled tokens"),
    Requirement("label_smoothing_factor", 0.0, "the labels are the sampled tokens"),
    Requirement("neftune_noise_alpha", None, "the recipe adds no noise to embeddings"),
)

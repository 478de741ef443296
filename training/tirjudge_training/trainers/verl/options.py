"""Translates settings to verl's command line, and checks that its options compute Eq. 2.

This is for verl 0.9.1 and its v1 trainer. Each `Requirement` has verl's default, the value that Eq. 2 needs, and the
reason. So options of a recipe can be rejected before a cluster is started. This module does not import verl, which runs
as a separate process.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from tirjudge_training.rewards import RewardRule
from tirjudge_training.settings import RLSettings
from tirjudge_training.trainers.requirements import Requirement

AGENT_NAME = "tirjudge"
"""Name under which the agent loop is registered in verl."""

NEVER_CLIPS = 1e9
"""Bound of the dual clip. It is never reached, because verl clamps the ratio to e^20."""

_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


class VerlSettings(BaseModel):
    """The section `verl` of a recipe."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodes: int = Field(default=1, ge=1)
    gpus_per_node: int = Field(default=8, ge=1)
    strategy: Literal["fsdp", "fsdp2"] = "fsdp2"
    trainer_mode: Literal["sync", "colocate_async", "separate_async"] = "sync"
    """`sync`: rollouts come from the weights that they train, as in Eq. 2. The other modes also use rollouts of older
    weights."""
    tensor_parallel: int = Field(default=1, ge=1)
    """Number of GPUs per vLLM replica."""
    gpu_memory: float = Field(default=0.6, gt=0.0, lt=1.0)
    """Share of the memory of each GPU for vLLM."""
    workers: int = Field(default=8, ge=1)
    """Number of processes that roll out."""
    max_inflight: int = Field(default=2, ge=1)
    """Maximum number of batches of prompts in flight in dynamic sampling. A batch has the prompts of one step."""
    max_tokens_per_gpu: int = Field(default=32_768, gt=0)
    """Maximum number of tokens per GPU in one forward and backward pass. It does not change the loss, which is averaged
    over all tokens of the step."""
    sandbox_urls: tuple[str, ...] = ()
    """URLs of sandbox services that all workers share. Empty: a pool in each worker."""
    sandbox_key_file: Path | None = None
    """File with the API key of the sandbox services. None: no key."""
    sandbox_slots: int = Field(default=4, ge=1)
    """Maximum number of concurrent programs in the pool of a worker."""
    ray_address: str | None = None
    """Address of a running Ray cluster. None: Ray is started on this machine."""
    loggers: tuple[str, ...] = ()
    """Additional loggers of verl, besides the console and metrics.jsonl."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Additional options of verl, by their dotted names."""


Row = tuple[str, JsonValue, JsonValue, str]
"""An option: its name, verl's default, the required value, and the reason."""


def requirements(rl: RLSettings) -> tuple[Requirement, ...]:
    """Return the requirements on all options of verl that affect the computation, for these settings.

    Raises:
        ValueError: verl does not support a setting.
    """
    check_settings(rl)
    third = "Eq. 2 has no third clip; verl caps the loss of tokens with negative advantage at 3 times the advantage"
    return (
        Requirement(f"{_ACTOR}.clip_ratio_c", NEVER_CLIPS, third, default=3.0, at_least=True),
        *(Requirement(f"{_ACTOR}.{key}", needed, why, default) for key, default, needed, why in _actor(rl)),
        *(Requirement(f"{_ROLLOUT}.{key}", needed, why, default) for key, default, needed, why in _rollout(rl)),
        *(Requirement(key, needed, why, default) for key, default, needed, why in _algorithm(rl)),
    )


def _actor(rl: RLSettings) -> list[Row]:
    return [
        ("policy_loss.loss_mode", "vanilla", "vanilla", "the other modes are not Eq. 2"),
        ("clip_ratio_low", 0.2, rl.clip_low, "the lower clip is the setting clip_low"),
        ("clip_ratio_high", 0.2, rl.clip_high, "the upper clip is the setting clip_high"),
        ("loss_agg_mode", "token-mean", "token-mean", "Eq. 2 averages over tokens"),
        ("loss_scale_factor", None, None, "Eq. 2 averages over tokens"),
        ("use_kl_loss", False, rl.kl > 0, "the KL to the reference is part of Eq. 2, with the weight kl"),
        ("kl_loss_coef", 0.001, rl.kl, "the weight of the KL is the setting kl"),
        ("kl_loss_type", "low_var_kl", "low_var_kl", "it is k3; a + at the end changes its gradient"),
        ("entropy_coeff", 0, 0, "Eq. 2 has no entropy term"),
        ("ppo_epochs", 1, 1, "each rollout is used once"),
        ("use_prefix_grouper", False, False, "it was not tested with the masks of the agent loop"),
        ("ppo_mini_batch_size", 256, rl.prompts_per_step, "a step has prompts_per_step prompts"),
        ("grad_clip", 1.0, rl.max_grad_norm, "the setting max_grad_norm decides"),
        ("optim.clip_grad", 1.0, rl.max_grad_norm, "the setting max_grad_norm decides"),
        ("optim.lr", 1e-6, rl.learning_rate, "the setting learning_rate decides"),
        ("optim.weight_decay", 0.01, rl.weight_decay, "the setting weight_decay decides"),
    ]


def _rollout(rl: RLSettings) -> list[Row]:
    whole = "rollouts are sampled from the whole distribution, and probabilities are computed on it"
    return [
        ("n", 1, rl.group_size, "groups have group_size rollouts"),
        ("name", None, "vllm", "the agent loop uses vLLM's servers"),
        ("temperature", 1.0, rl.temperature, "the setting temperature decides"),
        ("top_p", 1, 1, whole),
        ("top_k", -1, -1, whole),
        ("do_sample", True, True, "greedy rollouts of a group are all equal"),
        ("ignore_eos", False, False, "a turn ends where the model ends it"),
        ("calculate_log_probs", True, True, "the difference between engine and trainer is reported"),
        ("logprobs_mode", "processed_logprobs", "processed_logprobs", "they are compared at the rollouts' temperature"),
        ("val_kwargs.temperature", 0, 0, "validation is greedy"),
        ("agent.default_agent_loop", "single_turn_agent", AGENT_NAME, "the judge's agent loop rolls out"),
    ]


def _algorithm(rl: RLSettings) -> list[Row]:
    ours = "the ratio is to the trainer's own probabilities before the step"
    metric = "acc" if rl.group_filter == "correctness" else "reward"
    return [
        ("algorithm.adv_estimator", "gae", "grpo", "advantages are relative to the group"),
        ("algorithm.norm_adv_by_std_in_grpo", True, True, "advantages are over the group's standard deviation"),
        ("algorithm.use_kl_in_reward", False, False, "the KL is in the loss, not in the reward"),
        ("algorithm.filter_groups.enable", False, rl.dynamic_sampling, "the setting dynamic_sampling decides"),
        ("algorithm.filter_groups.metric", "reward", metric, "the setting group_filter decides; acc is Rc"),
        ("algorithm.rollout_correction.bypass_mode", False, False, ours),
        ("algorithm.rollout_correction.rollout_is", None, None, "Eq. 2 has no importance weights beside the ratio"),
        ("algorithm.rollout_correction.rollout_rs", None, None, "Eq. 2 rejects no tokens"),
        ("data.train_batch_size", 1024, rl.prompts_per_step, "a step has prompts_per_step prompts"),
        ("data.filter_overlong_prompts", False, False, "the judge shortens long texts"),
        ("data.return_raw_chat", True, True, "the agent loop needs the row"),
        ("trainer.use_v1", True, True, "the old trainer does not support agent loops with two outputs"),
        ("distillation.enabled", False, False, "Eq. 2 has no teacher"),
        ("reward.reward_model.enable", False, False, "the agent loop computes the reward"),
        ("reward.custom_reward_function.path", None, None, "the agent loop computes the reward"),
    ]


def check_settings(rl: RLSettings, *, rule: RewardRule | None = None) -> None:
    """Check that verl supports the settings.

    Raises:
        ValueError: a setting is not supported. The message has the setting, its value, the supported values and the
            reason.
    """
    schedules = ("constant", "constant_with_warmup", "cosine")
    cannot = (
        ("rl.normaliser", rl.normaliser, ("token_mean",), "verl has no mean over groups"),
        ("rl.old_policy", rl.old_policy, ("trainer",), "verl bypasses its own clip with the engine's probabilities"),
        ("rl.difficulty", rl.difficulty, (False,), "verl draws the prompts"),
        ("rl.device", rl.device, ("auto",), "verl's servers need GPUs"),
        ("rl.lr_scheduler", rl.lr_scheduler, schedules, "verl has no other schedules"),
        ("rl.trl", rl.trl, ({},), "these are options of TRL; use verl.options"),
        ("reward.pair_credit", "index" if rule is None else rule.pair_credit, ("index",), "verl scores one pair at a time"),
    )  # fmt: skip
    for name, given, possible, why in cannot:
        if given not in possible:
            raise ValueError(f"{name}: {given!r} given, but verl needs {' or '.join(map(repr, possible))}: {why}")


def check_options(options: Mapping[str, JsonValue], *, rl: RLSettings) -> None:
    """Check that options for verl do not change the equation.

    Raises:
        ValueError: an option changes the equation. The message has the key, the given value, the required value and the
            reason.
    """
    for name, found in options.items():
        key = name.lstrip("+~")
        if "@" in key:
            raise ValueError(
                f"verl.options.{name}: config groups are not supported; give single options by their dotted names"
            )
        for one in requirements(rl):
            if one.option.startswith(f"{key}."):
                raise ValueError(
                    f"verl.options.{name}: contains the checked option {one.option}; give single options instead"
                )
            if key == one.option:
                one.check("nothing" if name.startswith("~") else found, key=f"verl.options.{name}")


def verl_options(
    rl: RLSettings, *, verl: VerlSettings, model: Path, folder: Path, context_tokens: int, response_tokens: int
) -> dict[str, JsonValue]:
    """Return all options for starting verl: dotted name -> value. Options of the recipe are last.

    Args:
        rl: Settings of RL.
        verl: Settings of verl.
        model: Checkpoint folder with the initial weights. All nodes read it.
        folder: Folder of the stage, with train.parquet, validation.parquet and loop.yaml. All nodes read and write it.
        context_tokens: Maximum number of tokens of a prompt with its answer.
        response_tokens: Maximum number of tokens of an answer, including outputs of programs.

    Raises:
        ValueError: verl does not support a setting, or an option changes the equation.
    """
    check_options(verl.options, rl=rl)
    return {
        **{one.option: one.needed for one in requirements(rl)},
        "data.train_files": str(folder / "train.parquet"),
        "data.val_files": str(folder / "validation.parquet"),
        "data.max_prompt_length": context_tokens,
        "data.max_response_length": response_tokens,
        "data.seed": rl.seed,
        "actor_rollout_ref.model.path": str(model),
        "actor_rollout_ref.model.use_remove_padding": True,
        "actor_rollout_ref.model.enable_gradient_checkpointing": rl.gradient_checkpointing,
        f"{_ACTOR}.strategy": verl.strategy,
        f"{_ACTOR}.fsdp_config.model_dtype": "fp32" if rl.weights == "float32" else "bfloat16",
        f"{_ACTOR}.use_dynamic_bsz": True,
        f"{_ACTOR}.ppo_max_token_len_per_gpu": verl.max_tokens_per_gpu,
        f"{_ACTOR}.optim.lr_scheduler_type": "cosine" if rl.lr_scheduler == "cosine" else "constant",
        f"{_ACTOR}.optim.lr_warmup_steps": rl.warmup_steps,
        f"{_ACTOR}.data_loader_seed": rl.seed,
        f"{_ACTOR}.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
        f"{_ROLLOUT}.max_model_len": context_tokens,
        f"{_ROLLOUT}.tensor_model_parallel_size": verl.tensor_parallel,
        f"{_ROLLOUT}.gpu_memory_utilization": verl.gpu_memory,
        f"{_ROLLOUT}.seed": rl.seed,
        f"{_ROLLOUT}.agent.num_workers": verl.workers,
        f"{_ROLLOUT}.agent.agent_loop_config_path": str(folder / "loop.yaml"),
        "algorithm.filter_groups.max_inflight_gen_batches": verl.max_inflight,
        "trainer.v1.trainer_mode": verl.trainer_mode,
        "trainer.nnodes": verl.nodes,
        "trainer.n_gpus_per_node": verl.gpus_per_node,
        "trainer.total_epochs": math.ceil(rl.epochs) if rl.steps is None else 1_000_000,
        "trainer.total_training_steps": rl.steps,
        "trainer.save_freq": rl.save_every,
        "trainer.test_freq": rl.validate_every,
        "trainer.project_name": "tirjudge",
        "trainer.experiment_name": folder.name,
        "trainer.default_local_dir": str(folder / "checkpoints"),
        "trainer.logger": ["console", "file", *verl.loggers],
        **({} if verl.ray_address is None else {"+ray_kwargs.ray_init.address": verl.ray_address}),
        **verl.options,
    }


def hydra_arguments(options: Mapping[str, JsonValue]) -> list[str]:
    """Return options as arguments for hydra's command line."""
    return [f"{key}={_hydra(value)}" for key, value in options.items()]


def _hydra(value: JsonValue) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    if isinstance(value, list):
        return "[" + ",".join(map(_hydra, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}:{_hydra(part)}" for name, part in value.items()) + "}"
    return json.dumps(value)

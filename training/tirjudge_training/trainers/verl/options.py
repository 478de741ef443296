"""verl's command line from our settings, and the check that nothing in it changes the equation.

verl 0.9.1, its v1 trainer. Each `Requirement` holds verl's own default, what Eq. 2 needs, and why: so what a recipe passes
through can be refused before a cluster is started. Nothing here imports verl; it runs as a process of its own, in an
environment of its own.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from tirjudge.engines.checkpoint import read_eos_token_ids
from tirjudge.errors import TirjudgeError
from tirjudge.profile import load_profile
from tirjudge_training.items import TrainingItem
from tirjudge_training.rewards import RewardRule
from tirjudge_training.settings import RLSettings
from tirjudge_training.verl_data import AGENT_NAME, LoopSettings, write_verl_dataset

VERL_VERSION = "0.9.1"
"""What the defaults below are of; the adapter leans on what a release may change."""

NEVER_CLIPS = 1e9
"""Above e^20, which verl clamps the ratio to: dual clip at this never acts."""

_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


class VerlError(TirjudgeError):
    """verl was started and did not end well."""


class VerlSettings(BaseModel):
    """The part of a recipe that only verl reads."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodes: int = Field(default=1, ge=1)
    gpus_per_node: int = Field(default=8, ge=1)
    strategy: Literal["fsdp", "fsdp2"] = "fsdp2"
    trainer_mode: Literal["sync", "colocate_async", "separate_async"] = "sync"
    """`sync`: rollouts are of the weights that they train, as Eq. 2 has it. The others learn from older ones too."""
    tensor_parallel: int = Field(default=1, ge=1)
    """GPUs of one vLLM replica."""
    gpu_memory: float = Field(default=0.6, gt=0.0, lt=1.0)
    """Share of each GPU that vLLM takes."""
    workers: int = Field(default=8, ge=1)
    """Processes that roll out."""
    max_inflight: int = Field(default=2, ge=1)
    """Steps' worth of prompts that dynamic sampling may have under way."""
    max_tokens_per_gpu: int = Field(default=32_768, gt=0)
    """In one forward and backward pass; it does not change the loss, which is over all tokens of the step."""
    sandbox_urls: tuple[str, ...] = ()
    """Sandbox services that all workers share; empty: a pool in each worker."""
    sandbox_key_file: Path | None = None
    sandbox_slots: int = Field(default=4, ge=1)
    """Programs at a time in a worker's own pool."""
    ray_address: str | None = None
    """Of a cluster that runs; None: Ray is started on this machine."""
    loggers: tuple[str, ...] = ()
    """verl's own, besides the console and our metrics.jsonl."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """More of verl's options, by their dotted names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """What one option of verl has to be."""

    key: str
    default: JsonValue
    """verl 0.9.1's own."""
    needed: JsonValue
    why: str
    at_least: bool = False
    """Whether more than `needed` is as good."""

    def accepts(self, found: JsonValue) -> bool:
        if isinstance(self.needed, bool) or isinstance(found, bool) or not isinstance(self.needed, int | float):
            return found == self.needed and isinstance(found, bool) == isinstance(self.needed, bool)
        if not isinstance(found, int | float):
            return False
        return found >= self.needed if self.at_least else math.isclose(found, self.needed)


def requirements(rl: RLSettings) -> tuple[Requirement, ...]:
    """Everything in verl that decides what is computed, with what the settings ask for.

    Raises:
        ValueError: a setting that verl cannot follow.
    """
    check_settings(rl)
    return (*_loss(rl), *_groups(rl), *_sampling(rl), *_scoring())


def _loss(rl: RLSettings) -> tuple[Requirement, ...]:
    no_third = "Eq. 2 has no third clip; verl caps the loss of bad tokens at 3 times their advantage"
    rows: list[tuple[str, JsonValue, JsonValue, str]] = [
        ("policy_loss.loss_mode", "vanilla", "vanilla", "the others are not Eq. 2"),
        ("clip_ratio_low", 0.2, rl.clip_low, "the lower clip is the setting clip_low"),
        ("clip_ratio_high", 0.2, rl.clip_high, "the upper clip is the setting clip_high"),
        ("loss_agg_mode", "token-mean", "token-mean", "Eq. 2 averages over tokens"),
        ("loss_scale_factor", None, None, "Eq. 2 averages over tokens"),
        ("use_kl_loss", False, rl.kl > 0, "the KL to the reference is part of Eq. 2, with the weight kl"),
        ("kl_loss_coef", 0.001, rl.kl, "the weight of the KL is the setting kl"),
        ("kl_loss_type", "low_var_kl", "low_var_kl", "it is k3; a + at the end changes its gradient"),
        ("entropy_coeff", 0, 0, "Eq. 2 has no entropy term"),
        ("ppo_epochs", 1, 1, "each rollout is learnt from once"),
        ("use_prefix_grouper", False, False, "it was not tested with our masks"),
        ("ppo_mini_batch_size", 256, rl.prompts_per_step, "a step has prompts_per_step prompts"),
        ("grad_clip", 1.0, rl.max_grad_norm, "the setting max_grad_norm decides"),
        ("optim.clip_grad", 1.0, rl.max_grad_norm, "the setting max_grad_norm decides"),
        ("optim.lr", 1e-6, rl.learning_rate, "the setting learning_rate decides"),
        ("optim.weight_decay", 0.01, rl.weight_decay, "the setting weight_decay decides"),
    ]
    third = Requirement(
        key=f"{_ACTOR}.clip_ratio_c", default=3.0, needed=NEVER_CLIPS, why=no_third, at_least=True
    )  # fmt: skip
    return (third, *_all(rows, prefix=f"{_ACTOR}."))


def _groups(rl: RLSettings) -> tuple[Requirement, ...]:
    ours = "the ratio is to the trainer's own probabilities before the step"
    metric = "acc" if rl.group_filter == "correctness" else "reward"
    rows: list[tuple[str, JsonValue, JsonValue, str]] = [
        ("algorithm.adv_estimator", "gae", "grpo", "advantages are relative to the group"),
        ("algorithm.norm_adv_by_std_in_grpo", True, True, "advantages are over the group's standard deviation"),
        ("algorithm.use_kl_in_reward", False, False, "the KL is in the loss, not in the reward"),
        ("algorithm.filter_groups.enable", False, rl.dynamic_sampling, "the setting dynamic_sampling decides"),
        ("algorithm.filter_groups.metric", "reward", metric, "the setting group_filter decides; acc is Rc"),
        ("algorithm.rollout_correction.bypass_mode", False, False, ours),
        ("algorithm.rollout_correction.rollout_is", None, None, "Eq. 2 has no importance weights beside the ratio"),
        ("algorithm.rollout_correction.rollout_rs", None, None, "Eq. 2 rejects no tokens"),
        (f"{_ROLLOUT}.n", 1, rl.group_size, "groups have group_size rollouts"),
        ("data.train_batch_size", 1024, rl.prompts_per_step, "a step has prompts_per_step prompts"),
        ("trainer.use_v1", True, True, "the old trainer takes no loop that answers with two outputs"),
        ("distillation.enabled", False, False, "there is no teacher in Eq. 2"),
    ]
    return _all(rows)


def _sampling(rl: RLSettings) -> tuple[Requirement, ...]:
    whole = "rollouts are sampled from the whole distribution, and probabilities are computed on it"
    rows: list[tuple[str, JsonValue, JsonValue, str]] = [
        ("name", None, "vllm", "the loop speaks to vLLM's servers"),
        ("temperature", 1.0, rl.temperature, "the setting temperature decides"),
        ("top_p", 1, 1, whole),
        ("top_k", -1, -1, whole),
        ("do_sample", True, True, "greedy rollouts of a group are all the same"),
        ("ignore_eos", False, False, "a turn ends where the model ends it"),
        ("calculate_log_probs", True, True, "the difference between engine and trainer is reported"),
        ("logprobs_mode", "processed_logprobs", "processed_logprobs", "they are compared at the rollouts' temperature"),
        ("val_kwargs.temperature", 0, 0, "validation is greedy"),
    ]
    return _all(rows, prefix=f"{_ROLLOUT}.")


def _scoring() -> tuple[Requirement, ...]:
    rows: list[tuple[str, JsonValue, JsonValue, str]] = [
        (f"{_ROLLOUT}.agent.default_agent_loop", "single_turn_agent", AGENT_NAME, "the judge's own loop rolls out"),
        ("reward.reward_model.enable", False, False, "the loop brings the reward with it"),
        ("reward.custom_reward_function.path", None, None, "the loop brings the reward with it"),
        ("data.filter_overlong_prompts", False, False, "the judge shortens what does not fit"),
        ("data.return_raw_chat", True, True, "the loop is handed the row"),
    ]
    return _all(rows)


def _all(rows: Sequence[tuple[str, JsonValue, JsonValue, str]], *, prefix: str = "") -> tuple[Requirement, ...]:
    return tuple(Requirement(key=prefix + key, default=was, needed=needed, why=why) for key, was, needed, why in rows)


def check_settings(rl: RLSettings, *, rule: RewardRule | None = None) -> None:
    """Look that verl can do what the settings say.

    Raises:
        ValueError: naming the setting, what was given, what would do, and why.
    """
    schedules = ("constant", "constant_with_warmup", "cosine")
    cannot = (
        ("rl.normaliser", rl.normaliser, ("token_mean",), "verl has no mean over groups"),
        ("rl.old_policy", rl.old_policy, ("trainer",), "verl bypasses its own clip with the engine's probabilities"),
        ("rl.difficulty", rl.difficulty, (False,), "verl draws the prompts"),
        ("rl.device", rl.device, ("auto",), "verl's servers need GPUs"),
        ("rl.lr_scheduler", rl.lr_scheduler, schedules, "verl knows no other"),
        ("rl.trl", rl.trl, ({},), "they are TRL's; verl.options are verl's"),
        ("reward.pair_credit", "index" if rule is None else rule.pair_credit, ("index",), "verl scores one pair at a time"),
    )  # fmt: skip
    for name, given, would_do, why in cannot:
        if given not in would_do:
            raise ValueError(f"{name}: {given!r} given, {' or '.join(map(repr, would_do))} would do with verl: {why}")


def check_options(options: Mapping[str, JsonValue], *, rl: RLSettings) -> None:
    """Look that options handed to verl leave the equation as it is.

    Raises:
        ValueError: naming the key, what was found, what is needed, and why.
    """
    for name, found in options.items():
        key = name.lstrip("+~")
        for rule in requirements(rl):
            if rule.key.startswith(f"{key}."):
                raise ValueError(f"verl.options.{name}: it holds {rule.key}, and replacing all of it is refused")
            if key == rule.key and (name.startswith("~") or not rule.accepts(found)):
                raise ValueError(f"verl.options.{name}: {found!r} found, {rule.needed!r} needed: {rule.why}")
        if "@" in key:
            raise ValueError(
                f"verl.options.{name}: config groups are not checked; options by their dotted names would do"
            )


def verl_overrides(
    rl: RLSettings, *, verl: VerlSettings, loop: LoopSettings, model: Path, folder: Path
) -> dict[str, JsonValue]:
    """Every option that verl is started with, by its dotted name; a recipe's own last.

    Args:
        rl: what is computed.
        verl: where.
        loop: how a worker judges.
        model: checkpoint to begin with; all nodes read it.
        folder: of the stage; all nodes read and write it. Holds train.parquet, validation.parquet and loop.yaml.

    Raises:
        ValueError: a setting that verl cannot follow, or an option that would change the equation.
    """
    check_settings(rl, rule=loop.reward)
    check_options(verl.options, rl=rl)
    return {
        **{rule.key: rule.needed for rule in requirements(rl)},
        **_data_options(rl, loop=loop, folder=folder),
        **_actor_options(rl, verl=verl, model=model),
        **_rollout_options(rl, verl=verl, loop=loop, folder=folder),
        **_trainer_options(rl, verl=verl, folder=folder),
        **verl.options,
    }


def _data_options(rl: RLSettings, *, loop: LoopSettings, folder: Path) -> dict[str, JsonValue]:
    return {
        "data.train_files": str(folder / "train.parquet"),
        "data.val_files": str(folder / "validation.parquet"),
        "data.max_prompt_length": loop.profile.context_tokens,
        "data.max_response_length": loop.longest_response,
        "data.seed": rl.seed,
    }


def _actor_options(rl: RLSettings, *, verl: VerlSettings, model: Path) -> dict[str, JsonValue]:
    dtype = "fp32" if rl.weights == "float32" else "bfloat16"
    return {
        "actor_rollout_ref.model.path": str(model),
        "actor_rollout_ref.model.use_remove_padding": True,
        "actor_rollout_ref.model.enable_gradient_checkpointing": rl.gradient_checkpointing,
        f"{_ACTOR}.strategy": verl.strategy,
        f"{_ACTOR}.fsdp_config.model_dtype": dtype,
        f"{_ACTOR}.use_dynamic_bsz": True,
        f"{_ACTOR}.ppo_max_token_len_per_gpu": verl.max_tokens_per_gpu,
        f"{_ACTOR}.optim.lr_scheduler_type": "cosine" if rl.lr_scheduler == "cosine" else "constant",
        f"{_ACTOR}.optim.lr_warmup_steps": rl.warmup_steps,
        f"{_ACTOR}.data_loader_seed": rl.seed,
        f"{_ACTOR}.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
    }


def _rollout_options(rl: RLSettings, *, verl: VerlSettings, loop: LoopSettings, folder: Path) -> dict[str, JsonValue]:
    return {
        f"{_ROLLOUT}.max_model_len": loop.profile.context_tokens,
        f"{_ROLLOUT}.tensor_model_parallel_size": verl.tensor_parallel,
        f"{_ROLLOUT}.gpu_memory_utilization": verl.gpu_memory,
        f"{_ROLLOUT}.seed": rl.seed,
        f"{_ROLLOUT}.agent.num_workers": verl.workers,
        f"{_ROLLOUT}.agent.agent_loop_config_path": str(folder / "loop.yaml"),
    }


def _trainer_options(rl: RLSettings, *, verl: VerlSettings, folder: Path) -> dict[str, JsonValue]:
    return {
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
    }


def hydra_arguments(options: Mapping[str, JsonValue]) -> list[str]:
    """Options as hydra's command line spells them."""
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


def verl_command(options: Mapping[str, JsonValue]) -> list[str]:
    """The process that trains."""
    return [sys.executable, "-m", "verl.trainer.main_ppo", *hydra_arguments(options)]


# Running it -------------------------------------------------------------------------------------------------------------


def check_installed() -> None:
    """Raises ValueError where verl, or what it needs to train, is not installed."""
    missing = [name for name in ("verl", "ray", "vllm", "transfer_queue") if find_spec(name) is None]
    if missing:
        raise ValueError(
            f"trainer: verl given, but {', '.join(missing)} cannot be imported here; `pip install 'tirjudge[train-verl]'` "
            "in an environment of its own would do, or trainer trl"
        )


def launch_verl(
    rl: RLSettings,
    *,
    verl: VerlSettings,
    model: Path,
    train: Sequence[TrainingItem],
    validation: Sequence[TrainingItem],
    folder: Path,
    rule: RewardRule,
    tools: Literal["auto", "off"] = "auto",
    seed: int = 0,
    stage: str = "rl",
    log: Callable[[str], None] = print,
    record: Callable[[Mapping[str, Any]], None] | None = None,
) -> Path:
    """Train with verl until it ends, and tell where the last checkpoint is, a Hugging Face folder without judge.json.

    Killed and called again with the same folder, it goes on from verl's last checkpoint.

    Args:
        rl, verl, rule: what, where, and for what reward.
        model: checkpoint to begin with, and the KL's reference.
        train, validation: items; all must know their best response.
        folder: of the stage; data, log, checkpoints and metrics go there.
        tools: `off`: text alone.
        seed: of the rollouts.
        stage: name of the stage in the metrics.
        log: told each line that verl prints.
        record: told each row of metrics, under our names.

    Raises:
        ValueError: verl is not installed, a setting that it cannot follow, or an option that would change the equation.
        VerlError: it ended with an error, or without a checkpoint.
    """
    check_installed()
    options = prepare_verl(
        rl, verl=verl, model=model, train=train, validation=validation, folder=folder, rule=rule, tools=tools, seed=seed
    )
    metrics = MetricsFile(next_metrics_path(folder), stage=stage, record=record or (lambda row: None))

    def told(line: str) -> None:
        log(line)
        metrics.read()

    env = {**os.environ, "VERL_FILE_LOGGER_PATH": str(metrics.path)}
    status = _run(verl_command(options), env=env, folder=folder, log=told)
    metrics.read()
    if status != 0:
        raise VerlError(f"verl ended with status {status}; {folder / 'verl.log'} says why")
    return last_checkpoint(folder)


def prepare_verl(
    rl: RLSettings,
    *,
    verl: VerlSettings,
    model: Path,
    train: Sequence[TrainingItem],
    validation: Sequence[TrainingItem],
    folder: Path,
    rule: RewardRule,
    tools: Literal["auto", "off"] = "auto",
    seed: int = 0,
) -> dict[str, JsonValue]:
    """Write what verl reads into the folder; returns the options to start it with. Raises ValueError as `launch_verl`."""
    folder, model = folder.resolve(), model.resolve()
    loop = LoopSettings(
        profile=load_profile(model),
        eos_token_ids=tuple(sorted(read_eos_token_ids(model))),
        reward=rule,
        tools=tools,
        max_tool_calls=rl.max_tool_calls,
        mask_observations=rl.mask_observations,
        overlong=rl.overlong,
        overlong_buffer_tokens=rl.overlong_buffer_tokens,
        seed=seed,
        sandbox_urls=verl.sandbox_urls,
        sandbox_key_file=verl.sandbox_key_file,
        sandbox_slots=verl.sandbox_slots,
    )
    options = verl_overrides(rl, verl=verl, loop=loop, model=model, folder=folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_verl_dataset(train, folder / "train.parquet")
    write_verl_dataset(validation, folder / "validation.parquet")
    loop.write(folder / "loop.yaml")
    return options


def _run(command: Sequence[str], *, env: Mapping[str, str], folder: Path, log: Callable[[str], None]) -> int:
    """Exit status; each line goes to `log` and to verl.log as it comes. An exception of ours ends the process too."""
    with (
        (folder / "verl.log").open("a", encoding="utf-8") as kept,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=dict(env)
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                kept.write(line)
                kept.flush()
                log(line.rstrip("\n"))
        except BaseException:
            process.terminate()
            raise
        return process.wait()


def last_checkpoint(folder: Path) -> Path:
    """The Hugging Face folder that verl wrote last.

    Raises:
        VerlError: there is none.
    """
    checkpoints = folder / "checkpoints"
    tracker = checkpoints / "latest_checkpointed_iteration.txt"
    if not tracker.exists():
        raise VerlError(f"{checkpoints}: verl left no checkpoint; save_every no larger than the steps would do")
    found = checkpoints / f"global_step_{tracker.read_text().strip()}" / "actor" / "huggingface"
    if not any(found.glob("*.safetensors")):
        raise VerlError(f"{found}: no weights in it; verl was told to write hf_model")
    return found


METRICS: Mapping[str, str] = {
    "critic/score/mean": "reward/total",
    "actor/kl_loss": "train/kl",
    "actor/pg_loss": "train/loss",
    "actor/grad_norm": "train/grad_norm",
    "actor/lr": "train/lr",
    "actor/pg_clipfrac": "train/clip_frac",
    "actor/entropy_loss": "train/entropy",
    "response_length/mean": "length/tokens",
    "prompt_length/mean": "length/prompt",
    "training/filter_groups/evicted_samples": "dapo/dropped",
    "timing_s/step": "perf/step_s",
    "timing_s/gen": "perf/collect_s",
}
"""verl's name -> ours, of what both mean the same by."""


def next_metrics_path(folder: Path) -> Path:
    """Where verl's file logger writes; a new file each time it is started, because it empties the one it is given."""
    number = sum(1 for _ in folder.glob("verl-*.jsonl"))
    return folder.resolve() / f"verl-{number:03}.jsonl"


class MetricsFile:
    """Follows what verl's file logger writes, and hands on each step under our names.

    Args:
        path: of the file; it may not be there yet.
        stage: name of the stage in the rows.
        record: told each row.
    """

    def __init__(self, path: Path, *, stage: str, record: Callable[[Mapping[str, Any]], None]) -> None:
        self.path = path
        self._stage = stage
        self._record = record
        self._offset = 0

    def read(self) -> None:
        """Hand on what was written since the last time, whole lines alone."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                row = metrics_row(json.loads(line), stage=self._stage)
                if row is not None:
                    self._record(row)


def metrics_row(entry: Mapping[str, Any], *, stage: str) -> dict[str, Any] | None:
    """One step of verl's under our names, without what has none; None: nothing has."""
    data = entry["data"]
    row = {ours: data[name] for name, ours in METRICS.items() if name in data}
    for name, value in data.items():
        if name.startswith(_VALIDATED[0]) and name.endswith(_VALIDATED[1]):
            row["val/acc/" + name.removeprefix(_VALIDATED[0]).removesuffix(_VALIDATED[1])] = value
    return {"stage": stage, "step": entry["step"], **row} if row else None


_VALIDATED = ("val-core/", "/acc/mean@1")
"""Around the name of what was validated: task and mode."""

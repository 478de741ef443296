"""Script for an environment with verl: runs verl's losses, configuration and agent loop worker, and prints JSON.

python verl_inside.py FOLDER
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import verl
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config

from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.judge import Judge
from tirjudge.model import bundled_checkpoint
from tirjudge.profile import load_profile
from tirjudge.tools.python import PythonTool
from tirjudge.types import Mode, Sampling
from tirjudge_training.config import parse_recipe
from tirjudge_training.dapo import dapo_loss, group_advantages
from tirjudge_training.items import TrainingItem
from tirjudge_training.settings import RLSettings
from tirjudge_training.trainers import StageJob
from tirjudge_training.trainers.verl.launch import prepare
from tirjudge_training.trainers.verl.options import hydra_arguments, requirements
from tirjudge_training.training_data import TrainingData

RL = RLSettings(group_size=4, prompts_per_step=16, temperature=2.0)
"""Settings of RL. At temperature 2, the bundled judge also writes wrong answers to the items."""

RECIPE = parse_recipe({"trainer": "verl", "rl": RL.model_dump()}, source="test")

STAGE, STEP = "rl-1", 7
"""Name of the stage and number of the training step that verl is given."""

QUESTION = "Reply in exactly 5 words."
SHORT, LONG = "Cats sleep all day long.", "Cats sleep all day long and then they eat."


def items() -> list[TrainingItem]:
    shared: dict[str, Any] = {"prompt": QUESTION, "task": "instructions", "source": "here", "verifiable": True}
    return [
        TrainingItem(id="pair", mode=Mode.PAIRWISE, responses=(SHORT, LONG), best=0, order=(1, 0), **shared),
        TrainingItem(id="point", mode=Mode.POINTWISE, responses=(LONG, SHORT), best=1, order=(0, 1), **shared),
        TrainingItem(id="list", mode=Mode.LISTWISE, responses=(LONG, SHORT, "No."), best=1, order=(2, 0, 1), **shared),
    ]


def composed(arguments: list[str]) -> Any:
    """Return verl's configuration with these command line arguments."""
    with initialize_config_dir(str(Path(str(verl.__file__)).parent / "trainer" / "config"), version_base=None):
        return compose("ppo_trainer", overrides=arguments)


def prepared(folder: Path) -> list[str]:
    job = StageJob(recipe=RECIPE, kind="rl", name=STAGE, run=folder, start=bundled_checkpoint(), folder=folder)
    return hydra_arguments(prepare(job, data=TrainingData(train=tuple(items()), held_out=tuple(items()))))


# ---------------------------------------------------------------------------------------------------------------- losses


def losses(folder: Path) -> dict[str, Any]:
    """Return loss, gradient, KL and advantages of `dapo_loss` and of verl, on one batch."""
    torch.manual_seed(0)
    groups, size, length = 3, RL.group_size, 9
    rows = groups * size
    old = -torch.rand(rows, length) * 3
    new = (old + 1.5 * torch.randn(rows, length)).requires_grad_()  # large differences, so that all clips are active
    reference = new.detach() + 0.3 * torch.randn(rows, length)  # verl caps k3 of a token at 10
    mask = (torch.rand(rows, length) < 0.7).float()
    mask[5] = 0.0  # all tokens of this rollout are masked
    rewards = torch.tensor([[0.0, 1.0, 1.0, 1.0], [0.1, 1.0, 0.0, 0.1], [1.0, 1.0, 1.0, 1.0]])
    advantages = group_advantages(rewards, eps=1e-6).flatten()
    batch = {"old": old, "new": new, "reference": reference, "mask": mask, "advantages": advantages}

    ours = dapo_loss(
        new,
        old_logprobs=old,
        reference_logprobs=reference,
        advantages=advantages,
        mask=mask,
        group_size=size,
        clip_low=RL.clip_low,
        clip_high=RL.clip_high,
        beta=RL.kl,
    )
    (ours_gradient,) = torch.autograd.grad(ours.total, new)
    as_configured = verl_loss(composed(prepared(folder)), **batch)
    (gradient,) = torch.autograd.grad(as_configured["total"], new)
    by_default = verl_loss(composed([*prepared(folder), "actor_rollout_ref.actor.clip_ratio_c=3.0"]), **batch)
    return {
        "ours": ours.total.item(),
        "verl": as_configured["total"].item(),
        "ours_kl": ours.kl.item(),
        "verl_kl": as_configured["kl"].item(),
        "gradient_difference": (gradient - ours_gradient).abs().max().item(),
        "gradient_where_masked": ours_gradient[mask == 0].abs().max().item(),
        "gradient_largest": ours_gradient.abs().max().item(),
        "with_dual_clip": by_default["total"].item(),
        **verl_advantages(rewards, mask=mask),
    }


def verl_loss(config: Any, *, old: Any, new: Any, reference: Any, mask: Any, advantages: Any) -> dict[str, Any]:
    """Compute the loss as in `verl.workers.utils.losses.ppo_loss`, on padded tensors."""
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    policy, _ = core_algos.get_policy_loss_fn(actor.policy_loss.loss_mode)(
        old_log_prob=old,
        log_prob=new,
        advantages=advantages[:, None] * mask,
        response_mask=mask,
        loss_agg_mode=actor.loss_agg_mode,
        config=actor,
    )
    divergence = core_algos.kl_penalty(new, reference, actor.kl_loss_type)
    kl = core_algos.agg_loss(divergence, mask, actor.loss_agg_mode)
    return {"total": policy + actor.kl_loss_coef * kl, "kl": kl}


def verl_advantages(rewards: Any, *, mask: Any) -> dict[str, Any]:
    at_end = torch.zeros_like(mask)
    at_end[:, -1] = rewards.flatten()
    index = np.repeat(np.arange(len(rewards)), rewards.shape[1])
    found, _ = core_algos.compute_grpo_outcome_advantage(at_end.clone(), torch.ones_like(mask), index)
    column = found[:, 0]
    return {
        "verl_advantages": column.tolist(),
        "advantages": group_advantages(rewards, eps=1e-6).flatten().tolist(),
        "advantages_trl": group_advantages(rewards).flatten().tolist(),
    }


# --------------------------------------------------------------------------------------------------------------- options


def options(folder: Path) -> dict[str, Any]:
    """Return verl's defaults of the required options, and the values that it reads from the command line."""
    plain, ours = composed([]), composed(prepared(folder))
    validate_config(ours, use_reference_policy=need_reference_policy(ours), use_critic=need_critic(ours))
    found = {one.option: OmegaConf.select(plain, one.option, throw_on_missing=False) for one in requirements(RL)}
    read = {one.option: OmegaConf.select(ours, one.option) for one in requirements(RL)}
    names = {"data.train_files", "actor_rollout_ref.actor.checkpoint.save_contents", "trainer.total_training_steps"}
    return {
        "defaults": found,
        "read": read,
        "critic": need_critic(ours),
        "reference": need_reference_policy(ours),
        "others": {name: _plain(OmegaConf.select(ours, name)) for name in names},
    }


def _plain(value: Any) -> Any:
    return OmegaConf.to_container(value) if OmegaConf.is_config(value) else value


# -------------------------------------------------------------------------------------------------------------- sessions


NUM_SESSIONS = 2
"""Number of sessions per row."""


def sessions(folder: Path) -> list[list[dict[str, Any]]]:
    """Return the outputs of each session, each with the result of `Judge.rollout` for the same request."""
    return asyncio.run(_sessions(folder))


class EmbeddedServers:
    """A replacement for verl's `LLMServerClient` that uses the embedded engine with the bundled judge."""

    def __init__(self, engine: EmbeddedEngine) -> None:
        self.engine = engine

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        assert sampling_params["include_stop_str_in_output"]
        assert sampling_params["logprobs"]
        sampling = Sampling(
            max_tokens=sampling_params["max_tokens"],
            temperature=sampling_params["temperature"],
            top_p=sampling_params["top_p"],
            seed=sampling_params["seed"],
            stop=tuple(sampling_params["stop"]),
        )
        completion = await self.engine.sample(prompt_ids, sampling=sampling, session=request_id)
        return TokenOutput(
            token_ids=list(completion.token_ids),
            log_probs=list(completion.logprobs),
            stop_reason="completed",
            extra_fields={"global_steps": STEP, "min_global_steps": STEP, "max_global_steps": STEP},
        )


async def _sessions(folder: Path) -> list[list[dict[str, Any]]]:
    from transformers import PreTrainedTokenizerFast
    from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

    from tirjudge_sandbox import SandboxPool
    from tirjudge_training.trainers.verl.agent_loop import close_tools

    checkpoint = bundled_checkpoint()
    config = composed(prepared(folder))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(checkpoint / "tokenizer.json"), eos_token="<|im_end|>", pad_token="<|im_end|>"
    )
    rows = collate_fn(list(RLHFDataset(str(folder / "train.parquet"), tokenizer, config.data)))
    engine = EmbeddedEngine.load(checkpoint)
    worker = _worker(config, tokenizer=tokenizer, client=EmbeddedServers(engine))
    found = []
    async with SandboxPool(slots=1) as pool:
        judge = Judge(engine=engine, tools=[PythonTool(pool)], profile=load_profile(checkpoint))
        for row, item in enumerate(items()):
            for number in range(NUM_SESSIONS):
                outputs = await _session(worker, {name: values[row] for name, values in rows.items()}, number=number)
                for output in outputs:
                    output["direct"] = await _direct(item, tuple(output["shown"]), number=number, judge=judge)
                found.append(outputs)
    await close_tools()
    engine.close()
    return found


def _worker(config: Any, *, tokenizer: Any, client: Any) -> Any:
    """Return verl's worker without Ray. Its code for finding, creating and running an agent loop is unchanged."""
    from verl.experimental.agent_loop import agent_loop

    class Worker(agent_loop.AgentLoopWorker):
        def __init__(self) -> None:
            self.config, self.llm_client, self.tokenizer = config, client, tokenizer
            self.processor, self.hf_model_type, self.tools = None, "qwen3", []
            self.dataset_cls, self.reward_loop_worker_handles = None, None
            for entry in OmegaConf.load(config.actor_rollout_ref.rollout.agent.agent_loop_config_path):
                agent_loop._agent_loop_registry[entry.name] = entry

        async def _agent_loop_postprocess(self, output: Any, validate: bool, **kwargs: Any) -> Any:
            outputs = output if isinstance(output, list) else [output]
            await self._compute_score(outputs, kwargs=kwargs)  # must not change the score
            return outputs

    return Worker()


async def _session(worker: Any, kwargs: dict[str, Any], *, number: int) -> list[dict[str, Any]]:
    config = worker.config.actor_rollout_ref.rollout
    params = {
        "temperature": config.temperature,
        "top_p": config.top_p,
        "top_k": config.top_k,
        "repetition_penalty": 1.0,
        "logprobs": config.calculate_log_probs,
    }
    where = {"step": STEP, "sample_index": int(kwargs["index"]), "rollout_n": number, "validate": False}
    outputs = await worker._run_agent_loop(
        params, where, trace=False, session_id=number, uid=f"u{kwargs['index']}", global_steps=STEP, **kwargs
    )
    return [_as_json(output) for output in outputs]


def _as_json(output: Any) -> dict[str, Any]:
    tensors = output.as_dict()
    return {
        "prompt_ids": output.prompt_ids,
        "ids": output.response_ids,
        "mask": output.response_mask,
        "logprobs": output.response_logprobs,
        "score": output.reward_score,
        "num_turns": output.num_turns,
        "generate_s": output.metrics.generate_sequences,
        "last_score": tensors["rm_scores"][-1].item(),
        "scores_elsewhere": tensors["rm_scores"][:-1].abs().sum().item(),
        **{key: output.extra_fields[key] for key in ("reward_extra_info", "item_id", "shown", "stop_reason")},
        "versions": [output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]],
    }


async def _direct(item: TrainingItem, shown: tuple[int, ...], *, number: int, judge: Judge) -> dict[str, Any]:
    """Return the result of `Judge.rollout` for the same request, in a different sandbox."""
    from tirjudge_training.trainers.verl.agent_loop import rollout_seed

    rollout = await judge.rollout(
        item.request(seed=rollout_seed(RECIPE.seed_of(STAGE), step=STEP, item_id=item.id), temperature=RL.temperature),
        order=shown,
        session=f"direct.{item.id}.{number}.{shown}",
        number=number,
        read_probabilities=False,
    )
    return {
        "prompt_ids": list(rollout.prompt_ids),
        "ids": list(rollout.token_ids),
        "turns": [
            [
                len(turn.completion.token_ids) - turn.completion.num_appended,
                turn.completion.num_appended + len(turn.observation_ids),
            ]
            for turn in rollout.turns
        ],
        "logprobs": list(rollout.logprobs),
        "label": rollout.label,
        "stop_reason": str(rollout.stop_reason),
        "calls": rollout.num_calls,
    }


if __name__ == "__main__":
    where = Path(sys.argv[1])
    print(json.dumps({"losses": losses(where), "options": options(where), "sessions": sessions(where)}))

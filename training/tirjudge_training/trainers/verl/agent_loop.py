"""The agent loop for verl: the judge's serving loop with verl's servers as its engine. Only verl imports this module.

Properties of verl that affect this code:

- verl scores a session, which is one of the n rollouts of a row, and copies the score of its last output to its other
  outputs. A pointwise item is one session with two outputs. So both outputs get the same reward, the lower of the two
  rewards. This is Eq. 4 with the condition that Rf and Rt hold for both outputs.
- verl takes the advantage of a session from its last output, at the first token whose loss mask is 1. So an output without
  such a token must not be last.
- If the engine or the sandbox fails, the loop raises. verl then drops and counts the session.
- verl creates a new loop for each session. So expensive objects are kept for the process.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cache
from typing import Any
from uuid import uuid4

from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
)

from tirjudge.chat_template import CHATML, ChatTemplate
from tirjudge.concurrency import gather_fail_fast
from tirjudge.engines.base import BaseEngine
from tirjudge.engines.tokenization import LocalTokenizer, find_stop
from tirjudge.errors import EngineUnavailable
from tirjudge.judge import Judge, rollout_name
from tirjudge.opening import open_functions
from tirjudge.template_options import TemplateOptions, shown_options
from tirjudge.tools.base import Tool
from tirjudge.tools.python import Sandbox, python_tools
from tirjudge.types import Completion, Rollout, Sampling
from tirjudge_training.items import TrainingItem
from tirjudge_training.rewards import RolloutReward, rewards_of
from tirjudge_training.trainers.shaping import loss_mask, shaped_reward
from tirjudge_training.trainers.verl.data import LoopSettings, item_of

Shown = tuple[int, ...]


class TirJudgeAgentLoop(AgentLoopBase):
    """One session of verl: one rollout of an item, or one rollout for each response of a pointwise item."""

    def __init__(self, *args: Any, settings: Any, **kwargs: Any) -> None:
        """`settings` are `LoopSettings`, as plain values or as a hydra config; the other arguments are passed to verl.

        Raises:
            ValueError: verl's response_length is too small for the longest rollout.
        """
        super().__init__(*args, **kwargs)
        plain = OmegaConf.to_container(settings) if OmegaConf.is_config(settings) else settings
        self.settings = LoopSettings.model_validate(plain)
        needed, given = self.settings.longest_response, self.rollout_config.response_length
        if given < needed:
            raise ValueError(
                f"actor_rollout_ref.rollout.response_length: {given} given, but a rollout may need {needed}; "
                f"set data.max_response_length={needed}"
            )

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput | list[AgentLoopOutput]:
        """Roll out one row and compute its reward.

        Raises:
            ValueError: the row contains no item.
            EngineUnavailable, SandboxUnavailable: a rollout failed, so it gets no reward.
        """
        item = item_of(kwargs["extra_info"])
        engine = VerlEngine(
            self.server_manager,
            tokenizer=_tokenizer_of(self.tokenizer, shown_options(self.settings.profile.chat_template_kwargs)),
            eos_token_ids=frozenset(self.settings.eos_token_ids),
            options={name: sampling_params[name] for name in ("top_k", "repetition_penalty")},
        )
        judge = Judge(engine=engine, tools=await _tools_of(self.settings), profile=self.settings.profile)
        request = item.request(
            seed=rollout_seed(self.settings.seed, step=int(kwargs.get("global_steps", 0)), item_id=item.id),
            temperature=float(sampling_params["temperature"]),
            tools=self.settings.tools,
            max_tool_calls=self.settings.rl.max_tool_calls,
        )
        number, session = int(kwargs.get("session_id", 0)), uuid4().hex
        rollouts = await gather_fail_fast(
            [
                judge.rollout(
                    request,
                    order=shown,
                    session=f"{session}.{rollout_name(shown, number)}",
                    number=number,
                    read_probabilities=False,
                )
                for shown in item.shown()
            ]
        )
        outputs = self._outputs(item, dict(zip(item.shown(), rollouts, strict=True)), versions=engine.versions)
        return outputs if len(outputs) > 1 else outputs[0]

    def _outputs(
        self, item: TrainingItem, rollouts: Mapping[Shown, Rollout], *, versions: Sequence[int]
    ) -> list[AgentLoopOutput]:
        rewards = rewards_of(item, {shown: [one] for shown, one in rollouts.items()}, rule=self.settings.reward)
        parts = {shown: group[0] for shown, group in rewards.items()}
        rl, max_tokens = self.settings.rl, self.settings.profile.rollout_tokens
        score = min(
            shaped_reward(parts[shown].total, sampled=one.loss_mask, settings=rl, max_tokens=max_tokens)
            for shown, one in rollouts.items()
        )
        shared = {
            "reward_extra_info": _session_metrics(parts, rollouts),
            "item_id": item.id,
            "turn_scores": [],
            "tool_rewards": [],
            "min_global_steps": min(versions, default=None),
            "max_global_steps": max(versions, default=None),
        }
        outputs = [
            AgentLoopOutput(
                prompt_ids=list(rollout.prompt_ids),
                response_ids=list(rollout.token_ids),
                response_mask=loss_mask(rollout.loss_mask, stop_reason=rollout.stop_reason, settings=rl),
                response_logprobs=list(rollout.logprobs),
                reward_score=score,
                num_turns=1 + len(rollout.turns) + rollout.num_calls,
                metrics=AgentLoopMetrics(
                    generate_sequences=sum(turn.engine_s for turn in rollout.turns),
                    tool_calls=sum(t.result.queue_s + t.result.wall_s for t in rollout.turns if t.result is not None),
                ),
                extra_fields={**shared, "shown": list(shown), "stop_reason": str(rollout.stop_reason)},
            )
            for shown, rollout in rollouts.items()
        ]
        return sorted(outputs, key=lambda output: any(output.response_mask))  # outputs with no token in the loss first


def _session_metrics(parts: Mapping[Shown, RolloutReward], rollouts: Mapping[Shown, Rollout]) -> dict[str, float]:
    """Return the metrics that verl averages and filters groups by (`acc` is Rc).

    verl fails if the names differ between sessions.
    """
    calls = [rollout.num_calls for rollout in rollouts.values()]
    return {
        "acc": min(part.correct for part in parts.values()),
        "Rf": float(all(part.format for part in parts.values())),
        "Rt": float(all(part.tool for part in parts.values())),
        "calls": sum(calls) / len(calls),
        "failed_calls": float(sum(rollout.num_failed_calls for rollout in rollouts.values())),
        "verdict": float(all(rollout.stop_reason.is_verdict for rollout in rollouts.values())),
    }


def rollout_seed(seed: int, *, step: int, item_id: str) -> int:
    """Return the seed of all rollouts of one item in one step, 0 to 2**63 - 1. A resumed run gets the same seeds."""
    digest = hashlib.sha256(f"{seed}\0{step}\0{item_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


class VerlEngine(BaseEngine):
    """An engine that generates with verl's servers.

    verl returns only token ids and log-probabilities, so this class finds the text and the stop string from the ids.

    Args:
        client: verl's `LLMServerClient`, or an object with the same `generate`.
        tokenizer: Tokenizer of the checkpoint.
        eos_token_ids: Token ids that end a turn.
        options: Additional sampling options for the servers.
    """

    def __init__(
        self, client: Any, *, tokenizer: VerlTokenizer, eos_token_ids: frozenset[int], options: Mapping[str, Any]
    ) -> None:
        self.tokenizer = tokenizer
        self.eos_token_ids = eos_token_ids
        self.versions: list[int] = []  # training steps of the sampled weights, if the servers report them
        self._client = client
        self._options = options

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        """Generate one turn.

        Raises:
            ValueError: `sampling` restricts tokens or requests probabilities of tokens, which verl's servers do not
                support.
            EngineUnavailable: the request was aborted, or the response has no ids or no log-probabilities.
        """
        if sampling.allowed_token_ids is not None or sampling.logprob_token_ids:
            raise ValueError("verl's servers support neither forced verdicts nor probabilities of labels")
        output = await self._client.generate(
            request_id=session, prompt_ids=list(token_ids), sampling_params=self._params(sampling)
        )
        if output.stop_reason in ("aborted", "abort") or not output.token_ids:
            raise EngineUnavailable(f"verl's server ended {session} with {output.stop_reason!r}")
        if output.log_probs is None or len(output.log_probs) != len(output.token_ids):
            raise EngineUnavailable("verl's server returned no log-probabilities; set calculate_log_probs=True")
        steps = (output.extra_fields.get(name) for name in ("min_global_steps", "max_global_steps"))
        self.versions += [int(step) for step in steps if step is not None]
        return self._completion(output, sampling=sampling)

    def _params(self, sampling: Sampling) -> dict[str, Any]:
        params = {
            **self._options,
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "stop": list(sampling.stop),
            "include_stop_str_in_output": True,
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
            "logprobs": True,
        }
        return params if sampling.seed is None else {**params, "seed": sampling.seed}

    def _completion(self, output: Any, *, sampling: Sampling) -> Completion:
        ids = tuple(output.token_ids)
        ended = ids[-1] in self.eos_token_ids
        written = b"".join(self.tokenizer.bytes_of.get(i, b"") for i in (ids[:-1] if ended else ids))
        stop = find_stop(written, stop=sampling.stop, num_seen=0)
        completion = Completion(
            text=(written if stop is None else written[: stop.end]).decode(errors="replace"),
            token_ids=ids,
            logprobs=tuple(output.log_probs),
            finish_reason="stop" if ended or stop is not None else "length",
            stop=None if stop is None else stop.text,
            num_cached=output.extra_fields.get("num_cached_tokens") or 0,
        )
        return self.tokenizer.fit_ids_to_text(completion)


class VerlTokenizer(LocalTokenizer):
    """The tokenizer loaded by verl, with the chat template of the checkpoint.

    Args:
        tokenizer: Fast tokenizer of transformers. If it has no chat template, ChatML is used, as in serving.
        chat_template_kwargs: Options of the chat template.
    """

    def __init__(self, tokenizer: Any, *, chat_template_kwargs: TemplateOptions) -> None:
        template = ChatTemplate.of_tokenizer(tokenizer, kwargs=chat_template_kwargs)
        super().__init__(
            tokenizer.backend_tokenizer, template=template or ChatTemplate(CHATML, kwargs=chat_template_kwargs)
        )


# Objects kept for the process -------------------------------------------------------------------------------------------


@cache  # decoding a large vocabulary to bytes takes a second
def _tokenizer_of(tokenizer: Any, options: str) -> VerlTokenizer:
    """Return the tokenizer with options of its chat template, given as JSON, which can be cached."""
    return VerlTokenizer(tokenizer, chat_template_kwargs=json.loads(options))


_TOOLS: dict[str, asyncio.Task[list[Tool]]] = {}
_OPEN = AsyncExitStack()


async def _tools_of(settings: LoopSettings) -> list[Tool]:
    """Return the tools of this process; none if tools are off.

    The first call opens the sandbox and the functions. They are closed when the process ends, or by `close_tools`.
    """
    if settings.tools == "off" or settings.rl.max_tool_calls == 0:
        return []
    key = settings.model_dump_json(include={"verl", "allow_unsafe", "functions"})
    if key not in _TOOLS:
        _TOOLS[key] = asyncio.create_task(_open(settings))
    try:
        return await asyncio.shield(_TOOLS[key])
    except Exception:
        _TOOLS.pop(key, None)  # the next session retries
        raise


async def _open(settings: LoopSettings) -> list[Tool]:
    functions = await _OPEN.enter_async_context(open_functions(settings.functions))
    return python_tools(await _open_sandbox(settings), functions=functions)


async def _open_sandbox(settings: LoopSettings) -> Sandbox:
    from tirjudge_sandbox import SandboxPool
    from tirjudge_sandbox.remote import RemoteSandbox

    verl = settings.verl
    if not verl.sandbox_urls:
        return await _OPEN.enter_async_context(
            SandboxPool(slots=verl.sandbox_slots, allow_unsafe=settings.allow_unsafe)
        )
    key = None if verl.sandbox_key_file is None else verl.sandbox_key_file.read_text(encoding="utf-8").strip()
    return await _OPEN.enter_async_context(RemoteSandbox(verl.sandbox_urls, key=key))


async def close_tools() -> None:
    """Close all sandboxes and functions that were opened in this process."""
    _TOOLS.clear()
    await _OPEN.aclose()

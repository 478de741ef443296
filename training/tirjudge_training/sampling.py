"""Samples trajectories for supervised learning: each item is rolled out G times, by the trained judge or by a teacher.

This module keeps all trajectories; `rejection` selects trajectories. The reward is always TIR-Judge's, independent of the
reward of RL. If a teacher has a different tokenizer, its trajectories are encoded with the student's tokenizer: each piece
of text is encoded once, and outputs of programs stay masked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Literal

from tirjudge.concurrency import map_concurrently
from tirjudge.engines.base import BaseEngine
from tirjudge.engines.checkpoint import read_eos_token_ids
from tirjudge.engines.tokenization import LocalTokenizer
from tirjudge.errors import EngineUnavailable, PromptTooLong, SandboxUnavailable, TirjudgeError
from tirjudge.formats.blocks import OUTPUT_FENCE, observation_text
from tirjudge.judge import Judge
from tirjudge.profile import resolved_profile
from tirjudge.tools.base import Tool
from tirjudge.types import Completion, Mode, Rollout, Sampling
from tirjudge_training.groups import roll_groups
from tirjudge_training.items import TrainingItem
from tirjudge_training.rewards import RewardRule, rewards_of
from tirjudge_training.training_samples import TrainingSample, trajectory_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingPlan:
    """Settings for sampling trajectories."""

    seed: int
    """Seed of the rollouts."""
    num_rollouts: int
    """Number of rollouts per prompt, G."""
    temperature: float
    tools: Literal["auto", "off"]
    """Whether the prompt offers tools."""
    max_tool_calls: int
    """Maximum number of tool calls per rollout."""
    both_orders: bool
    """Whether responses are also shown in the opposite order."""
    rule: RewardRule
    """Reward rule. Its kind and its pair credit are replaced by TIR-Judge's."""
    concurrency: int
    """Maximum number of items that are rolled out concurrently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledTrajectories:
    """Trajectories of several items."""

    trajectories: tuple[TrainingSample, ...]
    """All trajectories, in the order of the items."""
    num_dropped: int
    """Number of items that failed: the engine or the sandbox did not work, or the prompt was too long."""


async def sample_items(
    judge: Judge,
    items: Sequence[TrainingItem],
    *,
    plan: SamplingPlan,
    student: Student | None = None,
    on_item: Callable[[], None] | None = None,
) -> SampledTrajectories:
    """Roll out items with a known best response.

    Args:
        judge: Judge with a real sandbox.
        items: Items to roll out.
        plan: Settings of the sampling.
        student: Student whose token ids a teacher's trajectories get. None: the judge's ids are kept.
        on_item: Called after each item.

    Raises:
        EngineUnavailable, SandboxUnavailable: more than half of the items failed.
    """
    failed: list[TirjudgeError] = []

    async def sampled(item: TrainingItem) -> list[TrainingSample]:
        found: list[TrainingSample] = []
        try:
            found = await _sample_item(judge, item, plan=plan, student=student)
        except (EngineUnavailable, SandboxUnavailable, PromptTooLong) as error:
            failed.append(error)
            if 2 * len(failed) > len(items):
                raise
        if on_item is not None:
            on_item()
        return found

    done = await map_concurrently(map(sampled, items), num_at_once=plan.concurrency)
    return SampledTrajectories(trajectories=tuple(chain.from_iterable(done)), num_dropped=len(failed))


async def _sample_item(
    judge: Judge, item: TrainingItem, *, plan: SamplingPlan, student: Student | None
) -> list[TrainingSample]:
    """Return all rollouts of one item, in one or both orders of its responses."""
    both = plan.both_orders and item.mode is not Mode.POINTWISE
    request = item.request(
        seed=int.from_bytes(hashlib.sha256(f"sample/{plan.seed}/{item.id}".encode()).digest()[:7], "big"),
        temperature=plan.temperature,
        tools=plan.tools,
        max_tool_calls=plan.max_tool_calls,
    )
    rule = plan.rule.model_copy(update={"kind": "tir", "pair_credit": "index"})
    found = []
    for turned in (item, replace(item, order=item.order[::-1])) if both else (item,):
        numbers = range(plan.num_rollouts)
        rolled = await roll_groups(judge, request, shown=turned.shown(), numbers=numbers, session=f"sample.{item.id}")
        rollouts = {shown: [timed.rollout for timed in group] for shown, group in rolled.items()}
        rewards = rewards_of(turned, rollouts, rule=rule)
        for shown, group in rolled.items():
            for timed, reward in zip(group, rewards[shown], strict=True):
                sample = trajectory_of(turned, timed, shown=shown, weights_version=0, reward=reward)
                if student is not None:
                    prompt_ids = await student.judge.encode(request, order=shown)
                    sample = in_words_of(student, sample, rollout=timed.rollout, prompt_ids=prompt_ids)
                found.append(sample)
    return found


# Teachers with a different tokenizer ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Student:
    """The model to train. Its tokenizer encodes the trajectories of a teacher. It does not generate."""

    judge: Judge
    """Encodes prompts as in training and serving."""
    tokenizer: LocalTokenizer
    end_of_turn: int
    """Token id that ends a turn."""

    @classmethod
    def load(cls, checkpoint: Path, *, tools: Sequence[Tool]) -> Student:
        """Load the tokenizer and the profile of a checkpoint folder. `tools`: tools that prompts offer."""
        profile = resolved_profile(checkpoint)
        tokenizer = LocalTokenizer.load(checkpoint, chat_template_kwargs=profile.chat_template_kwargs)
        judge = Judge(engine=_TokenizerOnlyEngine(tokenizer), tools=tools, profile=profile)
        return cls(judge=judge, tokenizer=tokenizer, end_of_turn=min(read_eos_token_ids(checkpoint)))


class _TokenizerOnlyEngine(BaseEngine):
    """An engine that provides a tokenizer and cannot generate."""

    eos_token_ids: frozenset[int] = frozenset()

    def __init__(self, tokenizer: LocalTokenizer) -> None:
        self.tokenizer = tokenizer

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        raise EngineUnavailable("only the tokenizer of this checkpoint was loaded")


def in_words_of(
    student: Student, trajectory: TrainingSample, *, rollout: Rollout, prompt_ids: Sequence[int]
) -> TrainingSample:
    """Encode a teacher's trajectory with the student's tokenizer. The loss mask has model text and no program output.

    The fence that opens a program output counts as model text, because the student must learn to write it. If the
    teacher ended a turn, the student's end-of-turn token is appended. Log-probabilities are unknown and set to 0.

    Args:
        student: Student with its tokenizer.
        trajectory: The teacher's trajectory.
        rollout: The rollout that the trajectory was made from.
        prompt_ids: Prompt encoded with the student's tokenizer.
    """
    ids: list[int] = []
    mask: list[int] = []
    for turn in rollout.turns:
        completion = turn.completion
        runs = turn.result is not None
        text = completion.text
        if runs and completion.stop != OUTPUT_FENCE:
            text = f"{text}\n{OUTPUT_FENCE}"
        written = student.tokenizer.encode_now(text)
        if not runs and completion.stop is None and completion.finish_reason == "stop":
            written.append(student.end_of_turn)
        shown = student.tokenizer.encode_now(observation_text(turn.output or "")) if runs else []
        ids += [*written, *shown]
        mask += [1] * len(written) + [0] * len(shown)
    return replace(
        trajectory,
        prompt_ids=tuple(prompt_ids),
        ids=tuple(ids),
        mask=tuple(mask),
        logprobs=(0.0,) * len(ids),
    )

"""Trajectories to learn from: every item rolled out G times, by the judge that learns or by a teacher.

Nothing is filtered here (`rejection` does that), and the reward is TIR-Judge's, whatever RL is rewarded with. A teacher with
another tokenizer is written down in the student's: each piece of its text is encoded once, and what its programs printed
stays masked.
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
from tirjudge.formats.tirjudge_1 import OUTPUT_FENCE, observation_text
from tirjudge.judge import Judge
from tirjudge.profile import load_profile
from tirjudge.types import Completion, Mode, Rollout, Sampling
from tirjudge_training.groups import roll_groups
from tirjudge_training.items import TrainingItem
from tirjudge_training.rewards import RewardRule, rewards_of
from tirjudge_training.training_samples import TrainingSample, trajectory_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingPlan:
    """How items are sampled."""

    seed: int
    num_rollouts: int
    """Of one prompt, G."""
    temperature: float
    tools: Literal["auto", "off"]
    max_tool_calls: int
    both_orders: bool
    """Whether what is compared is shown in the opposite order too."""
    rule: RewardRule
    concurrency: int
    """Items side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledTrajectories:
    """What came of some items."""

    trajectories: tuple[TrainingSample, ...]
    """In the order of the items."""
    num_dropped: int
    """Items that we failed to sample: the engine or the sandbox did not work, or the prompt was too long."""


async def sample_items(
    judge: Judge,
    items: Sequence[TrainingItem],
    *,
    plan: SamplingPlan,
    student: Student | None = None,
    on_item: Callable[[], None] | None = None,
) -> SampledTrajectories:
    """Roll out items whose right response is known.

    Args:
        judge: with a real sandbox.
        items: in order.
        plan: how.
        student: whose ids a teacher's trajectories get; None: the judge's own are kept.
        on_item: called after each.

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
    """All rollouts of one item, in one order or in two."""
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


# Teachers with a tokenizer of their own ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Student:
    """Whose ids trajectories are written in. It reads; it does not generate."""

    judge: Judge
    """Encodes prompts as they will be shown when it is trained and served."""
    tokenizer: LocalTokenizer
    end_of_turn: int
    """Id that ends a turn."""

    @classmethod
    def load(cls, checkpoint: Path) -> Student:
        """The student that starts from a checkpoint folder."""
        tokenizer = LocalTokenizer.load(checkpoint)
        judge = Judge(engine=_Reader(tokenizer), tools=(), profile=load_profile(checkpoint))
        return cls(judge=judge, tokenizer=tokenizer, end_of_turn=min(read_eos_token_ids(checkpoint)))


class _Reader(BaseEngine):
    """An engine whose tokenizer alone is used."""

    eos_token_ids: frozenset[int] = frozenset()

    def __init__(self, tokenizer: LocalTokenizer) -> None:
        self.tokenizer = tokenizer

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        raise EngineUnavailable("only the tokenizer of this checkpoint was loaded")


def in_words_of(
    student: Student, trajectory: TrainingSample, *, rollout: Rollout, prompt_ids: Sequence[int]
) -> TrainingSample:
    """A teacher's trajectory in the student's ids: text of the model carries loss, outputs of programs do not.

    The fence that opens an output counts as the model's, who has to learn to write it; a turn that the teacher ended by
    itself gets the student's end of turn. Log-probabilities are not known, and are 0.
    """
    ids: list[int] = []
    mask: list[int] = []
    for turn in rollout.turns:
        said = turn.completion
        runs = turn.result is not None
        text = said.text if not runs or said.stop == OUTPUT_FENCE else f"{said.text}\n{OUTPUT_FENCE}"
        written = student.tokenizer.encode_now(text)
        if not runs and said.stop is None and said.finish_reason == "stop":
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

"""Collects groups of rollouts for one training step, using the serving loop.

Items are drawn in a fixed order, and all rollouts of all draws run concurrently. If a group has no advantage (all right
or all wrong), another item is drawn immediately, up to a cap. The step keeps the first informative groups in the order
of the draws, not in the order of completion. So the result does not depend on the speed of single rollouts.

If the engine or the sandbox fails, the whole draw is dropped and gets no reward.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tirjudge.concurrency import fail_fast_group
from tirjudge.errors import EngineUnavailable, PromptTooLong, SandboxUnavailable, TirjudgeError
from tirjudge.judge import Judge
from tirjudge.types import Mode, Rollout
from tirjudge_training.difficulty import EpochOrder, ItemOrder
from tirjudge_training.groups import Collected, RolloutGroup, SampledItem, roll_groups, stats_of
from tirjudge_training.items import TrainingItem
from tirjudge_training.policies import Policy
from tirjudge_training.rewards import (
    PseudoLabel,
    RewardRule,
    RolloutReward,
    answers_of,
    consistent_with,
    correctness,
    pseudo_rewards,
    rewards_of,
    verified_of,
    verified_vote,
)
from tirjudge_training.training_samples import TimedRollout, trajectory_of

__all__ = ["Collected", "Collector", "PseudoLabels", "RolloutGroup", "SampledItem"]

GROUP_SIZE = 8
"""Default number of rollouts per prompt, G (TIR-Judge, 5.1)."""

MAX_ROLLOUTS = 64
"""Default maximum number of concurrent rollouts."""

MAX_DRAWS = 6.0
"""Default maximum number of rolled-out groups, as a multiple of the groups needed."""


class PseudoLabels(BaseModel):
    """T3RL: the rollouts vote on the label. The labels of the items are not used."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    weight: float = Field(default=4.0, gt=0)
    """w, weight of an answer that executed evidence supports. 1: plain majority vote."""
    min_verified_mass: float = Field(default=0.5, ge=0, le=1)
    """Minimum share of the weight from verified answers; a group below it is not trained on. 0: accept every vote."""
    swap: bool = False
    """Whether a verified answer must also be the majority answer when the responses are shown in the opposite order. This
    needs a second group of rollouts (pairwise and listwise)."""


class Collector:
    """Collects groups of rollouts.

    Args:
        policy: Policy that is trained.
        items: Items to draw from.
        rule: Reward rule. None: the default rule.
        group_size: Number of rollouts per prompt, G.
        seed: Seed of all random draws.
        temperature: Sampling temperature of the rollouts.
        tools: As in a request. `off`: text-only RL.
        max_tool_calls: Maximum number of tool calls per rollout.
        max_rollouts: Maximum number of concurrent rollouts.
        max_draws: Maximum number of rolled-out groups, as a multiple of the groups needed. After that, uninformative
            groups fill the step. Failed draws do not count.
        keep: Criterion for an informative group: `correct` (Rc differs, TIR-Judge, Eq. 2) or `reward` (total rewards
            differ).
        order: Order of the items. None: `EpochOrder`.
        pseudo: Settings of the vote on labels. None: the labels of the items are used.

    Raises:
        ValueError: a group has fewer than 2 rollouts, no items were given, or items have no label and `pseudo` is None.
    """

    def __init__(
        self,
        policy: Policy,
        items: Sequence[TrainingItem],
        *,
        rule: RewardRule | None = None,
        group_size: int = GROUP_SIZE,
        seed: int = 0,
        temperature: float = 1.0,
        tools: Literal["auto", "on", "off"] = "auto",
        max_tool_calls: int = 3,
        max_rollouts: int = MAX_ROLLOUTS,
        max_draws: float = MAX_DRAWS,
        keep: Literal["correct", "reward"] = "correct",
        order: ItemOrder | None = None,
        pseudo: PseudoLabels | None = None,
    ) -> None:
        if group_size < 2:
            raise ValueError(
                f"group_size: must be at least 2, because rollouts of a group are compared; got {group_size}"
            )
        if max_draws < 1:
            raise ValueError(f"max_draws: expected at least 1, got {max_draws}")
        unknown = [item.id for item in items if item.best is None]
        if unknown and pseudo is None:
            raise ValueError(f'items: "{unknown[0]}" has no label (best); items without labels need pseudo-labels')
        self.policy = policy
        self.items = items
        self.rule = rule or RewardRule()
        self.group_size = group_size
        self.seed = seed
        self.temperature = temperature
        self.tools: Literal["auto", "on", "off"] = tools
        self.max_tool_calls = max_tool_calls
        self.max_rollouts = max_rollouts
        self.max_draws = max_draws
        self.keep: Literal["correct", "reward"] = keep
        self.order = order or EpochOrder(items, seed=seed)
        self.pseudo = pseudo

    async def collect(self, *, step: int, num_groups: int, rank: int = 0) -> Collected:
        """Collect the groups of one step. The result is determined by the weights, seed, step, rank and state.

        Args:
            step: Optimizer step, starting at 0.
            num_groups: Number of groups to return.
            rank: Rank of this process.

        Raises:
            EngineUnavailable, SandboxUnavailable, PromptTooLong: more than half of the draws failed; the last error is
                raised.
            ValueError: the rollouts need tools, and the judge has no sandbox.
        """
        judge = self.policy.judge
        if judge.sandbox is None and self.tools != "off" and self.max_tool_calls > 0:
            raise ValueError(f'tools: "{self.tools}" given, but the policy has no sandbox; set tools to "off"')
        started = perf_counter()
        collection = _Collection(collector=self, judge=judge, step=step, rank=rank, num_groups=num_groups)
        draws = await collection.run()
        groups, num_informative = _kept(draws, num_groups=num_groups, keep=self.keep)
        self._learn(collection.drawn, draws)
        elapsed_s = perf_counter() - started
        stats = stats_of(draws, groups=groups, num_informative=num_informative, elapsed_s=elapsed_s)
        return Collected(groups=groups, draws=tuple(draws), stats=stats)

    def state(self) -> dict[str, Any]:
        """Return the state for a resumed run, as JSON values. Save it with the checkpoint of the previous step."""
        return self.order.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a state.

        Raises:
            ValueError: the state belongs to a different order or different items.
        """
        self.order.restore(state)

    def _learn(self, drawn: Sequence[int], draws: Sequence[SampledItem]) -> None:
        for index, draw in zip(drawn, draws, strict=True):
            if draw.groups and not draw.refused:
                rewards = [t.reward.correct for group in draw.groups for t in group.trajectories]
                correct = sum(rewards) / len(draw.groups)
                self.order.learn(index, correct=correct, wrong=self.group_size - correct)


@dataclass(slots=True, kw_only=True)
class _Collection:
    """The collection of one step."""

    collector: Collector
    judge: Judge
    step: int
    rank: int
    num_groups: int
    drawn: list[int] = field(default_factory=list)
    """Index of the item of each draw, in order."""
    done: dict[int, SampledItem] = field(default_factory=dict)
    """Number of a finished draw -> its result."""
    slots: asyncio.Semaphore = field(init=False)
    stream: Iterator[int] = field(init=False)

    def __post_init__(self) -> None:
        self.slots = asyncio.Semaphore(self.collector.max_rollouts)
        self.stream = self.collector.order.stream(step=self.step, rank=self.rank, num_groups=self.num_groups)

    async def run(self) -> list[SampledItem]:
        """Return all draws, in order."""
        async with fail_fast_group() as tasks:
            self._launch(tasks)
        return [self.done[number] for number in range(len(self.drawn))]

    def _launch(self, tasks: asyncio.TaskGroup) -> None:
        """Draw items until enough groups are informative or pending, or the cap is reached."""
        items, cap = self.collector.items, self.collector.max_draws * self.num_groups
        spent = sum(items[index].num_groups for index in self.drawn)
        lost = sum(
            items[self.drawn[number]].num_groups - len(_informative(draw, keep=self.collector.keep))
            for number, draw in self.done.items()
        )
        failed = sum(
            items[self.drawn[number]].num_groups for number, draw in self.done.items() if draw.error is not None
        )
        while spent - lost < self.num_groups and spent - failed < cap:
            index, number = next(self.stream), len(self.drawn)
            repeat = Counter(self.drawn)[index]
            self.drawn.append(index)
            spent += items[index].num_groups
            tasks.create_task(self._draw(number, items[index], repeat=repeat, tasks=tasks))

    async def _draw(self, number: int, item: TrainingItem, *, repeat: int, tasks: asyncio.TaskGroup) -> None:
        try:
            self.done[number] = await self._roll_out(item, repeat=repeat, name=f"{self.step}.{self.rank}.{number}")
        except (EngineUnavailable, SandboxUnavailable, PromptTooLong) as error:
            self.done[number] = SampledItem(item=item, error=error)
            self._raise_if_most_failed(error)
        self._launch(tasks)

    def _raise_if_most_failed(self, error: TirjudgeError) -> None:
        """Raise the error if more than half of the draws failed: the others are not a representative sample."""
        num_failed = sum(draw.error is not None for draw in self.done.values())
        if 2 * num_failed > len(self.drawn):
            error.add_note(f"{num_failed} of the {len(self.drawn)} draws of step {self.step} failed; last error above")
            raise error

    async def _roll_out(self, item: TrainingItem, *, repeat: int, name: str) -> SampledItem:
        """Roll out one draw and compute its rewards. A repeated draw of an item gets different rollouts."""
        collector = self.collector
        request = item.request(
            seed=request_seed(collector.seed, self.step, item.id, rank=self.rank),
            temperature=collector.temperature,
            tools=collector.tools,
            max_tool_calls=collector.max_tool_calls,
        )
        is_swapped = collector.pseudo is not None and collector.pseudo.swap and item.mode is not Mode.POINTWISE
        swapped = (item.order[::-1],) if is_swapped else ()
        numbers = range(repeat * collector.group_size, (repeat + 1) * collector.group_size)
        rolled = await roll_groups(
            self.judge, request, shown=(*item.shown(), *swapped), numbers=numbers, session=name, slots=self.slots
        )
        return self._rewarded(item, rolled)

    def _rewarded(self, item: TrainingItem, rolled: Mapping[tuple[int, ...], Sequence[TimedRollout]]) -> SampledItem:
        rollouts = {shown: [timed.rollout for timed in group] for shown, group in rolled.items()}
        own = {shown: rollouts[shown] for shown in item.shown()}
        vote, rewards = self._rewards(item, own, rollouts)
        version = self.collector.policy.version
        groups = []
        for shown in own:
            earned = [_NOTHING] * len(own[shown]) if rewards is None else rewards[shown]
            samples = [
                trajectory_of(item, timed, shown=shown, weights_version=version, reward=reward)
                for timed, reward in zip(rolled[shown], earned, strict=True)
            ]
            groups.append(RolloutGroup(trajectories=tuple(samples)))
        right = {} if item.best is None else correctness(item, own, pair_credit=self.collector.rule.pair_credit)
        accuracy = tuple(credit for group in right.values() for credit in group)
        return SampledItem(item=item, groups=tuple(groups), accuracy=accuracy, vote=vote, refused=rewards is None)

    def _rewards(
        self,
        item: TrainingItem,
        own: Mapping[tuple[int, ...], Sequence[Rollout]],
        rollouts: Mapping[tuple[int, ...], Sequence[Rollout]],
    ) -> tuple[PseudoLabel | None, dict[tuple[int, ...], list[RolloutReward]] | None]:
        """Return the vote (None: labels are known) and the rewards (None: the vote is not trusted)."""
        pseudo = self.collector.pseudo
        if pseudo is None:
            return None, rewards_of(item, own, rule=self.collector.rule)
        answers, verified = answers_of(item, own), verified_of(item, own)
        for shown in rollouts.keys() - own.keys():
            agreed = consistent_with(answers, answers_of(item, {shown: rollouts[shown]}))
            verified = [v and a for v, a in zip(verified, agreed, strict=True)]
        vote = verified_vote(answers, verified, weight=pseudo.weight)
        if not vote.is_trusted(min_verified_mass=pseudo.min_verified_mass):
            return vote, None
        return vote, pseudo_rewards(item, own, vote=vote)


_NOTHING = RolloutReward(total=0.0, correct=0.0, format=False, tool=False)
"""Reward of the rollouts in a group without a trusted label."""


def _informative(draw: SampledItem, *, keep: Literal["correct", "reward"]) -> list[RolloutGroup]:
    return [group for group in draw.groups if (group.informative if keep == "correct" else group.rewards_differ)]


def _kept(
    draws: Sequence[SampledItem], *, num_groups: int, keep: Literal["correct", "reward"]
) -> tuple[tuple[RolloutGroup, ...], int]:
    """Return the first `num_groups` groups, informative ones first, and the number of all informative groups."""
    informative = [group for draw in draws for group in _informative(draw, keep=keep)]
    chosen = {id(group) for group in informative}
    others = [replace(group, fills=True) for draw in draws for group in draw.groups if id(group) not in chosen]
    return tuple([*informative, *others][:num_groups]), len(informative)


def request_seed(seed: int, step: int, item_id: str, *, rank: int = 0) -> int:
    """Return the seed of an item's request in a step, below 2^56.

    The seed is a hash of the arguments. Two ranks that draw the same item get different rollouts.
    """
    of_rank = f"/{rank}" if rank else ""
    return int.from_bytes(hashlib.sha256(f"{seed}/{step}/{item_id}{of_rank}".encode()).digest()[:7], "big")

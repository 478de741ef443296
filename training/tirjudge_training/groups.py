"""Groups of rollouts: generate the rollouts of a group, keep the groups of each sampled item, and compute metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from statistics import fmean
from time import perf_counter

from tirjudge.concurrency import gather_fail_fast
from tirjudge.judge import Judge, rollout_name
from tirjudge.types import JudgeRequest
from tirjudge_training.items import TrainingItem
from tirjudge_training.rewards import PseudoLabel
from tirjudge_training.training_samples import TimedRollout, TrainingSample


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutGroup:
    """The rollouts of one prompt, in the order of their numbers."""

    trajectories: tuple[TrainingSample, ...]
    fills: bool = False
    """Whether the group only fills up the step. Its advantages are zero, so it does not change the weights."""

    @property
    def informative(self) -> bool:
        """Whether the group has non-zero advantages: 0 < sum of Rc < G (TIR-Judge, Eq. 2); with cross credit, Rc
        differs."""
        return len({trajectory.reward.correct for trajectory in self.trajectories}) > 1

    @property
    def rewards_differ(self) -> bool:
        """Whether the total rewards differ. They may differ even if all rollouts are correct (0.1 and 1)."""
        return len({trajectory.reward.total for trajectory in self.trajectories}) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledItem:
    """One item that was drawn and rolled out."""

    item: TrainingItem
    groups: tuple[RolloutGroup, ...] = ()
    """One group for each prompt of the item. Empty: the item was dropped."""
    accuracy: tuple[float, ...] = ()
    """Rc of each rollout against the known label. Empty: no label is known, or the item was dropped."""
    vote: PseudoLabel | None = None
    """Pseudo-label of the item. None: the known label is used, or the item was dropped."""
    refused: bool = False
    """Whether the vote was rejected as unreliable. All rewards of the item are then 0."""
    error: Exception | None = None
    """Reason why the item was dropped. None: it was not dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The groups that one step trains on, with all sampled items and metrics."""

    groups: tuple[RolloutGroup, ...]
    """Groups to train on, exactly the requested number."""
    draws: tuple[SampledItem, ...]
    """All sampled items, in the order of the draws."""
    stats: Mapping[str, float] = field(default_factory=dict)
    """Name of a metric -> its value, over all rollouts before filtering; see `stats_of`."""


async def roll_groups(
    judge: Judge,
    request: JudgeRequest,
    *,
    shown: Sequence[tuple[int, ...]],
    numbers: Sequence[int],
    session: str,
    slots: asyncio.Semaphore | None = None,
) -> dict[tuple[int, ...], list[TimedRollout]]:
    """Roll out one group per prompt of a request, all rollouts concurrently.

    Args:
        judge: Judge of the policy.
        request: Request of an item.
        shown: For each prompt, the indices of the responses in the order shown.
        numbers: Numbers of the rollouts in each group. Each number gives another rollout.
        session: Name of the request for the engine.
        slots: Limit on concurrent rollouts. None: no limit.

    Returns:
        For each prompt, given by its entry of `shown`, the rollouts in the order of `numbers`.
    """

    async def roll(order: tuple[int, ...], number: int) -> TimedRollout:
        async with slots or nullcontext():
            started = perf_counter()
            name = f"{session}.{rollout_name(order, number)}"
            rollout = await judge.rollout(request, order=order, session=name, number=number, read_probabilities=False)
            return TimedRollout(rollout=rollout, number=number, wall_s=perf_counter() - started)

    rolled = await gather_fail_fast([roll(order, number) for order in shown for number in numbers])
    return {order: rolled[place * len(numbers) :][: len(numbers)] for place, order in enumerate(shown)}


def stats_of(
    draws: Sequence[SampledItem], *, groups: Sequence[RolloutGroup], num_informative: int, elapsed_s: float
) -> dict[str, float]:
    """Compute the metrics of one collection. A metric without data is omitted.

    - `judge/acc/TASK/MODE`, `reward/*`, `tool/*` and `length/*` are means over all rollouts before filtering.
    - `tool/calls` is per rollout, `tool/error_rate` per call.
    - `tool/use_rate` is the share of rollouts with a call, on verifiable items.
    - `tool/no_tool_ok` is the share of rollouts without a call, on items that are not verifiable.
    - `dapo/draws` and `dapo/dropped` count items. The other metrics of `dapo/*` count groups.
    - `perf/sandbox_share` is the share of the rollout time spent on running programs and waiting for the sandbox.

    Args:
        draws: All sampled items.
        groups: Groups that the step trains on.
        num_informative: Number of all rolled-out groups that are worth training on.
        elapsed_s: Duration of the collection in seconds.
    """
    seen = [group for draw in draws for group in draw.groups]
    every = [trajectory for group in seen for trajectory in group.trajectories]
    num_tokens = sum(sum(trajectory.mask) for trajectory in every)
    stats = {
        "dapo/draws": float(len(draws)),
        "dapo/dropped": float(sum(draw.error is not None for draw in draws)),
        "dapo/filled": float(max(0, len(groups) - num_informative)),
        "perf/collect_s": elapsed_s,
        "perf/tok_s": num_tokens / elapsed_s,
        "perf/traj_per_s": len(every) / elapsed_s,
    }
    if seen:
        stats["dapo/kept_frac"] = num_informative / len(seen)
    return {**stats, **_accuracies(draws), **_votes(draws), **_means(every)}


def _accuracies(draws: Iterable[SampledItem]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for draw in draws:
        found.setdefault(f"judge/acc/{draw.item.task}/{draw.item.mode}", []).extend(draw.accuracy)
    return {key: fmean(credits) for key, credits in sorted(found.items()) if credits}


def _votes(draws: Iterable[SampledItem]) -> dict[str, float]:
    voted = [draw for draw in draws if draw.vote is not None]
    if not voted:
        return {}
    known = [draw for draw in voted if not draw.refused and draw.item.best is not None]
    stats = {
        "ttrl/refused_frac": fmean(draw.refused for draw in voted),
        "ttrl/verified_mass": fmean(draw.vote.verified_mass for draw in voted if draw.vote is not None),
    }
    if known:
        stats["ttrl/label_acc"] = fmean(draw.vote is not None and draw.vote.label == draw.item.best for draw in known)
    return stats


def _means(every: Sequence[TrainingSample]) -> dict[str, float]:
    calls = sum(trajectory.num_calls for trajectory in every)
    rolled_s = sum(trajectory.wall_s for trajectory in every)
    means: dict[str, tuple[Sequence[TrainingSample], Callable[[TrainingSample], float]]] = {
        "reward/total": (every, lambda t: t.reward.total),
        "reward/Rc": (every, lambda t: t.reward.correct),
        "reward/Rf": (every, lambda t: t.reward.format),
        "reward/Rt": (every, lambda t: t.reward.tool),
        "tool/calls": (every, lambda t: t.num_calls),
        "tool/use_rate": ([t for t in every if t.verifiable], lambda t: t.num_calls > 0),
        "tool/no_tool_ok": ([t for t in every if not t.verifiable], lambda t: t.num_calls == 0),
        "length/tokens": (every, lambda t: len(t.ids)),
        "length/prompt": (every, lambda t: len(t.prompt_ids)),
    }
    stats = {key: fmean(map(of, some)) for key, (some, of) in means.items() if some}
    if calls:
        stats["tool/error_rate"] = sum(trajectory.num_failed_calls for trajectory in every) / calls
    if rolled_s:
        stats["perf/sandbox_share"] = sum(trajectory.sandbox_s for trajectory in every) / rolled_s
    return stats

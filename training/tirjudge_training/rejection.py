"""Which sampled trajectories are learned from: only those that earned everything, one for each prompt or so.

`paper` keeps of each prompt the one with the fewest programs, then the shortest. In a task with two answers a guess is right
every other time and is always shorter than a check, so that this teaches guessing. `robust` asks of the strategy, program
or none, that it is worth learning before it looks at the length.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tirjudge_training.training_samples import TrainingSample

Preset = Literal["paper", "robust"]

Prompt = tuple[str, tuple[int, ...]]
"""Item, and what of it was shown in which order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionResult:
    """What is learned from, and what became of the rest."""

    trajectories: tuple[TrainingSample, ...]
    """In the order of their prompts' first appearance."""
    num_sampled: int
    num_perfect: int
    """With R = 1."""
    num_of_losing_strategy: int
    """Perfect, and left out because their strategy was not worth learning; 0 with `paper`."""
    num_surplus: int
    """Perfect, and left out because their prompt had a better one."""


def keep_best(trajectories: Iterable[TrainingSample], *, preset: Preset, per_prompt: int = 1) -> RejectionResult:
    """The trajectories to learn from (TIR-Judge, Sec. 4.3: R = 1, then fewest calls, then shortest).

    Ties of calls and length are broken by the number of the rollout, the lower one first. With `robust` a perfect trajectory
    stays if its strategy wins in its task, or if all samples of that strategy on its item were right in two orders at
    least; of one prompt the winning strategy comes first.

    Args:
        trajectories: all samples, those that failed too: they say how good a strategy is.
        preset: `paper` or `robust`.
        per_prompt: most that are kept of one prompt.

    Raises:
        ValueError: `per_prompt` is less than 1.
    """
    if per_prompt < 1:
        raise ValueError(f"per_prompt: {per_prompt} given, at least 1 is needed")
    sampled = list(trajectories)
    winners = winning_strategies(sampled) if preset == "robust" else {}
    sound = sound_in_both_orders(sampled) if preset == "robust" else frozenset()
    by_prompt: dict[Prompt, list[TrainingSample]] = defaultdict(list)
    num_perfect = num_losing = 0
    for trajectory in sampled:
        candidates = by_prompt[trajectory.item_id, trajectory.shown]
        if not is_perfect(trajectory):
            continue
        num_perfect += 1
        wins = with_tool(trajectory) in winners.get(trajectory.task, (True, False))
        if wins or (trajectory.item_id, with_tool(trajectory)) in sound:
            candidates.append(trajectory)
        else:
            num_losing += 1

    def rank(trajectory: TrainingSample) -> tuple[bool, int, int, int]:
        loses = with_tool(trajectory) not in winners.get(trajectory.task, (True, False))
        return loses, trajectory.num_calls, len(trajectory.ids), trajectory.number

    kept = [trajectory for found in by_prompt.values() for trajectory in sorted(found, key=rank)[:per_prompt]]
    return RejectionResult(
        trajectories=tuple(kept),
        num_sampled=len(sampled),
        num_perfect=num_perfect,
        num_of_losing_strategy=num_losing,
        num_surplus=num_perfect - num_losing - len(kept),
    )


def is_perfect(trajectory: TrainingSample) -> bool:
    """Whether R = 1 by TIR-Judge's rule: right, in the form that was asked for, and every program ran."""
    return trajectory.reward.total == 1.0


def with_tool(trajectory: TrainingSample) -> bool:
    """The strategy: whether it wrote a program."""
    return trajectory.num_calls > 0


def winning_strategies(trajectories: Sequence[TrainingSample]) -> Mapping[str, tuple[bool, ...]]:
    """Task -> the strategies (`with_tool`) that are best in it; both if they are equal.

    A strategy is as good as (right + 1) / (tried + 2), its mean Rc with one right and one wrong sample added, so that one
    that was tried once does not win by luck. One that was never tried does not win.
    """
    earned: dict[str, dict[bool, list[float]]] = defaultdict(lambda: defaultdict(list))
    for trajectory in trajectories:
        earned[trajectory.task][with_tool(trajectory)].append(trajectory.reward.correct)
    winners = {}
    for task, by_strategy in earned.items():
        worth = {strategy: (sum(credits) + 1) / (len(credits) + 2) for strategy, credits in by_strategy.items()}
        winners[task] = tuple(strategy for strategy in (True, False) if worth.get(strategy) == max(worth.values()))
    return winners


def sound_in_both_orders(trajectories: Sequence[TrainingSample]) -> frozenset[tuple[str, bool]]:
    """(item, strategy) of which every sample was right, in two orders of the same responses at least.

    A response shown alone (pointwise) has no other order, and is never among them.
    """
    results: dict[tuple[str, bool], dict[tuple[int, ...], bool]] = defaultdict(dict)
    for trajectory in trajectories:
        orders = results[trajectory.item_id, with_tool(trajectory)]
        orders[trajectory.shown] = orders.get(trajectory.shown, True) and trajectory.reward.correct == 1.0
    return frozenset(
        key for key, orders in results.items() if all(orders.values()) and sum(len(shown) > 1 for shown in orders) > 1
    )

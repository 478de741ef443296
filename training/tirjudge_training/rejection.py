"""Rejection sampling: selects the trajectories to learn from, usually one perfect trajectory per prompt.

The preset `paper` keeps the trajectory with the fewest programs for each prompt, then the shortest. In a task with two
answers, a guess is right half of the time and always shorter than a check, so this preset teaches guessing. The preset
`robust` first checks that the strategy (with or without a program) is worth learning, and then compares lengths.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tirjudge_training.training_samples import TrainingSample

Preset = Literal["paper", "robust"]

Prompt = tuple[str, tuple[int, ...]]
"""Item id, and the indices of the responses in the order shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionResult:
    """The kept trajectories, and counts of the others."""

    trajectories: tuple[TrainingSample, ...]
    """Trajectories to learn from, in the order of the first appearance of their prompts."""
    num_sampled: int
    """Number of all trajectories."""
    num_perfect: int
    """Number of trajectories with R = 1."""
    num_of_losing_strategy: int
    """Number of perfect trajectories dropped because their strategy was not worth learning. 0 with `paper`."""
    num_surplus: int
    """Number of perfect trajectories dropped because their prompt had a better one."""


def keep_best(trajectories: Iterable[TrainingSample], *, preset: Preset, per_prompt: int = 1) -> RejectionResult:
    """Select the trajectories to learn from (TIR-Judge, Sec. 4.3: R = 1, then fewest calls, then shortest).

    Ties in calls and length are broken by the number of the rollout, lower first. With `robust`, a perfect trajectory
    is a candidate if its strategy wins in its task, or if all samples of its strategy on its item were right in at
    least two orders of the responses. Among the candidates of one prompt, those with the winning strategy come first.

    Args:
        trajectories: All samples, including the failed ones, which show how good a strategy is.
        preset: `paper` or `robust`.
        per_prompt: Maximum number of trajectories to keep per prompt.

    Raises:
        ValueError: `per_prompt` is less than 1.
    """
    if per_prompt < 1:
        raise ValueError(f"per_prompt: expected at least 1, got {per_prompt}")
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
    """Whether R = 1 by TIR-Judge's rule: correct, in the required format, and all programs succeeded."""
    return trajectory.reward.total == 1.0


def with_tool(trajectory: TrainingSample) -> bool:
    """Return the strategy of a trajectory: whether the model wrote a program."""
    return trajectory.num_calls > 0


def winning_strategies(trajectories: Sequence[TrainingSample]) -> Mapping[str, tuple[bool, ...]]:
    """Return task -> the best strategies for this task (values of `with_tool`); both strategies if they are equal.

    The value of a strategy is (right + 1) / (tried + 2), the mean of Rc with one right and one wrong sample added. So a
    strategy that was tried only once does not win by luck. A strategy that was never tried does not win.
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
    """Return the pairs (item, strategy) whose samples were all right, in at least two orders of the responses.

    Pointwise prompts show one response and have no second order, so they are never included.
    """
    results: dict[tuple[str, bool], dict[tuple[int, ...], bool]] = defaultdict(dict)
    for trajectory in trajectories:
        orders = results[trajectory.item_id, with_tool(trajectory)]
        orders[trajectory.shown] = orders.get(trajectory.shown, True) and trajectory.reward.correct == 1.0
    return frozenset(
        key for key, orders in results.items() if all(orders.values()) and sum(len(shown) > 1 for shown in orders) > 1
    )

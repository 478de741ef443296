"""Rejection sampling, on cases that are small enough to check manually."""

import pytest

from tirjudge.types import Mode, StopReason
from tirjudge_training.rejection import keep_best, sound_in_both_orders, winning_strategies
from tirjudge_training.rewards import RolloutReward
from tirjudge_training.training_samples import TrainingSample


def trajectory(
    item: str, number: int, *, right: bool, calls: int, length: int = 5, task: str = "math", shown: tuple[int, ...] = (0, 1),
    reward: float | None = None,
) -> TrainingSample:  # fmt: skip
    total = float(right) if reward is None else reward
    return TrainingSample(
        item_id=item, source="made-up", task=task, mode=Mode.PAIRWISE, shown=shown, number=number, weights_version=0,
        prompt_ids=(1,), ids=(7,) * length, mask=(1,) * length, logprobs=(0.0,) * length, label="A",
        stop_reason=StopReason.VERDICT, num_calls=calls, num_failed_calls=0, verifiable=True, sandbox_s=0.0, wall_s=0.0,
        reward=RolloutReward(total=total, correct=float(right), format=total == 1.0, tool=True),
    )  # fmt: skip


def names(trajectories: tuple[TrainingSample, ...]) -> list[str]:
    return [f"{one.item_id}{one.number}" for one in trajectories]


def test_only_trajectories_with_full_reward_are_kept() -> None:
    samples = [
        trajectory("a", 0, right=False, calls=0),
        trajectory("a", 1, right=True, calls=1, reward=0.1),  # right, with a wrong format
        trajectory("b", 0, right=True, calls=1),
    ]
    kept = keep_best(samples, preset="paper")
    assert names(kept.trajectories) == ["b0"]
    assert (kept.num_sampled, kept.num_perfect, kept.num_surplus) == (3, 1, 0)


def test_paper_keeps_fewest_calls_then_shortest_then_first() -> None:
    samples = [
        trajectory("a", 0, right=True, calls=2, length=3),
        trajectory("a", 1, right=True, calls=1, length=9),
        trajectory("a", 2, right=True, calls=1, length=8),
        trajectory("a", 3, right=True, calls=1, length=8),
    ]
    kept = keep_best(samples, preset="paper")
    assert names(kept.trajectories) == ["a2"]
    assert kept.num_surplus == 3
    assert names(keep_best(samples, preset="paper", per_prompt=2).trajectories) == ["a2", "a3"]


def lucky_guesses() -> list[TrainingSample]:
    """Guesses are right in 2 of 4 samples, programs in 4 of 4. Prompt a has both strategies, b only guesses, c only
    programs."""
    return [
        trajectory("a", 0, right=True, calls=0),
        trajectory("a", 1, right=False, calls=0),
        trajectory("a", 2, right=True, calls=1, length=50),
        trajectory("a", 3, right=True, calls=1, length=60),
        trajectory("b", 0, right=True, calls=0),
        trajectory("b", 1, right=False, calls=0),
        trajectory("c", 0, right=True, calls=1),
        trajectory("c", 1, right=True, calls=1),
    ]


def test_paper_keeps_lucky_guesses() -> None:
    assert names(keep_best(lucky_guesses(), preset="paper").trajectories) == ["a0", "b0", "c0"]


def test_robust_keeps_the_strategy_that_wins_in_the_task() -> None:
    # programs (4 + 1) / (4 + 2) = .83, guesses (2 + 1) / (4 + 2) = .5
    kept = keep_best(lucky_guesses(), preset="robust")
    assert names(kept.trajectories) == ["a2", "c0"]
    assert (kept.num_perfect, kept.num_of_losing_strategy, kept.num_surplus) == (6, 2, 2)


def test_each_task_has_a_separate_winner() -> None:
    talk = [
        trajectory("t", 0, right=True, calls=0, task="conduct"),
        trajectory("t", 1, right=False, calls=1, task="conduct"),
    ]
    assert winning_strategies([*lucky_guesses(), *talk]) == {"math": (True,), "conduct": (False,)}


def test_strategy_tried_once_does_not_win_by_luck() -> None:
    # one guess, right: (1 + 1) / 3 = .67; ten programs, nine right: 10 / 12 = .83
    samples = [trajectory("a", 0, right=True, calls=0)]
    samples += [trajectory("b", number, right=number > 0, calls=1) for number in range(10)]
    assert winning_strategies(samples) == {"math": (True,)}


def test_equal_strategies_both_win() -> None:
    samples = [trajectory("a", 0, right=True, calls=0), trajectory("a", 1, right=True, calls=1)]
    assert winning_strategies(samples) == {"math": (True, False)}
    assert names(keep_best(samples, preset="robust").trajectories) == ["a0"]


def test_trajectory_right_in_both_orders_is_kept_despite_a_losing_strategy() -> None:
    one_way = [trajectory("d", number, right=True, calls=0) for number in range(2)]
    other_way = [trajectory("d", number, right=True, calls=0, shown=(1, 0)) for number in range(2)]
    wrong = [trajectory("e", number, right=False, calls=0) for number in range(6)]
    samples = [*lucky_guesses(), *one_way, *other_way, *wrong]
    assert winning_strategies(samples)["math"] == (True,)
    assert sound_in_both_orders(samples) == {("d", False)}
    kept = keep_best(samples, preset="robust").trajectories
    assert [(one.item_id, one.number, one.shown) for one in kept] == [
        ("a", 2, (0, 1)), ("c", 0, (0, 1)), ("d", 0, (0, 1)), ("d", 0, (1, 0)),
    ]  # fmt: skip


def test_one_wrong_sample_is_not_right_in_both_orders() -> None:
    samples = [
        trajectory("d", 0, right=True, calls=0),
        trajectory("d", 1, right=False, calls=0),
        trajectory("d", 0, right=True, calls=0, shown=(1, 0)),
    ]
    assert sound_in_both_orders(samples) == frozenset()


def test_pointwise_prompts_have_no_second_order() -> None:
    samples = [trajectory("p", 0, right=True, calls=0, shown=(index,)) for index in range(2)]
    assert sound_in_both_orders(samples) == frozenset()


def test_per_prompt_below_one_is_rejected() -> None:
    with pytest.raises(ValueError, match="per_prompt: expected at least 1, got 0"):
        keep_best([], preset="paper", per_prompt=0)

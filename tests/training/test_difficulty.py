"""Item orders: each item once per epoch, or first the items whose rollouts probably have mixed results."""

import json
from collections import Counter
from itertools import islice

import pytest

from tirjudge.types import Mode
from tirjudge_training.difficulty import DifficultyOrder, EpochOrder, ItemOrder
from tirjudge_training.items import TrainingItem


def items(num: int, *, mode: Mode = Mode.PAIRWISE) -> list[TrainingItem]:
    return [
        TrainingItem(
            id=f"{mode}-{n}",
            mode=mode,
            prompt=str(n),
            responses=("a", "b"),
            best=0,
            task="t",
            source="s",
            verifiable=True,
            order=(0, 1),
        )
        for n in range(num)
    ]


def drawn(order: ItemOrder, num: int, *, step: int = 0, rank: int = 0, num_groups: int = 4) -> list[int]:
    return list(islice(order.stream(step=step, rank=rank, num_groups=num_groups), num))


def test_each_epoch_has_every_item_once_in_a_new_order() -> None:
    order = EpochOrder(items(12), seed=1)
    epochs = [[index for step in range(3 * e, 3 * e + 3) for index in drawn(order, 4, step=step)] for e in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(12))
    assert epochs[0] != epochs[1]
    assert epochs[0] != sorted(epochs[0])


def test_ranks_share_an_epoch() -> None:
    order = EpochOrder(items(12), seed=1, num_ranks=3)
    assert sorted(index for rank in range(3) for index in drawn(order, 4, rank=rank)) == list(range(12))


def test_step_at_the_end_of_an_epoch_continues_with_the_next_epoch() -> None:
    order = EpochOrder(items(6), seed=1)
    seen = Counter(index for step in range(3) for index in order.scheduled(step=step, rank=0, num_groups=4))
    assert seen == dict.fromkeys(range(6), 2)  # 3 steps of 4 are two epochs of 6; step 1 has two items of each epoch
    assert all(len(set(drawn(order, 4, step=step))) == 4 for step in range(3)), "no step draws an item twice"


def test_pointwise_items_count_as_two_groups() -> None:
    both = items(4, mode=Mode.POINTWISE) + items(4)
    order = EpochOrder(both, seed=3)  # 4 * 2 + 4 = 12 groups per epoch
    seen = [index for step in range(3) for index in order.scheduled(step=step, rank=0, num_groups=4)]
    assert sorted(seen) == list(range(8))


def test_items_of_the_step_come_before_items_of_other_steps() -> None:
    order = EpochOrder(items(10), seed=1)
    stream = drawn(order, 30, num_groups=4)
    assert sorted(stream[:10]) == list(range(10))
    assert sorted(stream[10:20]) == list(range(10))
    assert stream == drawn(EpochOrder(items(10), seed=1), 30, num_groups=4)
    assert stream != drawn(EpochOrder(items(10), seed=2), 30, num_groups=4)


def test_posterior_matches_manual_values() -> None:
    order = DifficultyOrder(items(2), seed=0, group_size=8, discount=0.5)
    order.learn(0, correct=6, wrong=2)
    assert order.posterior(0) == (7.0, 3.0)  # 1 + .5 * 0 + 6, 1 + .5 * 0 + 2
    order.learn(0, correct=8, wrong=0)
    assert order.posterior(0) == (12.0, 2.0)  # 1 + .5 * 6 + 8, 1 + .5 * 2 + 0
    assert order.posterior(1) == (1.0, 1.0)


def test_items_with_uniform_results_are_drawn_last() -> None:
    order = DifficultyOrder(items(30), seed=0, group_size=8)
    for index in range(30):
        correct = {0: 8, 1: 4, 2: 0}[index % 3]
        for _ in range(5):
            order.learn(index, correct=correct, wrong=8 - correct)
    assert {index % 3 for index in drawn(order, 10)} == {1}


def test_draws_depend_only_on_seed_step_rank_and_state() -> None:
    def fresh(seed: int = 0) -> DifficultyOrder:
        return DifficultyOrder(items(20), seed=seed, group_size=4, num_ranks=2)

    assert drawn(fresh(), 10) == drawn(fresh(), 10)
    assert drawn(fresh(), 10) != drawn(fresh(), 10, step=1)
    assert drawn(fresh(), 10) != drawn(fresh(seed=1), 10)
    assert {index % 2 for index in drawn(fresh(), 10, rank=1)} == {1}
    assert sorted(drawn(fresh(), 10, rank=0)) == list(range(0, 20, 2))

    taught = fresh()
    taught.learn(4, correct=1, wrong=3)
    resumed = fresh()
    resumed.restore(json.loads(json.dumps(taught.state())))
    assert resumed.state() == taught.state() == {"kind": "difficulty", "posteriors": {"pairwise-4": [2.0, 4.0]}}
    assert drawn(resumed, 30, step=7) == drawn(taught, 30, step=7)


def test_state_of_a_different_order_or_different_items_is_rejected() -> None:
    order = DifficultyOrder(items(2), seed=0, group_size=4)
    with pytest.raises(ValueError, match='"epoch" given, but "difficulty" is configured'):
        order.restore(EpochOrder(items(2), seed=0).state())
    with pytest.raises(ValueError, match='unknown item "gone"'):
        order.restore({"kind": "difficulty", "posteriors": {"gone": [1, 2]}})
    with pytest.raises(ValueError, match="2 given for 3 ranks"):
        DifficultyOrder(items(2), seed=0, group_size=4, num_ranks=3)
    with pytest.raises(ValueError, match="items: expected at least one, got none"):
        EpochOrder([], seed=0)

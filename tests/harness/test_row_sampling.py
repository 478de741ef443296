from __future__ import annotations

from collections import Counter

import pytest

from tirjudge_harness.examples import Example, example
from tirjudge_harness.items import InputError
from tirjudge_harness.row_sampling import Shard, sample


def examples(sizes: dict[str, int]) -> list[Example]:
    return [
        example(id=f"{subset}{number}", prompt="p", responses=("a", "b"), correct=(0,), subset=subset)
        for subset, size in sizes.items()
        for number in range(size)
    ]


def ids(chosen: list[Example]) -> list[str]:
    return [one.outline.id for one in chosen]


def test_each_subset_has_its_proportional_share() -> None:
    """A sample of 10 has 6 of the subset with 60 %, 3 of the subset with 30 %, and 1 of the subset with 10 %."""
    chosen = sample(examples({"a": 60, "b": 30, "c": 10}), size=10, seed=0)
    assert Counter(one.outline.subset for one in chosen) == {"a": 6, "b": 3, "c": 1}


def test_the_largest_remainders_get_the_rest() -> None:
    """A sample of 4 from subsets of 3, 3 and 1 has the shares 12/7, 12/7 and 4/7, whose whole parts are 1, 1 and 0. The
    two subsets with the largest remainder, 5/7, get one more example each."""
    chosen = sample(examples({"a": 3, "b": 3, "c": 1}), size=4, seed=0)
    assert Counter(one.outline.subset for one in chosen) == {"a": 2, "b": 2}


def test_a_sample_depends_on_the_seed_and_not_on_the_order() -> None:
    every = examples({"a": 50, "b": 50})
    chosen = ids(sample(every, size=20, seed=0))
    assert chosen == [id for id in ids(every) if id in chosen]
    assert sorted(ids(sample(every[::-1], size=20, seed=0))) == sorted(chosen)
    assert sorted(ids(sample(every, size=20, seed=1))) != sorted(chosen)


def test_a_sample_of_full_size_has_all_examples() -> None:
    every = examples({"a": 3})
    assert sample(every, size=3, seed=0) == every
    assert sample(every, size=99, seed=0) == every


def test_every_example_is_in_one_shard() -> None:
    every = examples({"a": 200})
    shards = [Shard(number=number, of=4) for number in (1, 2, 3, 4)]
    held = [[shard.holds(one.outline) for shard in shards] for one in every]
    assert all(sum(row) == 1 for row in held)
    assert all(sum(column) > 20 for column in zip(*held, strict=True))


def test_examples_of_one_prompt_are_in_one_shard() -> None:
    pairs = [
        example(id=str(n), prompt="p", responses=("a",), correct=(), subset="s", cluster=str(n // 5)) for n in range(50)
    ]
    held = [Shard(number=1, of=2).holds(one.outline) for one in pairs]
    assert all(len(set(held[first : first + 5])) == 1 for first in range(0, 50, 5))
    assert len(set(held)) == 2


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "a/b", "1/0", "-1/2", "1/2/3", ""])
def test_invalid_shards_are_rejected(text: str) -> None:
    with pytest.raises(InputError, match=r"2/4 for the second of four"):
        Shard.parse(text)


def test_a_shard_has_a_round_trip_text_form() -> None:
    assert str(Shard.parse("2/4")) == "2/4"

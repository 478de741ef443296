"""Groups of rollouts that are compared when they are complete."""

from __future__ import annotations

import asyncio

import pytest

from tirjudge.errors import DeadlineExceeded, EngineUnavailable
from tirjudge_server.dialects.gathering import Gathering
from tirjudge_web.errors import QueueFull, Refused

K = (None, "k")


class Comparing:
    """A comparison that returns the square of each value."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []

    async def __call__(self, values: list[int]) -> list[int]:
        self.groups.append(values)
        return [value * value for value in values]


def gathering(**options: float) -> Gathering[int, int]:
    return Gathering(**({"size": 2, "wait_s": 60.0} | options))  # type: ignore[arg-type]


async def test_each_member_gets_its_result_and_group_is_compared_once() -> None:
    groups, compare = gathering(), Comparing()
    pair = (groups.result(K, value, name=str(value), compare=compare) for value in (3, 5))
    assert await asyncio.gather(*pair) == [9, 25]
    assert compare.groups == [[3, 5]]
    assert groups.num_open == 0


async def test_retry_of_member_is_not_counted_twice() -> None:
    groups, compare = gathering(), Comparing()
    first = asyncio.create_task(groups.result(K, 3, name="a", compare=compare))
    retry = asyncio.create_task(groups.result(K, 3, name="a", compare=compare))
    await asyncio.sleep(0)
    assert not first.done()
    assert await groups.result(K, 5, name="b", compare=compare) == 25
    assert (await first, await retry) == (9, 9)


async def test_finished_group_returns_kept_result_and_new_value_starts_new_group() -> None:
    groups, compare = gathering(), Comparing()
    await asyncio.gather(*(groups.result(K, value, name=str(value), compare=compare) for value in (3, 5)))
    assert await groups.result(K, 3, name="3", compare=compare) == 9
    assert len(compare.groups) == 1
    await asyncio.gather(*(groups.result(K, value, name=str(value), compare=compare) for value in (7, 8)))
    assert compare.groups[1] == [7, 8]


async def test_member_that_disconnects_stays_in_group() -> None:
    groups, compare = gathering(), Comparing()
    gone = asyncio.create_task(groups.result(K, 3, name="a", compare=compare))
    await asyncio.sleep(0)
    gone.cancel()
    assert await groups.result(K, 5, name="b", compare=compare) == 25


async def test_different_value_for_same_member_is_a_conflict() -> None:
    groups, compare = gathering(), Comparing()
    first = asyncio.create_task(groups.result(K, 3, name="a", compare=compare))
    await asyncio.sleep(0)
    with pytest.raises(Refused) as conflict:
        await groups.result(K, 4, name="a", compare=compare)
    assert conflict.value.status == 409
    first.cancel()


async def test_incomplete_group_expires() -> None:
    groups, compare = gathering(wait_s=0.02), Comparing()
    with pytest.raises(DeadlineExceeded, match="1 of 2"):
        await groups.result(K, 3, name="a", compare=compare)
    assert groups.num_open == 0
    assert compare.groups == []


async def test_number_of_open_groups_is_bounded() -> None:
    groups, compare = gathering(max_open=1), Comparing()
    first = asyncio.create_task(groups.result(K, 3, name="a", compare=compare))
    await asyncio.sleep(0)
    with pytest.raises(QueueFull):
        await groups.result((None, "other"), 3, name="a", compare=compare)
    first.cancel()


async def test_number_of_kept_results_is_bounded() -> None:
    groups, compare = gathering(size=1, max_kept=2), Comparing()
    for value in range(4):
        await groups.result((None, str(value)), value, name="a", compare=compare)
    await groups.result((None, "3"), 3, name="a", compare=compare)
    assert len(compare.groups) == 4
    await groups.result((None, "0"), 0, name="a", compare=compare)
    assert len(compare.groups) == 5


async def test_failed_comparison_fails_for_all_members() -> None:
    async def broken(values: list[int]) -> list[int]:
        raise EngineUnavailable("down")

    groups = gathering()
    pair = (groups.result(K, value, name=str(value), compare=broken) for value in (3, 5))
    results = await asyncio.gather(*pair, return_exceptions=True)
    assert [type(result) for result in results] == [EngineUnavailable, EngineUnavailable]


async def test_two_callers_with_one_key_have_separate_groups() -> None:
    groups, compare = gathering(), Comparing()
    works = [
        groups.result((caller, "k"), value, name=str(value), compare=compare)
        for caller, value in (("alice", 3), ("bob", 5), ("alice", 7), ("bob", 9))
    ]
    assert await asyncio.gather(*works) == [9, 25, 49, 81]
    assert compare.groups == [[3, 7], [5, 9]]


async def test_open_group_limit_is_per_caller() -> None:
    groups, compare = gathering(max_open=1), Comparing()
    waiting = [
        asyncio.create_task(groups.result((caller, "k"), 3, name="a", compare=compare)) for caller in ("alice", "bob")
    ]
    await asyncio.sleep(0)
    assert groups.num_open == 2
    with pytest.raises(QueueFull):
        await groups.result(("alice", "other"), 3, name="a", compare=compare)
    for task in waiting:
        task.cancel()


async def test_characters_in_open_groups_of_a_caller_are_bounded() -> None:
    groups, compare = gathering(max_open_chars=3), Comparing()
    waiting = asyncio.create_task(groups.result(("alice", "k"), 11, name="a", compare=compare))
    await asyncio.sleep(0)
    with pytest.raises(QueueFull, match="2 characters"):
        await groups.result(("alice", "other"), 22, name="a", compare=compare)
    assert await groups.result(("alice", "k"), 5, name="b", compare=compare) == 25
    assert await waiting == 121

"""The lock around the weights: judgments hold it shared, a weight swap holds it exclusively."""

from __future__ import annotations

import asyncio

import pytest

from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.errors import DeadlineExceeded
from tirjudge.judge import Judge
from tirjudge.types import JudgeRequest, Mode
from tirjudge.weights_lock import WeightsLock

REQUEST = JudgeRequest(mode=Mode.PAIRWISE, prompt="p", responses=["a", "b"], tools="off")


async def test_closing_drains_shared_holders_and_blocks_new_ones() -> None:
    lock, events, may_leave = WeightsLock(version="one"), list[str](), asyncio.Event()

    async def judge(name: str) -> None:
        async with lock.enter() as version:
            events.append(f"{name} with {version}")
            if name == "early":
                await may_leave.wait()
                events.append("early ended")

    async def swap() -> None:
        async with lock.closed():
            assert lock.num_inside == 0
            lock.version = "two"
            events.append("swapped")

    early = asyncio.create_task(judge("early"))
    await asyncio.sleep(0)
    swapping = asyncio.create_task(swap())
    await asyncio.sleep(0)
    late = asyncio.create_task(judge("late"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert events == ["early with one"]
    may_leave.set()
    await asyncio.gather(early, swapping, late)
    assert events == ["early with one", "early ended", "swapped", "late with two"]


async def test_a_failed_or_cancelled_exclusive_section_reopens_the_lock() -> None:
    lock = WeightsLock()
    with pytest.raises(ValueError, match="broken"):
        async with lock.closed():
            raise ValueError("broken")
    async with lock.enter():
        waiting = asyncio.create_task(hold_exclusively(lock))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.wait_for(hold_shared(lock), 30)


async def hold_exclusively(lock: WeightsLock) -> None:
    async with lock.closed():
        pass


async def hold_shared(lock: WeightsLock) -> None:
    async with lock.enter():
        pass


async def test_exclusive_sections_run_one_after_the_other() -> None:
    lock, running = WeightsLock(), list[int]()

    async def swap() -> None:
        async with lock.closed():
            running.append(1)
            await asyncio.sleep(0)
            assert len(running) == 1
            running.pop()

    await asyncio.gather(swap(), swap(), swap())
    assert lock.num_inside == 0


async def test_a_judgment_has_the_version_of_its_weights() -> None:
    engine = ScriptedEngine(["<preference>A</preference>"] * 3, label_probs={"A": 0.9, "B": 0.1})
    judge = Judge(engine=engine, tools=(), weights=WeightsLock(version="0123"))
    assert (await judge.judge(REQUEST)).model_version == "0123"
    async with judge.weights.closed():
        judge.weights.version = "4567"
    assert (await judge.judge(REQUEST)).model_version == "4567"
    unknown = Judge(engine=engine)
    assert (await unknown.judge(REQUEST)).model_version is None


async def test_single_rollouts_wait_for_the_lock() -> None:
    engine = ScriptedEngine(["<preference>A</preference>"], label_probs={"A": 0.9, "B": 0.1})
    judge = Judge(engine=engine)
    async with judge.weights.closed():
        rolling = asyncio.create_task(judge.rollout(REQUEST, order=(0, 1), session="s"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not engine.calls
    assert (await rolling).label == "A"


async def test_a_judgment_that_waits_past_its_deadline_raises_deadline_exceeded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tirjudge.deadline.LATE_S", 0.0)
    judge = Judge(engine=ScriptedEngine([]), tools=())
    async with judge.weights.closed():
        with pytest.raises(DeadlineExceeded):
            await judge.judge(REQUEST.model_copy(update={"deadline_s": 0.05}))

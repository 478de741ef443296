"""The gate around judgments: nobody is inside while weights are exchanged, and nobody is turned away."""

from __future__ import annotations

import asyncio

import pytest

from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.errors import DeadlineExceeded
from tirjudge.judge import Judge
from tirjudge.types import JudgeRequest, Mode
from tirjudge.weights_lock import WeightsLock

REQUEST = JudgeRequest(mode=Mode.PAIRWISE, prompt="p", responses=["a", "b"], tools="off")


async def test_those_inside_end_and_those_that_come_wait() -> None:
    gate, told, may_leave = WeightsLock(version="one"), list[str](), asyncio.Event()

    async def visit(name: str) -> None:
        async with gate.enter() as version:
            told.append(f"{name} by {version}")
            if name == "early":
                await may_leave.wait()
                told.append("early left")

    async def exchange() -> None:
        async with gate.closed():
            assert gate.num_inside == 0
            gate.version = "two"
            told.append("exchanged")

    early = asyncio.create_task(visit("early"))
    await asyncio.sleep(0)
    closing = asyncio.create_task(exchange())
    await asyncio.sleep(0)
    late = asyncio.create_task(visit("late"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert told == ["early by one"]
    may_leave.set()
    await asyncio.gather(early, closing, late)
    assert told == ["early by one", "early left", "exchanged", "late by two"]


async def test_an_exchange_that_fails_or_is_cancelled_opens_the_gate_again() -> None:
    gate = WeightsLock()
    with pytest.raises(ValueError, match="broken"):
        async with gate.closed():
            raise ValueError("broken")
    async with gate.enter():
        waiting = asyncio.create_task(closed_once(gate))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.wait_for(closed_or_inside(gate), 5)


async def closed_once(gate: WeightsLock) -> None:
    async with gate.closed():
        pass


async def closed_or_inside(gate: WeightsLock) -> None:
    async with gate.enter():
        pass


async def test_two_exchanges_come_one_after_the_other() -> None:
    gate, running = WeightsLock(), list[int]()

    async def exchange() -> None:
        async with gate.closed():
            running.append(1)
            await asyncio.sleep(0)
            assert len(running) == 1
            running.pop()

    await asyncio.gather(exchange(), exchange(), exchange())
    assert gate.num_inside == 0


async def test_a_judgment_says_by_which_version_it_was_made() -> None:
    engine = ScriptedEngine(["<preference>A</preference>"] * 3, label_probs={"A": 0.9, "B": 0.1})
    judge = Judge(engine=engine, tools=(), weights=WeightsLock(version="0123"))
    assert (await judge.judge(REQUEST)).model_version == "0123"
    async with judge.weights.closed():
        judge.weights.version = "4567"
    assert (await judge.judge(REQUEST)).model_version == "4567"
    unknown = Judge(engine=engine)
    assert (await unknown.judge(REQUEST)).model_version is None


async def test_single_rollouts_wait_at_the_gate_too() -> None:
    engine = ScriptedEngine(["<preference>A</preference>"], label_probs={"A": 0.9, "B": 0.1})
    judge = Judge(engine=engine)
    async with judge.weights.closed():
        rolling = asyncio.create_task(judge.rollout(REQUEST, order=(0, 1), session="s"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not engine.calls
    assert (await rolling).label == "A"


async def test_a_judgment_that_waits_past_its_deadline_says_so() -> None:
    judge = Judge(engine=ScriptedEngine([]), tools=())
    async with judge.weights.closed():
        with pytest.raises(DeadlineExceeded):
            await judge.judge(REQUEST.model_copy(update={"deadline_s": 0.05}))

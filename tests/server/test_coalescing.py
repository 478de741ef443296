"""Identical requests in flight share one judgment, which runs while at least one of them waits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

import pytest

from tests.waiting import until
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.errors import EngineUnavailable
from tirjudge.judge import Judge
from tirjudge.tools.python import python_tools
from tirjudge.types import Completion, JudgeRequest, Judgment, Sampling
from tirjudge_server.app import create_app
from tirjudge_server.call import Call, Priority
from tirjudge_server.coalescing import content_hash
from tirjudge_server.service import JudgeService
from tirjudge_web.errors import QueueFull, Refused

PRINTS = "```python\nprint(1)\n```\n```output"
VERDICTS = repeat("<preference>A</preference>")
SLEEPS = "```python\nimport time\ntime.sleep(8)\n```\n```output"


def asked(**fields: Any) -> JudgeRequest:
    return JudgeRequest.model_validate(
        {"mode": "pairwise", "prompt": "p", "responses": ["a", "b"], "tools": "off"} | fields
    )


class GatedEngine(ScriptedEngine):
    """Completes turns only while its gate is open.

    Attributes:
        gate: set by tests to open the gate.
        num_turns: number of turns that have started.
    """

    def __init__(self, texts: Iterable[str], *, is_open: bool) -> None:
        super().__init__(texts, label_probs={"A": 0.9, "B": 0.1})
        self.gate = asyncio.Event()
        if is_open:
            self.gate.set()
        self.num_turns = 0

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        if sampling.allowed_token_ids is None:
            self.num_turns += 1
            await self.gate.wait()
        return await super().generate(token_ids, sampling=sampling, session=session)


def gated_service(
    texts: Iterable[str] = VERDICTS, *, is_open: bool = False, sandbox: Any = None, **options: Any
) -> tuple[JudgeService, GatedEngine]:
    """A service whose turns wait for the gate of its engine."""
    engine = GatedEngine(texts, is_open=is_open)
    return JudgeService(Judge(engine=engine, tools=python_tools(sandbox)), **options), engine


async def answers(
    service: JudgeService, engine: GatedEngine, calls: Sequence[tuple[JudgeRequest, Call]], *, num_judged: int
) -> list[Judgment]:
    """Answer requests that are all in flight together; check how many judgments they cause."""
    asking = [asyncio.create_task(service.answer(request, call=call)) for request, call in calls]
    await until(lambda: engine.num_turns + service.in_flight.num_joined == len(calls))
    engine.gate.set()
    found = await asyncio.gather(*asking)
    assert engine.num_turns == num_judged
    return found


async def test_identical_requests_in_flight_are_judged_once() -> None:
    service, engine = gated_service()
    judgments = await answers(service, engine, [(asked(), Call()) for _ in range(5)], num_judged=1)
    assert len({judgment.id for judgment in judgments}) == 1
    assert service.in_flight.num_joined == 4
    assert service.admission.num_running == 0


@pytest.mark.parametrize("other", [{"prompt": "q"}, {"seed": 1}, {"rubric": "r"}, {"responses": ["b", "a"]}])
async def test_different_requests_are_judged_separately(other: dict[str, Any]) -> None:
    await answers(*gated_service(), [(asked(), Call()), (asked(**other), Call())], num_judged=2)


async def test_callers_do_not_share_judgments() -> None:
    calls = [(asked(), Call(caller=caller)) for caller in ("a", "b", None)]
    await answers(*gated_service(), calls, num_judged=3)


@pytest.mark.parametrize(
    ("deadlines_s", "num_judged"),
    [([600.0, 600.0, 300.0], 2), ([300.0, 600.0, 610.0], 2), ([600.0, 600.5], 1)],
    ids=["an earlier deadline", "much later deadlines", "a retry with a new deadline"],
)
async def test_requests_with_similar_deadlines_share_a_judgment(deadlines_s: list[float], num_judged: int) -> None:
    calls = [(asked(), Call(deadline_s=deadline_s)) for deadline_s in deadlines_s]
    await answers(*gated_service(max_deadline_s=None), calls, num_judged=num_judged)


async def test_each_idempotency_key_is_judged_once() -> None:
    calls = [(asked(), Call(idempotency_key=key)) for key in ("x", "x", "y")]
    first, second, third = await answers(*gated_service(), calls, num_judged=2)
    assert first == second
    assert first.id != third.id


async def test_idempotency_key_of_a_different_request_is_refused() -> None:
    service, engine = gated_service()
    first = asyncio.create_task(service.answer(asked(), call=Call(idempotency_key="x")))
    await until(lambda: engine.num_turns == 1)
    with pytest.raises(Refused, match="a different request") as refused:
        await service.answer(asked(prompt="q"), call=Call(idempotency_key="x"))
    assert refused.value.status == 422
    engine.gate.set()
    assert (await first).verdict.status == "decided"


async def test_judgment_continues_while_one_request_waits() -> None:
    service, engine = gated_service()
    first, second = (asyncio.create_task(service.answer(asked(), call=Call())) for _ in range(2))
    await until(lambda: service.in_flight.num_joined == 1)
    first.cancel()
    engine.gate.set()
    assert (await second).verdict.status == "decided"
    assert engine.num_turns == 1


async def test_judgment_and_program_are_cancelled_when_no_request_waits(pool, make_service) -> None:
    service = make_service([SLEEPS], sandbox=pool)
    waiting = [asyncio.create_task(service.answer(asked(tools="auto"), call=Call())) for _ in range(3)]
    await until(lambda: pool.stats().num_idle == 1)
    for task in waiting[:2]:
        task.cancel()
    await asyncio.gather(*waiting[:2], return_exceptions=True)
    assert service.admission.num_running == 1
    waiting[2].cancel()
    await until(lambda: service.admission.num_running == 0 and pool.stats().num_idle == 2)


async def test_request_after_cancellation_is_judged_again() -> None:
    service, engine = gated_service()
    first = asyncio.create_task(service.answer(asked(), call=Call()))
    await until(lambda: engine.num_turns == 1)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    engine.gate.set()
    assert (await service.answer(asked(), call=Call())).verdict.status == "decided"
    assert engine.num_turns == 2


async def test_a_failure_is_shared_and_then_forgotten() -> None:
    service, _ = gated_service(is_open=True)
    service.judge = Judge(engine=ScriptedEngine(()), tools=())
    answers = [service.answer(asked(), call=Call()) for _ in range(2)]
    for failure in await asyncio.gather(*answers, return_exceptions=True):
        assert isinstance(failure, EngineUnavailable)
    engine = ScriptedEngine(["<preference>A</preference>"], label_probs={"A": 1.0})
    service.judge = Judge(engine=engine, tools=())
    assert (await service.answer(asked(), call=Call())).verdict.status == "decided"


async def test_request_that_joins_late_receives_all_turns(sandbox) -> None:
    texts = [PRINTS, PRINTS, "<preference>A</preference>"]
    service, engine = gated_service(texts, is_open=True, sandbox=sandbox)
    heard: dict[str, list[str]] = {"early": [], "late": []}

    async def listen(name: str) -> Judgment:
        async def on_turn(order: object, turn: Any) -> None:
            heard[name].append(turn.text)
            engine.gate.clear()

        return await service.answer(asked(tools="auto"), call=Call(), on_turn=on_turn)

    early = asyncio.create_task(listen("early"))
    await until(lambda: heard["early"])
    late = asyncio.create_task(listen("late"))
    await until(lambda: service.in_flight.num_joined == 1)
    while not (early.done() and late.done()):
        engine.gate.set()
        await asyncio.sleep(0.005)
    assert await early == await late
    assert heard["early"] == heard["late"] == texts


async def test_http_response_has_id_of_shared_judgment(connect) -> None:
    service, engine = gated_service()
    body = asked().model_dump(mode="json")
    async with connect(create_app(service)) as client:
        bodies = [body, body, body | {"stream": True}]
        asking = [asyncio.create_task(client.post("/v1/judge", json=sent)) for sent in bodies]
        await until(lambda: service.in_flight.num_joined == 2)
        engine.gate.set()
        plain, again, stream = await asyncio.gather(*asking)
    assert plain.json()["id"] == plain.headers["x-judgment-id"] == again.headers["x-judgment-id"]
    assert stream.headers["x-judgment-id"] == plain.headers["x-judgment-id"]
    assert stream.text.count("event: judgment.turn") == 1
    assert engine.num_turns == 1


async def test_interactive_request_raises_priority_of_shared_batch_item() -> None:
    service, engine = gated_service(max_concurrency=1)
    done: list[str] = []

    async def ask(name: str, priority: Priority) -> None:
        await service.answer(asked(prompt=name), call=Call(priority=priority))
        done.append(name)

    async with asyncio.TaskGroup() as group:
        for name, priority in [("first", Priority.BATCH), ("reward", Priority.REWARD), ("shared", Priority.BATCH)]:
            group.create_task(ask(name, priority))
        await until(lambda: service.admission.num_waiting == 2)
        group.create_task(ask("shared", Priority.INTERACTIVE))
        await until(lambda: service.in_flight.num_joined == 1)
        engine.gate.set()
    assert done == ["first", "shared", "shared", "reward"]


class Remembers:
    """Records that find judgments by content."""

    def __init__(self) -> None:
        self.stored: dict[str, Judgment] = {}

    async def recall(self, request: JudgeRequest, *, call: Call) -> Judgment | None:
        await asyncio.sleep(0)
        return self.stored.get(content_hash(request))

    async def store(self, request: JudgeRequest, judgment: Judgment, *, call: Call) -> Judgment:
        await asyncio.sleep(0)
        return self.stored.setdefault(content_hash(request), judgment)


async def test_recorded_judgment_is_reused_and_its_turns_are_replayed() -> None:
    service, engine = gated_service(is_open=True, records=Remembers())
    turns: list[str] = []

    async def on_turn(order: object, turn: Any) -> None:
        turns.append(turn.text)

    first = await service.answer(asked(), call=Call())
    assert await service.answer(asked(), call=Call(), on_turn=on_turn) == first
    assert engine.num_turns == 1
    assert turns == ["<preference>A</preference>"]


async def test_judgment_is_stored_before_response_and_after_leaving_queue() -> None:
    service, _ = gated_service(is_open=True, records=Remembers(), max_concurrency=1)
    storing, stored = asyncio.Event(), asyncio.Event()

    async def store(request: JudgeRequest, judgment: Judgment, *, call: Call) -> Judgment:
        storing.set()
        await stored.wait()
        assert service.admission.num_running == 0
        return judgment.model_copy(update={"id": "jdg_kept"})

    assert service.records is not None
    service.records.store = store  # type: ignore[method-assign]
    asking = asyncio.create_task(service.answer(asked(), call=Call()))
    await storing.wait()
    assert not asking.done()
    stored.set()
    assert (await asking).id == "jdg_kept"


async def test_answer_all_keeps_order_and_isolates_failures() -> None:
    service, _ = gated_service(is_open=True, max_concurrency=2, max_queue=0)
    requests = [asked(prompt=str(number)) for number in range(6)]
    requests[3] = asked(prompt="too long", tools="auto")
    answers = await service.answer_all(requests, call=Call(idempotency_key="k"))
    assert [type(answer) for answer in answers] == [Judgment] * 3 + [Refused] + [Judgment] * 2
    assert len({answer.id for answer in answers if isinstance(answer, Judgment)}) == 5


async def test_answer_all_waits_for_queue_but_fails_if_it_is_full_at_start() -> None:
    service, engine = gated_service(max_concurrency=1, max_queue=1)
    ahead = [asyncio.create_task(service.answer(asked(prompt=name), call=Call())) for name in ("x", "y")]
    await until(lambda: service.admission.num_waiting == 1)
    with pytest.raises(QueueFull):
        await service.answer_all([asked()], call=Call())
    engine.gate.set()
    await asyncio.gather(*ahead)
    engine.gate.clear()
    running = asyncio.create_task(service.answer(asked(prompt="z"), call=Call()))
    await until(lambda: service.admission.num_running == 1)
    many = asyncio.create_task(service.answer_all([asked(prompt=str(n)) for n in range(3)], call=Call()))
    await until(lambda: service.admission.num_waiting == 1)
    engine.gate.set()
    assert [type(answer) for answer in await many] == [Judgment] * 3
    await running


async def test_on_end_is_called_once_per_judgment() -> None:
    service, engine = gated_service()
    seen: list[object] = []
    service.on_end.append(lambda request, call, outcome: seen.append(outcome))
    first, second = await answers(service, engine, [(asked(), Call())] * 2, num_judged=1)
    assert seen == [first]
    service.judge = Judge(engine=ScriptedEngine(()), tools=())
    with pytest.raises(EngineUnavailable):
        await service.answer(asked(prompt="q"), call=Call())
    assert isinstance(seen[1], EngineUnavailable)
    assert first == second

"""Identical requests in flight share one judgment, which runs while at least one of them waits."""

from __future__ import annotations

import asyncio
from itertools import repeat
from typing import Any

import pytest

from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.errors import EngineUnavailable
from tirjudge.judge import Judge
from tirjudge.tools.python import python_tools
from tirjudge.types import JudgeRequest, Judgment
from tirjudge_server.app import create_app
from tirjudge_server.call import Call, Priority
from tirjudge_server.coalescing import content_hash
from tirjudge_server.service import JudgeService
from tirjudge_web.errors import QueueFull, Refused

PRINTS = "```python\nprint(1)\n```\n```output"
SLEEPS = "```python\nimport time\ntime.sleep(8)\n```\n```output"


def asked(**fields: Any) -> JudgeRequest:
    return JudgeRequest.model_validate(
        {"mode": "pairwise", "prompt": "p", "responses": ["a", "b"], "tools": "off"} | fields
    )


def slow_service(pool: Any = None, *, delay_s: float = 0.2, **options: Any) -> JudgeService:
    engine = ScriptedEngine(repeat("<preference>A</preference>"), label_probs={"A": 0.9, "B": 0.1}, delay_s=delay_s)
    return JudgeService(Judge(engine=engine, tools=python_tools(pool)), **options)


def num_judged(service: JudgeService) -> int:
    engine = service.judge.engine
    assert isinstance(engine, ScriptedEngine)
    return sum(sampling.allowed_token_ids is None for _, sampling, _ in engine.calls)


async def test_identical_requests_in_flight_are_judged_once() -> None:
    service = slow_service()
    judgments = await asyncio.gather(*(service.answer(asked(), call=Call()) for _ in range(5)))
    assert num_judged(service) == 1
    assert len({judgment.id for judgment in judgments}) == 1
    assert service.in_flight.num_joined == 4
    assert service.admission.num_running == 0


@pytest.mark.parametrize("other", [{"prompt": "q"}, {"seed": 1}, {"rubric": "r"}, {"responses": ["b", "a"]}])
async def test_different_requests_are_judged_separately(other: dict[str, Any]) -> None:
    service = slow_service()
    await asyncio.gather(*(service.answer(request, call=Call()) for request in (asked(), asked(**other))))
    assert num_judged(service) == 2


async def test_callers_do_not_share() -> None:
    service = slow_service()
    await asyncio.gather(*(service.answer(asked(), call=Call(caller=caller)) for caller in ("a", "b", None)))
    assert num_judged(service) == 3


async def test_request_with_earlier_deadline_is_judged_separately() -> None:
    service = slow_service()
    calls = [Call(deadline_s=60.0), Call(deadline_s=60.0), Call(deadline_s=30.0)]
    await asyncio.gather(*(service.answer(asked(), call=call) for call in calls))
    assert num_judged(service) == 2


async def test_request_with_much_more_time_is_judged_separately() -> None:
    service = slow_service()
    calls = [Call(deadline_s=2.0), Call(deadline_s=60.0), Call(deadline_s=70.0)]
    await asyncio.gather(*(service.answer(asked(), call=call) for call in calls))
    assert num_judged(service) == 2


async def test_retry_with_new_deadline_joins() -> None:
    service = slow_service()
    first = asyncio.create_task(service.answer(asked(), call=Call(deadline_s=10.0)))
    await asyncio.sleep(0.1)
    assert await service.answer(asked(), call=Call(deadline_s=9.999)) == await first
    assert num_judged(service) == 1


async def test_each_idempotency_key_is_judged_once() -> None:
    service = slow_service()
    calls = [Call(idempotency_key=key) for key in ("x", "x", "y")]
    first, second, third = await asyncio.gather(*(service.answer(asked(), call=call) for call in calls))
    assert first == second
    assert first.id != third.id
    assert num_judged(service) == 2


async def test_idempotency_key_of_another_request_is_refused() -> None:
    service = slow_service()
    first = asyncio.create_task(service.answer(asked(), call=Call(idempotency_key="x")))
    await asyncio.sleep(0.01)
    with pytest.raises(Refused, match="another request") as refused:
        await service.answer(asked(prompt="q"), call=Call(idempotency_key="x"))
    assert refused.value.status == 422
    assert (await first).verdict.status == "decided"


async def test_judgment_continues_while_one_request_waits() -> None:
    service = slow_service()
    first, second = (asyncio.create_task(service.answer(asked(), call=Call())) for _ in range(2))
    await asyncio.sleep(0.05)
    first.cancel()
    assert (await second).verdict.status == "decided"
    assert num_judged(service) == 1


async def test_last_leaving_request_cancels_judgment_and_program(pool, make_service, until) -> None:
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
    service = slow_service()
    first = asyncio.create_task(service.answer(asked(), call=Call()))
    await asyncio.sleep(0.05)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert (await service.answer(asked(), call=Call())).verdict.status == "decided"
    assert num_judged(service) == 2


async def test_a_failure_is_shared_and_then_forgotten() -> None:
    service = slow_service()
    texts = iter(["<preference>A</preference>"])
    service.judge = Judge(engine=ScriptedEngine((), delay_s=0.05), tools=())
    answers = [service.answer(asked(), call=Call()) for _ in range(2)]
    for failure in await asyncio.gather(*answers, return_exceptions=True):
        assert isinstance(failure, EngineUnavailable)
    service.judge = Judge(engine=ScriptedEngine(texts, label_probs={"A": 1.0}), tools=())
    assert (await service.answer(asked(), call=Call())).verdict.status == "decided"


async def test_late_joiner_receives_all_turns(make_service) -> None:
    texts = [PRINTS, "```python\nimport time\ntime.sleep(0.5)\n```\n```output", "<preference>A</preference>"]
    service = make_service(texts)
    heard: dict[str, list[str]] = {"early": [], "late": []}

    async def listen(name: str) -> Judgment:
        async def on_turn(order: object, turn: Any) -> None:
            heard[name].append(turn.text)

        return await service.answer(asked(tools="auto"), call=Call(), on_turn=on_turn)

    early = asyncio.create_task(listen("early"))
    while not heard["early"]:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    judgment = await listen("late")
    assert await early == judgment
    assert heard["early"] == heard["late"] == texts


async def test_http_response_has_id_of_shared_judgment(connect) -> None:
    service = slow_service()
    body = asked().model_dump(mode="json")
    async with connect(create_app(service)) as client:
        bodies = [body, body, body | {"stream": True}]
        plain, again, stream = await asyncio.gather(*(client.post("/v1/judge", json=sent) for sent in bodies))
    assert plain.json()["id"] == plain.headers["x-judgment-id"] == again.headers["x-judgment-id"]
    assert stream.headers["x-judgment-id"] == plain.headers["x-judgment-id"]
    assert stream.text.count("event: judgment.turn") == 1
    assert num_judged(service) == 1


async def test_interactive_request_raises_priority_of_shared_batch_item(until) -> None:
    service = slow_service(max_concurrency=1, delay_s=0.1)
    done: list[str] = []

    async def ask(name: str, priority: Priority) -> None:
        await service.answer(asked(prompt=name), call=Call(priority=priority))
        done.append(name)

    async with asyncio.TaskGroup() as group:
        for name, priority in [("first", Priority.BATCH), ("reward", Priority.REWARD), ("shared", Priority.BATCH)]:
            group.create_task(ask(name, priority))
        await until(lambda: service.admission.num_waiting == 2)
        group.create_task(ask("shared", Priority.INTERACTIVE))
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
    service = slow_service(records=Remembers(), delay_s=0.0)
    told: list[str] = []

    async def on_turn(order: object, turn: Any) -> None:
        told.append(turn.text)

    first = await service.answer(asked(), call=Call())
    assert await service.answer(asked(), call=Call(), on_turn=on_turn) == first
    assert num_judged(service) == 1
    assert told == ["<preference>A</preference>"]


async def test_judgment_is_stored_before_response_and_after_leaving_queue() -> None:
    service = slow_service(records=Remembers(), delay_s=0.0, max_concurrency=1)
    storing = asyncio.Event()

    async def store(request: JudgeRequest, judgment: Judgment, *, call: Call) -> Judgment:
        storing.set()
        await asyncio.sleep(0.05)
        assert service.admission.num_running == 0
        return judgment.model_copy(update={"id": "jdg_kept"})

    assert service.records is not None
    service.records.store = store  # type: ignore[method-assign]
    asking = asyncio.create_task(service.answer(asked(), call=Call()))
    await storing.wait()
    assert not asking.done()
    assert (await asking).id == "jdg_kept"


async def test_answer_all_keeps_order_and_isolates_failures() -> None:
    service = slow_service(delay_s=0.0, max_concurrency=2, max_queue=0)
    requests = [asked(prompt=str(number)) for number in range(6)]
    requests[3] = asked(prompt="too long", tools="auto")
    answers = await service.answer_all(requests, call=Call(idempotency_key="k"))
    assert [type(answer) for answer in answers] == [Judgment] * 3 + [Refused] + [Judgment] * 2
    assert len({answer.id for answer in answers if isinstance(answer, Judgment)}) == 5


async def test_answer_all_waits_for_queue_but_fails_if_it_is_full_at_start(until) -> None:
    service = slow_service(delay_s=0.3, max_concurrency=1, max_queue=1)
    ahead = [asyncio.create_task(service.answer(asked(prompt=name), call=Call())) for name in ("x", "y")]
    await until(lambda: service.admission.num_waiting == 1)
    with pytest.raises(QueueFull):
        await service.answer_all([asked()], call=Call())
    await ahead[0]
    many = asyncio.create_task(service.answer_all([asked(prompt=str(n)) for n in range(3)], call=Call()))
    answers = await many
    assert [type(answer) for answer in answers] == [Judgment] * 3
    await asyncio.gather(*ahead)


async def test_on_end_is_called_once_per_judgment() -> None:
    service = slow_service(delay_s=0.01)
    seen: list[object] = []
    service.on_end.append(lambda request, call, outcome: seen.append(outcome))
    first, second = await asyncio.gather(*(service.answer(asked(), call=Call()) for _ in range(2)))
    assert seen == [first]
    service.judge = Judge(engine=ScriptedEngine(()), tools=())
    with pytest.raises(EngineUnavailable):
        await service.answer(asked(prompt="q"), call=Call())
    assert isinstance(seen[1], EngineUnavailable)
    assert first == second

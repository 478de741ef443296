"""`/get_reward`, called by OpenRLHF's executor from its wheel."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from copy import deepcopy
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import pytest

from tests.clients.wheels import Wheel, definitions, wheel
from tests.server.speaking import GOOD, PROGRAM, Speak, dialect_app, service_of, speak
from tirjudge.errors import SandboxUnavailable
from tirjudge_server.access import Access
from tirjudge_server.access.keys import create_key
from tirjudge_server.app import create_app
from tirjudge_server.dialects import DIALECTS, DialectSettings
from tirjudge_server.records.database import open_database

__all__ = ["speak", "wheel"]

PROMPT = "<|im_start|>user\nSay hello.<|im_end|>\n<|im_start|>assistant\n"
ANSWER = "<think>They want a greeting.</think>\n\nHello.<|im_end|>"


class Characters:
    """A tokenizer with one token per character."""

    def __call__(self, text: str, **options: Any) -> dict[str, Any]:
        torch = pytest.importorskip("torch")
        return {"input_ids": torch.tensor([[ord(letter) for letter in text]])}

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool) -> str:
        assert not skip_special_tokens
        return "".join(map(chr, token_ids))


class Policy:
    """A model that always writes the same text."""

    async def generate(self, token_ids: list[int], params: Any, **options: Any) -> Any:
        output = SimpleNamespace(token_ids=[ord(c) for c in ANSWER], text=ANSWER, finish_reason="stop", logprobs=None)
        return SimpleNamespace(outputs=[output])


@pytest.fixture
def executor(wheel: Wheel) -> Any:
    aiohttp = pytest.importorskip("aiohttp")
    found = definitions(
        wheel("openrlhf==0.11.2") / "openrlhf" / "utils" / "agent.py",
        "AgentExecutorBase",
        "SingleTurnAgentExecutor",
        given={
            "ABC": ABC,
            "abstractmethod": abstractmethod,
            "aiohttp": aiohttp,
            "asyncio": asyncio,
            "cycle": cycle,
            "deepcopy": deepcopy,
            "logger": logging.getLogger("openrlhf"),
        },
    )
    return found.SingleTurnAgentExecutor


async def roll_out(executor: Any, url: str, *, label: str = "Hello!") -> dict[str, Any]:
    sampling = SimpleNamespace(max_tokens=512, logprobs=None)
    return await executor([f"{url}/get_reward"]).execute(PROMPT, label, sampling, 4096, Characters(), Policy())


async def test_executor_gets_reward_of_policy_output(executor: Any, listen: Any) -> None:
    seen: list[str] = []

    def script(sequence: str) -> str:
        seen.append(sequence)
        return "<score>7</score>"

    async with listen(dialect_app(service_of(script))) as url:
        output = await roll_out(executor, url)
    assert output["reward"] == [pytest.approx(GOOD, abs=1e-3)]
    assert output["scores"] == output["reward"]
    assert output["extra_logs"] == {"judge_failed": [0.0], "judge_forced": [0.0], "judge_tool_calls": [0.0]}
    assert "<response>\nHello.\n</response>" in seen[0]
    assert "<prompt>\nSay hello.\n</prompt>" in seen[0]
    assert "Hello!" in seen[0]
    assert "They want a greeting." not in seen[0]


async def test_response_can_be_stacked_into_tensors(executor: Any, listen: Any) -> None:
    torch = pytest.importorskip("torch")
    async with listen(dialect_app(service_of(lambda sequence: "<score>7</score>"))) as url:
        output = await roll_out(executor, url)
    for value in (output["reward"], output["scores"], *output["extra_logs"].values()):
        assert torch.tensor([value]).dtype is torch.float32
    assert torch.tensor([output["scores"]])[0].item() == pytest.approx(GOOD, abs=1e-3)


async def test_broken_judge_returns_fallback_reward(executor: Any, listen: Any) -> None:
    service = service_of(lambda sequence: PROGRAM, error=SandboxUnavailable("gone"))
    settings = DialectSettings(patience_s=0.0, fallback=0.25)
    async with listen(dialect_app(service, settings=settings)) as url:
        output = await roll_out(executor, url)
    assert output["reward"] == [0.25]
    assert output["extra_logs"]["judge_failed"] == [1.0]


async def test_server_retries_until_engine_is_back(listen: Any, executor: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("tirjudge_server.request_batch.UNAVAILABLE_RETRY_S", 0.01)
    tries = iter([PROGRAM, PROGRAM])
    service = service_of(lambda sequence: next(tries, "<score>7</score>"), error=SandboxUnavailable("gone"))
    async with listen(dialect_app(service, settings=DialectSettings(patience_s=60.0))) as url:
        output = await roll_out(executor, url)
    assert output["extra_logs"]["judge_failed"] == [0.0]


async def test_url_query_sets_options(speak: Speak) -> None:
    body = {"query": [PROMPT + ANSWER], "prompts": [PROMPT], "labels": ["Hi!"]}
    async with speak(lambda sequence: "<score>7</score>") as client:
        answer = (await client.post("/get_reward?mode=pointwise&scale=-1,1&tools=off", json=body)).json()
    assert answer["rewards"] == [pytest.approx(2 * 6 / 9 - 1)]
    assert answer["scores"] == [pytest.approx(6 / 9)]
    async with speak(lambda sequence: "<preference>A</preference>") as client:
        answer = (await client.post("/get_reward?mode=pairwise_vs_reference&orders=both", json=body)).json()
    assert answer["rewards"] == [pytest.approx(0.5)]


@pytest.mark.parametrize(
    ("query", "param"),
    [("fallbck=1", "fallbck"), ("votes=0", "votes"), ("mode=cohort", "mode"), ("votes=" + "[" * 5000, "votes")],
    ids=lambda text: text[:16],
)
async def test_error_for_an_invalid_option_names_it(speak: Speak, query: str, param: str) -> None:
    async with speak(lambda sequence: "<score>7</score>") as client:
        response = await client.post(f"/get_reward?{query}", json={"query": [PROMPT + ANSWER]})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


async def test_unreadable_sample_does_not_stop_the_others(speak: Speak) -> None:
    body = {"query": [PROMPT + ANSWER, "no template", PROMPT + ANSWER], "prompts": None, "labels": ["", "", ""]}
    async with speak(lambda sequence: "<score>7</score>") as client:
        response = await client.post("/get_reward?fallback=0", json=body)
    answer = response.json()
    assert answer["extra_logs"]["judge_failed"] == [0.0, 1.0, 0.0]
    assert answer["rewards"] == [pytest.approx(GOOD, abs=1e-3), 0.0, pytest.approx(GOOD, abs=1e-3)]
    assert response.headers["x-judge-failed"] == "1"


async def test_lists_of_different_lengths_are_refused(speak: Speak) -> None:
    async with speak(lambda sequence: "<score>7</score>") as client:
        response = await client.post("/get_reward", json={"query": ["a", "b"], "prompts": ["a"]})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "prompts"


async def test_retry_sends_identical_judge_request() -> None:
    import httpx2

    service = service_of(lambda sequence: "<score>7</score>")
    asked = []
    answer = service.answer

    async def spy(request: Any, **options: Any) -> Any:
        asked.append(request.model_dump_json())
        return await answer(request, **options)

    service.answer = spy  # type: ignore[method-assign]
    transport = httpx2.ASGITransport(app=dialect_app(service))
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        for _ in range(2):
            await client.post("/get_reward", json={"query": [PROMPT + ANSWER], "prompts": [PROMPT], "labels": ["x"]})
    assert asked[0] == asked[1]


async def test_key_in_url_is_accepted(executor: Any, listen: Any, tmp_path: Any) -> None:
    database = open_database(str(tmp_path / "records.db"))
    try:
        key = create_key(database, name="trainer", scopes=["reward"])
        access = Access(database)
        await access.load()
        app = create_app(service_of(lambda sequence: "<score>7</score>"), access=access)
        async with listen(app) as url:
            with_key = await roll_out(executor, url.replace("http://", f"http://:{key}@"))
    finally:
        database.close()
    assert with_key["reward"] == [pytest.approx(GOOD, abs=1e-3)]


async def test_retry_joins_judgment_in_flight(connect: Any, until: Any) -> None:
    service = service_of(lambda sequence: "<score>7</score>")
    engine, begun = service.judge.engine, asyncio.Event()
    generate = engine.generate

    async def slow(*args: Any, **options: Any) -> Any:
        await begun.wait()
        return await generate(*args, **options)

    engine.generate = slow  # type: ignore[method-assign]
    body = {"query": [PROMPT + ANSWER], "prompts": [PROMPT], "labels": [""]}
    async with connect(dialect_app(service)) as client:
        tries = [asyncio.create_task(client.post("/get_reward", json=body)) for _ in range(5)]
        await until(lambda: service.in_flight.num_joined == 4)
        begun.set()
        answers = [(await one).json() for one in tries]
    assert answers == [answers[0]] * 5
    # One rollout: one turn and the reads of its label.
    assert len({session for _, _, session in engine.calls}) == 1  # type: ignore[attr-defined]


async def test_fallback_is_sent_before_client_timeout_if_engine_hangs(connect: Any) -> None:
    service = service_of(lambda sequence: "<score>7</score>")

    async def hang(*args: Any, **options: Any) -> Any:
        await asyncio.Event().wait()

    service.judge.engine.generate = hang  # type: ignore[method-assign]
    headers = {"x-judge-deadline-ms": "300"}
    async with connect(dialect_app(service)) as client:
        answer = (await client.post("/get_reward", json={"query": [PROMPT + ANSWER]}, headers=headers)).json()
    assert answer["rewards"] == [0.5]
    assert answer["extra_logs"]["judge_failed"] == [1.0]


CLIENTS_GIVE_UP_S = {"openrlhf": 180, "slime": 120, "rewardanything": 30, "rerank_shapes": 300, "systemone": 10}


@pytest.mark.parametrize("name", CLIENTS_GIVE_UP_S)
def test_dialect_deadlines_are_below_client_timeouts(name: str) -> None:
    deadline_s = DIALECTS[name].deadline_s
    assert deadline_s is not None
    assert CLIENTS_GIVE_UP_S[name] > deadline_s

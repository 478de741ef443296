"""eval-protocol, RewardAnything and System One, with their real clients."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
import warnings
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Optional

import pytest
from pydantic import BaseModel, Field

from tests.clients.wheels import Wheel, definitions, wheel
from tests.server.speaking import GOOD, PROGRAM, Speak, dialect_app, service_of, speak
from tirjudge.errors import SandboxUnavailable

__all__ = ["speak", "wheel"]

MESSAGES = [{"role": "user", "content": "Say hello."}, {"role": "assistant", "content": "Hello."}]


def seven(sequence: str) -> str:
    return "<score>7</score>"


@pytest.fixture
def evaluate_remotely(wheel: Wheel) -> Any:
    """`RewardFunction.__call__` of eval-protocol, in its remote mode."""
    import typing

    requests = pytest.importorskip("requests")
    folder = wheel("eval-protocol==0.3.33") / "eval_protocol"
    models = definitions(
        folder / "models.py",
        "MetricResult",
        "StepOutput",
        "EvaluateResult",
        given={**vars(typing), "BaseModel": BaseModel, "Field": Field},
    )
    for name in ("MetricResult", "StepOutput", "EvaluateResult"):
        getattr(models, name).model_rebuild(_types_namespace={**vars(typing), **vars(models)})
    found = definitions(
        folder / "reward_function.py",
        "RewardFunction.__call__",
        given={
            **vars(typing),
            **vars(models),
            "requests": requests,
            "os": os,
            "warnings": warnings,
            "logger": logging.getLogger("eval_protocol"),
        },
    )
    call = found.__call__

    def evaluate(url: str) -> Any:
        function = SimpleNamespace(mode="remote", endpoint=url, func=None, kwargs={}, default_kwargs={})
        return call(function, messages=MESSAGES, ground_truth="Hi!")

    return evaluate


async def test_eval_protocols_remote_function_gets_a_score(evaluate_remotely: Any, listen: Any) -> None:
    async with listen(dialect_app(service_of(seven))) as url:
        result = await asyncio.to_thread(evaluate_remotely, f"{url}/reward")
    assert result.score == pytest.approx(GOOD, abs=1e-3)
    assert result.metrics["judge"].is_score_valid is True


async def test_eval_protocols_remote_function_gets_a_missing_score(evaluate_remotely: Any, listen: Any) -> None:
    service = service_of(lambda sequence: PROGRAM, error=SandboxUnavailable("gone"))
    async with listen(dialect_app(service)) as url:
        result = await asyncio.to_thread(evaluate_remotely, f"{url}/reward")
    assert result.metrics["judge"].is_score_valid is False


async def test_evaluate_accepts_messages_as_ground_truth(speak: Speak) -> None:
    seen: list[str] = []

    def script(sequence: str) -> str:
        seen.append(sequence)
        return "<score>7</score>"

    body = {"messages": MESSAGES, "ground_truth": [{"role": "assistant", "content": "Good day!"}], "kwargs": {}}
    async with speak(script) as client:
        answer = (await client.post("/evaluate", json=body)).json()
    assert answer["is_score_valid"] is True
    assert answer["error"] is None
    assert "Good day!" in seen[0]


@pytest.fixture
def rewardanything(wheel: Wheel) -> Any:
    import typing

    requests = pytest.importorskip("requests")
    folder = wheel("rewardanything==1.0.1") / "rewardanything"
    given = {**vars(typing), "dataclass": dataclass, "BaseModel": BaseModel, "Field": Field, "json": json}
    models = definitions(folder / "models.py", "RewardResult", given=given)
    extra = {"requests": requests, "time": time, "logger": logging.getLogger("rewardanything"), "Optional": Optional}
    return definitions(folder / "client.py", "Client", given={**given, **vars(models), **extra}).Client


async def test_rewardanythings_client_gets_scores_and_a_ranking(rewardanything: Any, listen: Any) -> None:
    def script(sequence: str) -> str:
        assert "Be kind." in sequence
        return "<score>7</score>"

    async with listen(dialect_app(service_of(script))) as url:
        responses = {"model-b": "Hello.", "model-a": "Hi."}
        judge = rewardanything(url).judge
        result = await asyncio.to_thread(judge, principle="Be kind.", prompt="Say hello.", responses=responses)
    assert result.scores == {
        "model-a": pytest.approx(1 + 4 * GOOD, abs=1e-2),
        "model-b": pytest.approx(1 + 4 * GOOD, abs=1e-2),
    }
    assert sorted(result.ranking) == ["model-a", "model-b"]


@pytest.fixture
def typesafe() -> Any:
    return pytest.importorskip("typesafe_sdk")


def client_of(typesafe: Any, url: str) -> Any:
    retry = typesafe.RetryPolicy(max_retries=0)
    return typesafe.TypeSafeClient(api_key="none", model="any", base_url=url, retry=retry, compression=False)


async def test_system_ones_client_gets_all_three_kinds_of_answers(typesafe: Any, listen: Any) -> None:
    questions = {
        "dry": typesafe.Noul(instructions="Is it dry?"),
        "tone": typesafe.Choice(instructions="What is the tone?", criteria={"calm": None, "angry": "Shouting."}),
        "wetness": typesafe.Score(criteria=["None.", "A drizzle.", "A flood."]),
        "sure": typesafe.Choice(criteria={"only": None}),
    }

    def ask(url: str) -> Any:
        with client_of(typesafe, url) as client:
            return client.system_one(state={"weather": "It rains."}, questions=questions)

    async with listen(dialect_app(service_of(lambda sequence: "<preference>A</preference>"))) as url:
        result = await asyncio.to_thread(ask, url)
    assert result.nouls["dry"].noul in (pytest.approx(0.8), pytest.approx(0.2))
    tone = result.choices["tone"]
    assert tone.choice == max(tone.probabilities, key=tone.probabilities.get)
    assert sum(tone.probabilities.values()) == pytest.approx(1.0)
    wetness = result.scores["wetness"]
    assert wetness.score == pytest.approx(sum(level * p for level, p in wetness.probabilities.items()))
    assert wetness.legend == {0: "None.", 1: "A drizzle.", 2: "A flood."}
    assert result.choices["sure"].confidence == 1.0
    assert result.usage.input_tokens > 0


async def test_system_ones_client_skips_missing_answers(typesafe: Any, listen: Any) -> None:
    def script(sequence: str) -> str:
        return PROGRAM if "Dry?" in sequence else "<preference>A</preference>"

    service = service_of(script, error=SandboxUnavailable("gone"))
    async with listen(dialect_app(service)) as url:

        def both() -> Any:
            with client_of(typesafe, url) as client:
                asked = {"dry": typesafe.Noul(instructions="Dry?"), "wet": typesafe.Noul(instructions="Wet?")}
                return client.system_one(state="It rains.", questions=asked)

        def alone() -> Any:
            with client_of(typesafe, url) as client:
                return client.system_one(state="It rains.", questions={"dry": typesafe.Noul(instructions="Dry?")})

        result = await asyncio.to_thread(both)
        assert set(result.answers) == {"wet"}
        with pytest.raises(typesafe.TypeSafeAPIError) as failed:
            await asyncio.to_thread(alone)
    assert failed.value.status == 503

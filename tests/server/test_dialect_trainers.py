"""Dialects of trainers. slime is tested with golden JSON; LLaMA-Factory and verl are tested with the client code from their
wheels."""

from __future__ import annotations

import asyncio
import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from tests.clients.wheels import Wheel, definitions, wheel
from tests.server.speaking import GOOD, PROGRAM, Speak, dialect_app, service_of, speak
from tirjudge.errors import SandboxUnavailable
from tirjudge_server.dialects import DialectSettings

__all__ = ["speak", "wheel"]

CHAT = "<|im_start|>user\nSay hello.<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n<|endoftext|>"

SLIME_TEXT = (
    b'{"prompt": "<|im_start|>user\\nSay hello.<|im_end|>\\n<|im_start|>assistant\\n", '
    b'"response": "Hello.", "label": null}'
)
SLIME_CHAT = b'{"prompt": [{"role": "user", "content": "Say hello."}], "response": "Hello.<|im_end|>", "label": "Hi!"}'


def good(sequence: str) -> str:
    assert "<response>\nHello.\n</response>" in sequence
    assert "<prompt>\nSay hello.\n</prompt>" in sequence
    return "<score>7</score>"


@pytest.mark.parametrize("golden", [SLIME_TEXT, SLIME_CHAT])
async def test_slime_gets_a_bare_number(speak: Speak, golden: bytes) -> None:
    async with speak(good) as client:
        response = await client.post("/rm", content=golden)
    assert isinstance(response.json(), float)
    assert response.json() == pytest.approx(GOOD, abs=1e-3)


async def test_slime_gets_object_if_url_has_reward_key(speak: Speak) -> None:
    async with speak(good) as client:
        answer = (await client.post("/rm?reward_key=score", content=SLIME_CHAT)).json()
    assert answer == {
        "score": pytest.approx(GOOD, abs=1e-3),
        "judge_failed": 0.0,
        "judge_forced": 0.0,
        "judge_tool_calls": 0.0,
    }


@pytest.fixture
def get_rewards(wheel: Wheel) -> Any:
    """LLaMA-Factory's reward function."""
    requests, torch = pytest.importorskip("requests"), pytest.importorskip("torch")
    found = definitions(
        wheel("llamafactory==0.9.5") / "llamafactory" / "train" / "ppo" / "ppo_utils.py",
        "get_rewards_from_server",
        given={"requests": requests, "torch": torch, "json": json},
    )
    return found.get_rewards_from_server


async def test_llama_factory_gets_a_tensor_of_the_whole_batch(get_rewards: Any, listen: Any) -> None:
    async with listen(dialect_app(service_of(good))) as url:
        rewards = await asyncio.to_thread(get_rewards, f"{url}/v1/score/evaluation", [CHAT, CHAT, CHAT])
    assert rewards.tolist() == pytest.approx([GOOD] * 3, abs=1e-3)


async def test_llama_factory_gets_all_scores_despite_failures(get_rewards: Any, listen: Any) -> None:
    service = service_of(lambda sequence: PROGRAM, error=SandboxUnavailable("gone"))
    async with listen(dialect_app(service, settings=DialectSettings(patience_s=0.0))) as url:
        rewards = await asyncio.to_thread(get_rewards, f"{url}/v1/score/evaluation", [CHAT, "no template"])
    assert rewards.tolist() == [0.5, 0.5]


@pytest.fixture
def verl(wheel: Wheel) -> Any:
    """The two methods of verl's reward worker that ask a vLLM server."""
    aiohttp = pytest.importorskip("aiohttp")
    return definitions(
        wheel("verl==0.9.1") / "verl" / "experimental" / "reward_loop" / "reward_loop.py",
        "RewardLoopWorker._post_request",
        "RewardLoopWorker.compute_score_disrm",
        given={"aiohttp": aiohttp, "asyncio": asyncio, "logger": logging.getLogger("verl"), "DataProto": object},
    )


def verl_worker(verl: Any, url: str) -> Any:
    worker = SimpleNamespace(reward_router_address=url.removeprefix("http://"))
    rollout = SimpleNamespace(name="vllm")
    model = SimpleNamespace(rollout=rollout, model_path="org/reward-model")
    worker.config = SimpleNamespace(reward=SimpleNamespace(reward_model=model))
    worker._post_request = lambda payload, endpoint: verl._post_request(worker, payload, endpoint)

    async def rendered(data: Any) -> str:
        return data

    worker._preprocess_reward_inputs = rendered
    return worker


async def test_verl_gets_the_reward_as_the_probability_of_a_class(verl: Any, listen: Any) -> None:
    async with listen(dialect_app(service_of(good))) as url:
        scored = await verl.compute_score_disrm(verl_worker(verl, url), CHAT)
    assert scored == {"reward_score": pytest.approx(GOOD, abs=1e-3)}


async def test_verl_continues_after_unreadable_chat(verl: Any, listen: Any) -> None:
    async with listen(dialect_app(service_of(good))) as url:
        scored = await verl.compute_score_disrm(verl_worker(verl, url), "no template")
    assert scored == {"reward_score": 0.5}

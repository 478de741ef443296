"""vLLM's scoring endpoints."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.speaking import GOOD, Speak, speak

__all__ = ["speak"]

CHAT = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>"


def seven(sequence: str) -> str:
    return "<score>7</score>"


async def post(client: Any, path: str, body: Any) -> dict[str, Any]:
    response = await client.post(path, json=body)
    assert response.status_code == 200, response.text
    answer = response.json()
    assert answer["object"] == "list"
    assert {"id", "created", "model", "usage"} <= set(answer)
    assert [row["index"] for row in answer["data"]] == list(range(len(answer["data"])))
    return answer


@pytest.mark.parametrize(
    ("body", "num"),
    [
        ({"model": "m", "text_1": "q", "text_2": "a"}, 1),
        ({"text_1": "q", "text_2": ["a", "b"]}, 2),
        ({"text_1": ["q", "r"], "text_2": ["a", "b"], "truncate_prompt_tokens": -1}, 2),
        ({"queries": "q", "documents": ["a", "b", "c"]}, 3),
        ({"queries": ["q"], "items": ["a"]}, 1),
        ({"data_1": "q", "data_2": ["a"]}, 1),
    ],
)
@pytest.mark.parametrize("path", ["/score", "/v1/score"])
async def test_each_pair_gets_a_score(speak: Speak, path: str, body: dict[str, Any], num: int) -> None:
    async with speak(seven) as client:
        answer = await post(client, path, body)
    expected = {"object": "score", "score": pytest.approx(GOOD, abs=1e-3), "judge_failed": False}
    assert [{k: v for k, v in row.items() if k != "index"} for row in answer["data"]] == [expected] * num


@pytest.mark.parametrize(
    "body", [{}, {"text_1": "q"}, {"text_1": ["q", "r"], "text_2": ["a"]}, {"queries": "q", "text_2": "a"}]
)
async def test_texts_that_do_not_form_pairs_are_refused(speak: Speak, body: dict[str, Any]) -> None:
    async with speak(seven) as client:
        assert (await client.post("/score", json=body)).status_code == 400


async def test_an_instruction_is_the_rubric(speak: Speak) -> None:
    seen: list[str] = []

    def script(sequence: str) -> str:
        seen.append(sequence)
        return "<score>7</score>"

    async with speak(script) as client:
        await post(client, "/score", {"text_1": "q", "text_2": "a", "instruction": "Only rhymes count."})
    assert "Only rhymes count." in seen[0]


async def test_classify_returns_the_reward_as_probability_of_one_class(speak: Speak) -> None:
    async with speak(seven) as client:
        answer = await post(client, "/classify", {"model": "m", "input": [CHAT, CHAT], "use_activation": False})
    assert [row["probs"] for row in answer["data"]] == [[pytest.approx(GOOD, abs=1e-3)]] * 2
    assert all(row["num_classes"] == len(row["probs"]) for row in answer["data"])


async def test_pooling_accepts_a_conversation(speak: Speak) -> None:
    chat = [{"role": "user", "content": [{"type": "text", "text": "q"}]}, {"role": "assistant", "content": "a"}]
    async with speak(seven) as client:
        answer = await post(client, "/pooling", {"messages": chat})
    assert answer["data"][0]["object"] == "pooling"
    assert answer["data"][0]["data"] == [pytest.approx(GOOD, abs=1e-3)]


async def test_unreadable_chat_gets_fallback_and_other_chats_are_scored(speak: Speak) -> None:
    async with speak(seven) as client:
        answer = await post(client, "/classify?fallback=-9", {"input": [CHAT, "no template", CHAT]})
    assert [row["judge_failed"] for row in answer["data"]] == [False, True, False]
    assert answer["data"][1]["probs"] == [-9]

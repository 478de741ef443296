"""NeMo Gym's resources server, with golden JSON."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.server.speaking import GOOD, PROGRAM, Speak, speak
from tirjudge.errors import SandboxUnavailable
from tirjudge_server.dialects import DialectSettings

__all__ = ["speak"]

COHORT = DialectSettings(patience_s=0.0, cohort_size=3, cohort_wait_s=60.0)


def response(text: str, *, index: int = 0) -> dict[str, Any]:
    """A response object of the OpenAI Responses API."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    reasoning = {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Let me think."}]}
    content = [{"type": "output_text", "text": text, "annotations": []}]
    output = [reasoning, message | {"content": content}]
    return {"id": f"resp_{index}", "object": "response", "model": "policy", "output": output, "tools": []}


def rollout(text: str, *, index: int = 0, prompt: str = "Say hello.", **extras: Any) -> dict[str, Any]:
    params = {"input": [{"role": "user", "content": prompt}], "instructions": "Be polite.", "temperature": 1.0}
    return {"responses_create_params": params, "response": response(text, index=index), **extras}


def longest(sequence: str) -> str:
    """A judge that prefers the longer response."""
    shown = [part.split("\n")[1] for part in sequence.split("<response_")[1:] if "</response_" in part]
    return f"<preference>{'AB'[len(shown[1]) > len(shown[0])]}</preference>"


async def test_verify_returns_the_request_with_its_reward(speak: Speak) -> None:
    body = rollout("Hello.", expected_answer="Hi!", uuid="row-1", _ng_task_index=3)
    seen: list[str] = []

    def script(sequence: str) -> str:
        seen.append(sequence)
        return "<score>7</score>"

    async with speak(script) as client:
        answer = (await client.post("/verify", json=body)).json()
    assert answer == body | {"reward": pytest.approx(GOOD, abs=1e-3), "mask_sample": False}
    assert "<response>\nHello.\n</response>" in seen[0]
    assert "Be polite." in seen[0]
    assert "Hi!" in seen[0]
    assert "Let me think." not in seen[0]


async def test_full_response_view_includes_the_reasoning(speak: Speak) -> None:
    seen: list[str] = []

    def script(sequence: str) -> str:
        seen.append(sequence)
        return "<score>7</score>"

    async with speak(script) as client:
        await client.post("/verify?response_view=full", json=rollout("Hello."))
    assert "Let me think." in seen[0]


async def test_failed_row_can_be_verified_again_and_loses_its_failure_fields(speak: Speak) -> None:
    async with speak(lambda sequence: PROGRAM, error=SandboxUnavailable("gone")) as client:
        failed = (await client.post("/verify", json=rollout("Hello."))).json()
    assert failed["_ng_failure_class"] == "judge_failed"
    async with speak(lambda sequence: "<score>7</score>") as client:
        again = (await client.post("/verify", json=failed)).json()
        mode = (await client.get("/reverify_mode")).json()
    assert mode == "stateless"
    assert again["reward"] == pytest.approx(GOOD, abs=1e-3)
    assert "_ng_failure_class" not in again
    assert again["mask_sample"] is again["instance_config"]["mask_sample"] is False


async def test_unpaired_surrogate_in_row_is_returned_unchanged(speak: Speak) -> None:
    body = b'{"responses_create_params": {"input": "p\\ud800"}, "response": {"output": []}, "note": "\\udfff"}'
    async with speak(lambda sequence: "<score>7</score>") as client:
        answer = await client.post("/verify", content=body)
    assert answer.status_code == 200
    assert answer.json()["note"] == "\udfff"


async def test_compare_scores_neighboring_responses_from_1_to_5(speak: Speak) -> None:
    body = {
        "conversation_history": [{"role": "user", "content": "Say hello."}],
        "response_objs": [response("A"), response("BB"), response("CCC")],
        "principle": "Longer is better.",
    }
    async with speak(longest) as client:
        answer = (await client.post("/compare", json=body)).json()
    pairs = [(row["response_i"], row["response_j"]) for row in answer["comparison_results"]]
    assert pairs == [(0, 1), (1, 2), (2, 0)]
    for row in answer["comparison_results"]:
        assert row["score_1"] + row["score_2"] == pytest.approx(6.0)
        assert (row["ranking"] < 3.5) == (row["score_1"] > row["score_2"])
        assert row["judge_idx"] == 0
    assert all(1 <= reward <= 5 for reward in answer["rewards"])
    assert sum(answer["rewards"]) == pytest.approx(9.0)
    assert answer["metrics"]["mean_individual_score"] == pytest.approx(3.0)


async def test_compare_strategy_is_set_in_the_query(speak: Speak) -> None:
    body = {
        "conversation_history": [{"role": "user", "content": "Say hello."}],
        "response_objs": [response(text) for text in ("A", "BB", "CCC", "DDDD")],
    }
    async with speak(longest) as client:
        answer = (await client.post("/compare?strategy=all_pairs", json=body)).json()
    assert len(answer["comparison_results"]) == 6


@pytest.mark.parametrize(("num", "rewards"), [(0, []), (1, [3.0])])
async def test_compare_of_fewer_than_two_responses_is_neutral(speak: Speak, num: int, rewards: list[float]) -> None:
    body = {"conversation_history": [{"role": "user", "content": "p"}], "response_objs": [response("A")] * num}
    async with speak(longest) as client:
        assert (await client.post("/compare", json=body)).json()["rewards"] == rewards


async def test_cohort_is_rewarded_when_complete(speak: Speak) -> None:
    rows = [rollout("x" * (i + 1), index=i, _ng_rollout_index=i) for i in range(3)]
    async with speak(longest, settings=COHORT) as client:
        first = asyncio.create_task(client.post("/verify", json=rows[0]))
        await asyncio.sleep(0.05)
        assert not first.done()
        others = await asyncio.gather(*(client.post("/verify", json=row) for row in rows[1:]))
        answers = [(await first).json(), *(answer.json() for answer in others)]
        assert [answer["_ng_rollout_index"] for answer in answers] == [0, 1, 2]
        assert sum(answer["reward"] for answer in answers) == pytest.approx(1.5)
        again = (await client.post("/verify", json=rows[0])).json()
        assert again["reward"] == answers[0]["reward"]
        assert (await client.get("/reverify_mode")).json() == "unsupported"


async def test_cohorts_of_different_prompts_and_attempts_are_separate(speak: Speak) -> None:
    named = {"_ng_group_id": "g", "_ng_group_attempt": 0}
    rows = [rollout("x" * (i + 1), index=i, prompt=prompt) for prompt in ("p", "q") for i in range(3)]
    rows += [rollout("y" * (i + 1), index=i, prompt=f"differs {i}", **named) for i in range(3)]
    async with speak(longest, settings=COHORT) as client:
        answers = await asyncio.gather(*(client.post("/verify", json=row) for row in rows))
    rewards = [answer.json()["reward"] for answer in answers]
    for start in (0, 3, 6):
        assert sum(rewards[start : start + 3]) == pytest.approx(1.5)


async def test_an_incomplete_cohort_is_masked_and_not_rewarded(speak: Speak) -> None:
    settings = DialectSettings(patience_s=0.0, cohort_size=3, cohort_wait_s=0.05)
    async with speak(longest, settings=settings) as client:
        answer = (await client.post("/verify", json=rollout("x"))).json()
    assert answer["_ng_failure_class"] == "judge_failed"
    assert "1 of 3 rollouts" in answer["failure_reason"]
    assert answer["mask_sample"] is True


async def test_all_rollouts_of_a_cohort_that_cannot_be_judged_are_masked(speak: Speak) -> None:
    rows = [rollout("x" * (i + 1), index=i) for i in range(3)]
    async with speak(lambda sequence: PROGRAM, error=SandboxUnavailable("gone"), settings=COHORT) as client:
        answers = await asyncio.gather(*(client.post("/verify", json=row) for row in rows))
    assert [answer.json()["_ng_failure_class"] for answer in answers] == ["judge_failed"] * 3


async def test_sessions_are_accepted_without_state(speak: Speak) -> None:
    async with speak(longest) as client:
        assert (await client.post("/seed_session", json={})).json() == {}
        for path in ("/seed_session", "/close_session"):
            answer = await client.post(path, json={"resources_session_id": "s", "episode_id": "e"})
            assert answer.json() == {"resources_session_id": "s"}


async def test_metrics_exclude_missing_scores(speak: Speak) -> None:
    rows = [
        {"_ng_task_index": 0, "reward": 1.0},
        {"_ng_task_index": 0, "reward": 0.5},
        {"_ng_task_index": 1, "reward": 0.0, "_ng_failure_class": "judge_failed"},
        {"_ng_task_index": 1, "reward": 0.0, "mask_sample": True},
        {"_ng_task_index": 2, "reward": 0.0},
    ]
    async with speak(longest) as client:
        answer = (await client.post("/aggregate_metrics", json={"verify_responses": rows})).json()
    assert answer["key_metrics"] == {"mean/reward": pytest.approx(0.5)}
    assert answer["agent_metrics"]["judge_failed"] == 2
    assert [group["_ng_task_index"] for group in answer["group_level_metrics"]] == [0, 2]

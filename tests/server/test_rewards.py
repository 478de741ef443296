"""`POST /v1/reward`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.speaking import GOOD, PROGRAM, Speak, dialect_app, service_of, speak
from tirjudge.errors import EngineUnavailable, SandboxUnavailable
from tirjudge_server.dialects import DialectSettings
from tirjudge_server.failure import MissingScore

__all__ = ["speak"]

ONE = {"prompt": "Say hello.", "response": "Hello.", "tools": "off"}
THREE = {"prompt": "Say hello.", "responses": ["Hello.", "Hi.", "Hey there."], "tools": "off"}


def says(verdict: str) -> Any:
    return lambda sequence: verdict


async def post(client: Any, body: dict[str, Any], *, status: int = 200) -> dict[str, Any]:
    response = await client.post("/v1/reward", json=body)
    assert response.status_code == status, response.text
    return response.json()


async def test_one_response_gets_its_expected_score_on_the_scale(speak: Speak) -> None:
    async with speak(says("<score>7</score>")) as client:
        answer = await post(client, ONE)
    (item,) = answer["data"]
    (reward,) = item["rewards"]
    assert answer["scale"] == [0.0, 1.0]
    assert reward["status"] == "scored"
    assert reward["reward"] == pytest.approx(GOOD, abs=1e-3)
    assert reward["score"] == pytest.approx(6.6, abs=1e-3)
    assert len(reward["judgments"]) == 1
    assert answer["counts"] == {"scored": 1, "abstained": 0, "failed": 0}
    assert answer["usage"]["judgments"] == 1


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"mode": "pointwise"}, 6 / 9),
        ({"mode": "pointwise", "scale": "raw"}, 7.0),
        ({"scale": "raw"}, 6.6),
        ({"scale": [-1, 1]}, 2 * GOOD - 1),
        ({"scale": [1, 0]}, 1 - GOOD),
    ],
)
async def test_modes_and_scales(speak: Speak, change: dict[str, Any], expected: float) -> None:
    async with speak(says("<score>7</score>")) as client:
        answer = await post(client, ONE | change)
    assert answer["data"][0]["rewards"][0]["reward"] == pytest.approx(expected, abs=1e-3)


async def test_pointwise_reward_is_the_mean_written_score_of_the_votes(speak: Speak) -> None:
    texts = iter(["<score>7</score>", "<score>3</score>", "<score>8</score>"])
    async with speak(lambda sequence: next(texts)) as client:
        answer = await post(client, ONE | {"mode": "pointwise", "scale": "raw", "votes": 3})
    assert answer["data"][0]["rewards"][0]["reward"] == pytest.approx(6.0)


async def test_a_response_is_compared_with_the_reference(speak: Speak) -> None:
    async with speak(says("<preference>A</preference>")) as client:
        answer = await post(client, ONE | {"mode": "pairwise_vs_reference", "reference": "Hello!"})
    (reward,) = answer["data"][0]["rewards"]
    assert reward["reward"] in (pytest.approx(0.8), pytest.approx(0.2))
    assert reward["score"] is None
    assert reward["comparisons"] == 1


async def test_both_orders_cancel_position_bias(speak: Speak) -> None:
    body = ONE | {"mode": "pairwise_vs_reference", "reference": "Hello!", "orders": "both"}
    async with speak(says("<preference>A</preference>")) as client:
        (reward,) = (await post(client, body))["data"][0]["rewards"]
    assert reward["reward"] == pytest.approx(0.5)
    assert reward["reason"] == "orders_disagree"


@pytest.mark.parametrize("strategy", ["circular", "all_pairs", "knockout", "listwise"])
async def test_cohort_rewards_are_relative(speak: Speak, strategy: str) -> None:
    async with speak(says("<preference>A</preference>")) as client:
        answer = await post(client, THREE | {"mode": "cohort", "strategy": strategy})
    rewards = answer["data"][0]["rewards"]
    assert [reward["status"] for reward in rewards] == ["scored"] * 3
    assert answer["strategy"] == strategy
    if strategy in ("circular", "all_pairs"):
        assert sum(reward["reward"] for reward in rewards) == pytest.approx(1.5)
        assert [reward["comparisons"] for reward in rewards] == [2, 2, 2]
    if strategy == "listwise":
        assert sum(reward["reward"] for reward in rewards) == pytest.approx(1.0)


async def test_items_are_returned_in_order_with_their_ids(speak: Speak) -> None:
    items = [{"id": f"item-{i}", "prompt": "p", "response": f"r{i}"} for i in range(80)]
    async with speak(says("<score>7</score>")) as client:
        answer = await post(client, {"items": items, "tools": "off"})
    assert [row["id"] for row in answer["data"]] == [item["id"] for item in items]
    assert answer["counts"]["scored"] == 80


@pytest.mark.slow
async def test_list_with_more_items_than_the_queue_is_judged(connect) -> None:
    service = service_of(says("<score>7</score>"), max_concurrency=1, max_queue=1)
    items = [{"prompt": "p", "response": f"r{i}"} for i in range(5)]
    async with connect(dialect_app(service)) as client:
        answer = await post(client, {"items": items, "tools": "off"})
    assert answer["counts"] == {"scored": 5, "abstained": 0, "failed": 0}


async def test_abstention_has_no_reward_and_a_reason(speak: Speak) -> None:
    fallbacks = DialectSettings()
    async with speak(says("I cannot say."), settings=fallbacks) as client:
        answer = await client.post("/v1/reward", json=ONE | {"force_verdict": False})
    (reward,) = answer.json()["data"][0]["rewards"]
    assert (reward["status"], reward["reward"], reward["reason"]) == ("abstained", None, "no_verdict")
    assert answer.headers["x-judge-failed"] == "1"
    assert fallbacks.fallbacks.counts["reward", MissingScore.PARSE_FAILED] == 1


async def test_an_item_that_fails_does_not_stop_the_others(speak: Speak) -> None:
    def script(sequence: str) -> str:
        return PROGRAM if "needs a program" in sequence else "<score>7</score>"

    items = [{"prompt": "p", "response": "fine"}, {"prompt": "p", "response": "needs a program"}]
    async with speak(script, error=SandboxUnavailable("lost its fork-server")) as client:
        answer = await post(client, {"items": items})
    first, second = (row["rewards"][0] for row in answer["data"])
    assert (first["status"], second["status"]) == ("scored", "failed")
    assert second["reward"] is None
    assert second["error"]["code"] == "sandbox_unavailable"
    assert answer["counts"] == {"scored": 1, "abstained": 0, "failed": 1}


async def test_http_error_has_retry_after_if_all_judgments_fail(speak: Speak) -> None:
    async with speak(says(PROGRAM), error=EngineUnavailable("no GPU")) as client:
        response = await client.post("/v1/reward", json=ONE | {"tools": "auto"})
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "engine_unavailable"
    assert int(response.headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": "p"}, "response"),
        ({"prompt": "p", "response": "a", "responses": ["b"]}, "response"),
        ({"prompt": "p", "response": "a", "items": [{"prompt": "p", "response": "a"}]}, "items"),
        ({"items": []}, "items"),
        (ONE | {"mode": "cohort"}, "responses"),
        (ONE | {"mode": "pairwise_vs_reference"}, "reference"),
        (ONE | {"mode": "best"}, "mode"),
        (ONE | {"scale": [1]}, "scale"),
        (ONE | {"scale": [1, 1]}, "scale"),
        (ONE | {"scale": "RAW"}, "scale"),
        (ONE | {"votes": 0}, "votes"),
        (ONE | {"respnse": "a"}, "respnse"),
        (ONE | {"model": "gpt-7"}, "model"),
    ],
)
async def test_error_for_a_wrong_field_names_it(speak: Speak, body: dict[str, Any], param: str) -> None:
    async with speak(says("<score>7</score>")) as client:
        response = await client.post("/v1/reward", json=body)
    assert response.status_code in (400, 404)
    assert response.json()["error"]["param"].startswith(param), response.text


async def test_the_reference_is_shown_to_the_judge(speak: Speak) -> None:
    seen: list[str] = []

    def script(sequence: str) -> str:
        seen.append(sequence)
        return "<score>7</score>"

    async with speak(script) as client:
        await post(client, ONE | {"reference": "Good day to you.", "rubric": "Politeness counts."})
    assert "Good day to you." in seen[0]
    assert "Politeness counts." in seen[0]


async def test_passed_deadline_is_a_failure(speak: Speak) -> None:
    async with speak(says("<score>7</score>")) as client:
        response = await client.post("/v1/reward", json=ONE | {"deadline_s": 1e-9})
    assert response.status_code >= 500


async def test_reward_uses_output_of_real_program(make_service, connect) -> None:
    def script(sequence: str) -> str:
        counts = "```python\nprint(len(response))\n```\n```output"
        return "<score>7</score>" if "```output\n6\n" in sequence else counts

    async with connect(dialect_app(make_service(script))) as client:
        answer = await post(client, {"prompt": "Say hello.", "response": "Hello."})
    (reward,) = answer["data"][0]["rewards"]
    assert reward["tool_calls"] == 1
    assert reward["reward"] == pytest.approx(GOOD, abs=1e-3)

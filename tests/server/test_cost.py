"""The cost of a request is computed before it is judged, and small bodies with a high cost are refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from tests.server.speaking import service_of
from tirjudge.http.rewards import RewardMode
from tirjudge.types import JudgeRequest
from tirjudge_server.app import create_app
from tirjudge_server.cost import Cost, CostLimits, group_cost, request_cost
from tirjudge_server.scoring import ResponseGroup, Scoring
from tirjudge_web.errors import Refused

Connect = Callable[[FastAPI], httpx2.AsyncClient]

NO_TOOLS = {"tools": "off"}


def never(sequence: str) -> str:
    raise AssertionError("nothing of a request that costs too much is judged")


def rollout(number: int) -> dict[str, Any]:
    return {"output": [{"type": "message", "content": [{"type": "output_text", "text": f"answer {number}"}]}]}


ALL_PAIRS = {
    "conversation_history": [{"role": "user", "content": "Say hello."}],
    "response_objs": [rollout(number) for number in range(600)],
}
ANSWERS = [f"answer {number}" for number in range(600)]
LONG = "x" * 1_000_000

COSTLY: dict[str, tuple[str, Any]] = {
    "all pairs of NeMo's compare": ("/compare?strategy=all_pairs", ALL_PAIRS),
    "both orders and many votes of compare": ("/compare?orders=both&votes=64", ALL_PAIRS),
    "all pairs of a rerank": ("/v1/rerank", {"prompt": "p", "responses": ANSWERS, "method": "all_pairs", **NO_TOOLS}),
    "all pairs of documents": ("/rerank?method=all_pairs", {"query": "p", "documents": ANSWERS}),
    "a long query beside many documents": (
        "/rerank?method=pointwise",
        {"query": LONG, "documents": ANSWERS},
    ),
    "all pairs of a cohort": (
        "/v1/reward",
        {"prompt": "p", "responses": ANSWERS, "mode": "cohort", "strategy": "all_pairs", **NO_TOOLS},
    ),
    "many items of many responses": (
        "/v1/reward",
        {"items": [{"prompt": "p", "responses": ["a", "b"]}] * 300, "votes": 64, **NO_TOOLS},
    ),
    "a long prompt of many responses": ("/v1/reward", {"prompt": LONG, "responses": ANSWERS, **NO_TOOLS}),
    "votes on many responses": (
        "/v1/judge",
        {"mode": "pointwise", "prompt": "p", "responses": ANSWERS, "votes": 64, **NO_TOOLS},
    ),
    "a long prompt shown for each vote": (
        "/v1/judge",
        {"mode": "pairwise", "prompt": LONG, "responses": ["a", "b"], "votes": 64, "orders": "both", **NO_TOOLS},
    ),
    "a batch of many votes": (
        "/v1/judge/batch",
        {"requests": [{"mode": "pointwise", "prompt": "p", "responses": ["a"], "votes": 64, **NO_TOOLS}] * 300},
    ),
    "many questions about a long input": (
        "/v1/decisions",
        {"model": "judge", "input": LONG, "questions": [{"type": "predicate", "instructions": "Is it so?"}] * 400},
    ),
    "many questions about a long conversation": (
        "/v1/decisions",
        {
            "model": "judge",
            "input": [{"role": "user", "content": LONG}, {"role": "assistant", "content": "Yes."}],
            "questions": [{"type": "predicate", "instructions": "Is it so?"}] * 400,
        },
    ),
    "votes on many questions": (
        "/v1/decisions",
        {
            "model": "judge",
            "input": "p",
            "questions": [{"type": "predicate", "instructions": "Is it so?"}] * 400,
            "judge": {"votes": 64, "orders": "both"},
        },
    ),
    "many questions about a long state": (
        "/v1/systemone",
        {"state": {"text": LONG}, "questions": {f"q{n}": {"type": "noul"} for n in range(400)}},
    ),
    "choices of a chat": (
        "/v1/chat/completions",
        {
            "model": "judge",
            "n": 16,
            "messages": [{"role": "user", "content": "Which is better?"}],
            "judge": {"mode": "pointwise", "responses": ANSWERS, "votes": 4, **NO_TOOLS},
        },
    ),
    "a template that repeats the sample": (
        "/v1/fine_tuning/alpha/graders/run",
        {
            "grader": {
                "type": "string_check",
                "name": "g",
                "operation": "eq",
                "reference": "x",
                "input": "{{sample.output_text}}" * 20_000,
            },
            "model_sample": "x" * 100_000,
        },
    ),
    "messages that repeat the item": (
        "/v1/fine_tuning/alpha/graders/run",
        {
            "grader": {
                "type": "score_model",
                "name": "g",
                "model": "judge",
                "input": [{"role": "user", "content": "{{ item }}" * 100}] * 10,
            },
            "item": {"text": LONG},
            "model_sample": "x",
        },
    ),
    "parts that repeat the sample together": (
        "/v1/fine_tuning/alpha/graders/run",
        {
            "grader": {
                "type": "multi",
                "name": "m",
                "calculate_output": "g0",
                "graders": {
                    f"g{number}": {
                        "type": "string_check",
                        "name": f"g{number}",
                        "operation": "eq",
                        "reference": "x",
                        "input": "{{sample.output_text}}" * 4,
                    }
                    for number in range(32)
                },
            },
            "model_sample": LONG,
        },
    ),
    "JSON of many small values": ("/verify", b'{"response": {"a": [' + b"[]," * 1_000_000 + b"[]]}}"),
    "JSON of many small values inside a sample": (
        "/v1/fine_tuning/alpha/graders/run",
        {
            "grader": {"type": "string_check", "name": "g", "operation": "eq", "reference": "x", "input": "y"},
            "model_sample": "[" + "[]," * 1_000_000 + "[]]",
        },
    ),
}


@pytest.mark.parametrize("name", COSTLY)
async def test_too_costly_request_gets_413_with_figures(connect: Connect, name: str) -> None:
    path, body = COSTLY[name]
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with connect(create_app(service_of(never))) as client:
        response = await client.post(path, content=content)
    assert response.status_code == 413, response.text[:500]
    error = response.json()["error"]
    assert error["code"] == "too_much_work"
    assert "at most" in error["message"]
    assert "split" in error["message"] or "shorten" in error["message"]


async def test_commas_in_text_do_not_count_as_json_values(connect: Connect) -> None:
    body = {"mode": "pointwise", "prompt": '[{,:"\\' * 200_000, "responses": ["a"], **NO_TOOLS}
    async with connect(create_app(service_of(["<score>7</score>"]))) as client:
        assert (await client.post("/v1/judge", json=body)).status_code == 200


async def test_only_the_batch_line_that_costs_too_much_gets_413(connect: Connect) -> None:
    good = {"mode": "pointwise", "prompt": "p", "responses": ["a"], **NO_TOOLS}
    service = service_of(["<score>7</score>"], cost_limits=CostLimits(chars=50))
    async with connect(create_app(service)) as client:
        assert (await client.post("/v1/judge", json=good)).status_code == 200
        refused = await client.post("/v1/judge", json=good | {"prompt": "p" * 50})
    assert refused.status_code == 413
    assert refused.json()["error"]["message"].startswith("body: 51 characters")


# If a trainer ends its run after an HTTP error, its dialect returns a score for every sample.

CHAT = "<|im_start|>user\nSay hello.<|im_end|>\n<|im_start|>assistant\n{}<|im_end|>"


async def test_other_samples_are_judged_if_one_sample_costs_too_much(connect: Connect) -> None:
    service = service_of(lambda sequence: "<score>7</score>", cost_limits=CostLimits(chars=1000))
    queries = [CHAT.format("Hello."), CHAT.format("x" * 900), CHAT.format("Hi.")]
    async with connect(create_app(service)) as client:
        answer = (await client.post("/get_reward?votes=2&tools=off", json={"query": queries})).json()
    assert answer["extra_logs"]["judge_failed"] == [0.0, 1.0, 0.0]
    assert answer["rewards"][1] == 0.5


async def test_shared_prompt_counts_for_each_sample(connect: Connect) -> None:
    service = service_of(never, cost_limits=CostLimits(chars=100_000))
    body = {"query": ["x" * 90_000 + "Hello."] * 4, "prompts": "x" * 90_000, "labels": {"answer": "x" * 90_000}}
    async with connect(create_app(service)) as client:
        answer = await client.post("/get_reward", json=body)
        score = await client.post("/score", json={"text_1": "x" * 90_000, "text_2": ["a", "b"]})
    assert answer.json()["extra_logs"]["judge_failed"] == [1.0] * 4
    assert [row["judge_failed"] for row in score.json()["data"]] == [True, True]
    assert score.headers["x-judge-failed"] == "2"


async def test_too_many_samples_are_refused_in_every_dialect(connect: Connect) -> None:
    service = service_of(never, cost_limits=CostLimits(rollouts=10))
    async with connect(create_app(service)) as client:
        for path, body in (
            ("/get_reward", {"query": ["a"] * 11}),
            ("/v1/score/evaluation", {"messages": ["a"] * 11}),
            ("/classify", {"input": ["a"] * 11}),
        ):
            assert (await client.post(path, json=body)).status_code == 413, path


# The computed cost.


@pytest.mark.parametrize(
    ("fields", "cost"),
    [
        ({"mode": "pointwise", "responses": ["ab", "c"]}, Cost(rollouts=2, chars=2 * 4 + 3)),
        ({"mode": "pointwise", "responses": ["ab", "c"], "votes": 3}, Cost(rollouts=6, chars=3 * 11)),
        ({"mode": "pairwise", "responses": ["ab", "c"], "orders": "both"}, Cost(rollouts=2, chars=2 * (4 + 3))),
        ({"mode": "listwise", "responses": ["a"] * 5}, Cost(rollouts=1, chars=4 + 5)),
        # Groups of 5: 30 responses in 6 groups, the 6 winners in 2 groups, the 2 winners in 1 group.
        ({"mode": "listwise", "responses": ["a"] * 30}, Cost(rollouts=9, chars=9 * 4 + 3 * 30)),
        ({"mode": "pointwise", "responses": [""], "rubric": "xy", "reference": "z"}, Cost(rollouts=1, chars=4 + 3)),
    ],
)
def test_request_cost_counts_rollouts_and_characters(fields: dict[str, Any], cost: Cost) -> None:
    assert request_cost(JudgeRequest(prompt="four", **fields), group_size=5) == cost


@pytest.mark.parametrize(
    ("scoring", "cost"),
    [
        (Scoring(), Cost(rollouts=4, chars=4 * 2 + 10)),
        (Scoring(mode=RewardMode.COHORT, strategy="all_pairs"), Cost(rollouts=6, chars=6 * 2 + 3 * 10)),
        (Scoring(mode=RewardMode.COHORT, strategy="circular"), Cost(rollouts=4, chars=4 * 2 + 2 * 10)),
        (Scoring(mode=RewardMode.COHORT, strategy="listwise"), Cost(rollouts=1, chars=2 + 10)),
        (
            Scoring(mode=RewardMode.COHORT, strategy="circular", judging={"orders": "both", "votes": 2}),
            Cost(rollouts=16, chars=4 * 28),
        ),
    ],
)
def test_group_cost_counts_comparisons(scoring: Scoring, cost: Cost) -> None:
    group = ResponseGroup(prompt="pq", responses=("a", "bb", "ccc", "dddd"))
    assert group_cost(group, scoring=scoring, group_size=26) == cost


def test_parts_within_an_equal_share_are_affordable() -> None:
    limits = CostLimits(rollouts=10, chars=90)
    small, large = Cost(rollouts=1, chars=30), Cost(rollouts=1, chars=80)
    assert limits.affordable([small, small]) == [True, True]
    assert limits.affordable([small, large, small]) == [True, False, True]
    assert limits.affordable([large]) == [True]


def test_request_at_the_limit_is_accepted() -> None:
    CostLimits(rollouts=2, chars=10).check(Cost(rollouts=2, chars=10))
    with pytest.raises(Refused, match="3 rollouts"):
        CostLimits(rollouts=2, chars=10).check(Cost(rollouts=3, chars=10))


@pytest.mark.slow
async def test_large_requests_do_not_block_the_event_loop(connect: Connect) -> None:
    """The server yields to the event loop between the questions of a request."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    service = service_of(lambda sequence: "<preference>A</preference>")
    body = {"prompt": "p", "responses": ANSWERS[:64], "method": "all_pairs", **NO_TOOLS}
    async with connect(create_app(service)) as client:
        counting = asyncio.create_task(other())
        answer = await client.post("/v1/rerank", json=body)
        counting.cancel()
    assert answer.status_code == 200
    assert answer.json()["usage"]["judgments"] == 64 * 63 // 2
    assert turns > 64 * 63 // 2

"""Functions of programs over HTTP: which ones a request may name, and how many calls a caller may make."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from tirjudge.tools.functions import Budget, CallAccount, ToolError, Used
from tirjudge_sandbox.candidates import FUNCTIONS
from tirjudge_server.accounts import MAX_ACCOUNTS, CallerAccounts
from tirjudge_server.app import create_app

NAMES = {"run": "1", "run_many": "1", "tests": "1"}
BODY = {"mode": "pairwise", "prompt": "Which is longer?", "responses": ["one", "three"]}
SHOWS = "```python\nprint('run' in globals(), 'tests' in globals())\n```\n```output"
RUN = FUNCTIONS[0]


@pytest.fixture
async def client(make_service: Any, connect: Any) -> AsyncIterator[httpx2.AsyncClient]:
    def says(sequence: str) -> str:
        if SHOWS not in sequence:
            return SHOWS
        return "<score>7</score>" if "<response>" in sequence else "<preference>A</preference>"

    async with connect(create_app(make_service(says, functions=FUNCTIONS))) as connected:
        yield connected


async def test_the_served_judge_lists_its_functions(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/v1/models")).json()["data"][0]["functions"] == NAMES


async def test_a_server_without_functions_lists_none(make_service: Any, connect: Any) -> None:
    async with connect(create_app(make_service(["<preference>A</preference>"]))) as plain:
        assert "functions" not in (await plain.get("/v1/models")).json()["data"][0]
        refused = await plain.post("/v1/judge", json=BODY | {"functions": ["run"]})
    assert "offered: none; the operator enables them with --tool" in refused.json()["error"]["message"]


async def test_a_request_names_the_functions_of_its_programs(client: httpx2.AsyncClient) -> None:
    shown = {}
    for names in (None, ["run"], []):
        answer = await client.post("/v1/judge", json=BODY | {"functions": names})
        assert answer.status_code == 200, answer.text
        shown[str(names)] = answer.json()["rollouts"][0]["turns"][0]["output"]
    assert shown == {"None": "True True", "['run']": "True False", "[]": "False False"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/judge", BODY),
        ("/v1/reward", {"prompt": "p", "responses": ["a", "b"]}),
        ("/v1/rerank", {"prompt": "p", "responses": ["a", "b"]}),
    ],
)
async def test_an_unknown_function_is_a_400_that_lists_the_offered_ones(
    client: httpx2.AsyncClient, path: str, body: dict[str, Any]
) -> None:
    answer = await client.post(path, json=body | {"functions": ["run", "walk"]})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, "functions", "unknown_function")
    assert error["message"] == "functions: 'walk' is not offered; offered: run, run_many, tests"
    assert (await client.post(path, json=body | {"functions": ["run"], "candidate_code": "refuse"})).status_code == 200


async def test_an_unknown_function_in_a_batch_fails_its_request_only(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/v1/judge/batch", json={"requests": [BODY | {"functions": ["walk"]}, BODY]})
    wrong, right = answer.json()["data"]
    assert (wrong["error"]["param"], wrong["judgment"]) == ("functions", None)
    assert right["error"] is None


async def test_an_unknown_function_in_the_url_of_a_dialect_is_a_400(client: httpx2.AsyncClient) -> None:
    body = {"query": ["qa"], "prompts": ["q"], "labels": [""]}
    answer = await client.post('/get_reward?functions=["walk"]', json=body)
    assert answer.status_code == 400, answer.text
    assert "walk" in answer.text


async def test_functions_have_no_effect_without_tools(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/v1/judge", json=BODY | {"tools": "off", "functions": ["walk"]})
    assert answer.status_code == 200, answer.text


async def test_calls_count_for_the_length_of_a_window() -> None:
    account = CallAccount(Budget(calls=2, seconds=0.0), whose="alice", window_s=0.05)
    for _ in range(2):
        account.charge(RUN, Used(calls=1))
    for _ in range(3):
        with pytest.raises(ToolError, match=r"alice is used up: 2 calls"):
            account.charge(RUN, Used(calls=1))
    await asyncio.sleep(0.06)
    account.charge(RUN, Used(calls=2))  # the refused calls did not count


def test_long_calls_of_a_caller_do_not_use_up_the_time_of_its_next_judgment() -> None:
    caller = CallerAccounts(calls_per_minute=1000).of("alice")
    assert caller is not None
    CallAccount(parent=caller).spend(RUN, seconds=RUN.budget.seconds)
    assert CallAccount(parent=caller).seconds_left(RUN) == RUN.budget.seconds


def test_accounts_are_bounded_and_the_last_used_stay() -> None:
    accounts = CallerAccounts(calls_per_minute=1)
    first = accounts.of("0")
    for number in range(1, MAX_ACCOUNTS):
        accounts.of(str(number))
    assert accounts.of("0") is first
    accounts.of("one more")
    assert accounts.of("0") is first
    assert len(accounts._by_caller) == MAX_ACCOUNTS
    assert CallerAccounts(calls_per_minute=None).of("0") is None

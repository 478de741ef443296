"""What a request can make of the service's answer is known before its programs run."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tirjudge_sandbox import Limits, SandboxPool
from tirjudge_sandbox.app import create_app
from tirjudge_sandbox.service import SandboxService

MIB = 1 << 20
NEVER = "raise SystemExit('nothing of a request that costs too much runs')"


async def post(service: SandboxService, path: str, body: Any) -> httpx2.Response:
    transport = httpx2.ASGITransport(app=create_app(service), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.post(path, json=body)


def check_refusal(response: httpx2.Response, service: SandboxService) -> None:
    assert response.status_code == 413, response.text[:300]
    error = response.json()["error"]
    assert error["code"] == "too_much_work"
    assert "at most 67,108,864" in error["message"]
    assert service.pool.stats().num_programs == 0


async def test_programs_of_a_batch_that_may_fetch_too_much_together_are_refused_unrun(
    start_service: Callable[..., Any],
) -> None:
    service = await start_service()
    limits = {"file_mb": 16, "scratch_mb": 64, "fetch_bytes": 16 * MIB}
    program = {"code": NEVER, "fetch": ["sparse"], "limits": limits}
    response = await post(service, "/v1/execute/batch", {"programs": [program] * 4})
    check_refusal(response, service)
    assert "67,436,544 bytes" in response.json()["error"]["message"]  # 4 x (16 MiB + 64 KiB + 16 KiB)


async def test_programs_of_a_batch_that_may_print_too_much_together_are_refused_unrun(
    start_service: Callable[..., Any],
) -> None:
    service = await start_service()
    response = await post(service, "/v1/execute/batch", {"programs": [{"code": NEVER}] * 1000})
    check_refusal(response, service)


async def test_many_programs_that_print_little_are_taken(start_service: Callable[..., Any]) -> None:
    service = await start_service()
    programs = [{"code": "print('x' * 100)", "limits": {"output_bytes": 10}}] * 2 + [{"code": ""}] * 2
    response = await post(service, "/v1/execute/batch", {"programs": programs})
    assert [result["outcome"] for result in response.json()["results"]] == ["ok"] * 4
    assert response.json()["results"][0]["truncated"] is True


async def test_what_a_program_hands_back_is_bounded_by_its_own_limit(start_service: Callable[..., Any]) -> None:
    service = await start_service(limits=Limits(fetch_bytes=3 * MIB))
    if not service.pool.level.startswith("namespaces"):
        pytest.skip("programs have no directory of their own at this level")
    code = "for name in 'ab':\n    with open(name, 'wb') as file: file.truncate(2 << 20)"
    response = await post(service, "/v1/execute", {"code": code, "fetch": ["a", "b"]})
    assert {name: len(base64.b64decode(content)) for name, content in response.json()["files"].items()} == {
        "a": 2 * MIB
    }


async def test_observations_of_many_actions_share_the_answer(start_service: Callable[..., Any]) -> None:
    service = await start_service()
    service.max_answer_bytes = 3 * (16_384 + 2048)
    body = {"trajectory_ids": ["a", "b", "c"], "actions": ["<python>print('x' * 60_000)</python>"] * 3}
    observations = (await post(service, "/get_observation", body)).json()["observations"]
    assert all(1500 < len(observation) < 2600 for observation in observations), [len(one) for one in observations]


async def test_more_actions_than_fit_an_answer_are_refused_unrun(start_service: Callable[..., Any]) -> None:
    service = await start_service()
    body = {"trajectory_ids": ["t"] * 5000, "actions": ["<python>print(1)</python>"] * 5000}
    check_refusal(await post(service, "/get_observation", body), service)


async def test_a_pool_of_any_level_takes_the_limit(start_service: Callable[..., Any]) -> None:
    async with SandboxPool(slots=1, limits=Limits(fetch_bytes=1)) as pool:
        assert (await pool.run("print(1)")).stdout == "1\n"

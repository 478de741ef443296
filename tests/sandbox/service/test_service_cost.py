"""The maximum size of a response is computed and checked before the programs run."""

from __future__ import annotations

import base64
from typing import Any

import httpx2
import pytest

from tirjudge_sandbox import Limits
from tirjudge_sandbox.app import create_app
from tirjudge_sandbox.service import SandboxService

MIB = 1 << 20
NEVER = "raise SystemExit('programs of a request that costs too much must not run')"


async def post(service: SandboxService, path: str, body: Any) -> httpx2.Response:
    transport = httpx2.ASGITransport(app=create_app(service), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.post(path, json=body)


async def refusal(service: SandboxService, path: str, body: Any) -> str:
    """Post a request, check that it is refused before any program runs, and return the message."""
    before = service.pool.stats().num_programs
    response = await post(service, path, body)
    assert response.status_code == 413, response.text[:300]
    error = response.json()["error"]
    assert error["code"] == "too_much_work"
    assert "at most 67,108,864" in error["message"]
    assert service.pool.stats().num_programs == before
    return error["message"]


async def test_a_batch_that_may_fetch_too_much_is_refused(service: SandboxService) -> None:
    limits = {"file_mb": 16, "scratch_mb": 64, "fetch_bytes": 16 * MIB}
    program = {"code": NEVER, "fetch": ["sparse"], "limits": limits}
    message = await refusal(service, "/v1/execute/batch", {"programs": [program] * 4})
    assert "67,436,544 bytes" in message  # 4 x (16 MiB + 64 KiB + 16 KiB)


async def test_a_batch_that_may_print_too_much_is_refused(service: SandboxService) -> None:
    await refusal(service, "/v1/execute/batch", {"programs": [{"code": NEVER}] * 1000})


async def test_a_batch_with_low_output_limits_is_run(service: SandboxService) -> None:
    programs = [{"code": "print('x' * 100)", "limits": {"output_bytes": 10}}] * 2 + [{"code": ""}] * 2
    response = await post(service, "/v1/execute/batch", {"programs": programs})
    assert [result["outcome"] for result in response.json()["results"]] == ["ok"] * 4
    assert response.json()["results"][0]["truncated"] is True


async def test_fetched_files_of_a_program_are_limited_in_total(service: SandboxService) -> None:
    if not service.pool.level.startswith("namespaces"):
        pytest.skip("programs have no private directory at this level")
    code = "for name in 'ab':\n    with open(name, 'wb') as file: file.truncate(2 << 20)"
    body = {"code": code, "fetch": ["a", "b"], "limits": {"fetch_bytes": 3 * MIB}}
    response = await post(service, "/v1/execute", body)
    assert {name: len(base64.b64decode(content)) for name, content in response.json()["files"].items()} == {
        "a": 2 * MIB
    }


async def test_observations_of_many_actions_share_the_maximum(service: SandboxService) -> None:
    service.max_answer_bytes = 3 * (16_384 + 2048)
    body = {"trajectory_ids": ["a", "b", "c"], "actions": ["<python>print('x' * 60_000)</python>"] * 3}
    observations = (await post(service, "/get_observation", body)).json()["observations"]
    assert all(1500 < len(observation) < 2600 for observation in observations), [len(one) for one in observations]


async def test_too_many_actions_are_refused(service: SandboxService) -> None:
    body = {"trajectory_ids": ["t"] * 5000, "actions": ["<python>print(1)</python>"] * 5000}
    await refusal(service, "/get_observation", body)


async def test_a_fetch_limit_is_accepted_without_fetched_files(service: SandboxService) -> None:
    assert (await service.pool.run("print(1)", limits=Limits(fetch_bytes=1))).stdout == "1\n"

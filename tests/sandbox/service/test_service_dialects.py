"""The request formats of SandboxFusion and verl-tool, with responses read as their clients do."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from tests.waiting import until
from tirjudge_sandbox import Limits
from tirjudge_sandbox.app import create_app
from tirjudge_sandbox.service import SandboxService

VERL = {"compile_timeout": 10, "run_timeout": 10, "stdin": None, "memory_limit_MB": 1024, "language": "python"}
"""The fields that verl posts in addition to the code, with its defaults."""


def reward_of(answer: dict[str, Any], *, expected: str | None) -> bool | int:
    """Return verl's reward for a response: whether the output is right, or -1 (sandbox), -2 (error), -3 (timeout)."""
    run = answer["run_result"]
    if answer["status"] == "Success":
        assert run["status"] == "Finished"
        return expected is None or run["stdout"].rstrip("\n") == expected.rstrip("\n")
    if answer["status"] == "SandboxError" or not run:
        return -1
    assert answer["status"] == "Failed"
    assert answer["compile_result"] is None
    if run["status"] == "TimeLimitExceeded":
        return -3
    assert run["status"] == "Finished"
    return -2 if run["return_code"] != 0 else -1


def shown_by_a_tool(answer: dict[str, Any]) -> str:
    """Return the text that verl's tool shows a model: both streams of a program that finished."""
    run = answer["run_result"]
    return run["stdout"] + run["stderr"] if run["status"] == "Finished" else "no stdout here"


@asynccontextmanager
async def holding(service: SandboxService) -> AsyncIterator[None]:
    """Keep the only slot of a service busy."""
    running = asyncio.create_task(service.pool.run("import time\ntime.sleep(600)", limits=Limits(wall_s=120)))
    await until(lambda: not service.pool.stats().num_idle)
    yield
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await until(lambda: service.pool.stats().num_idle)


async def run_code(client: httpx2.AsyncClient, code: str, **fields: Any) -> dict[str, Any]:
    response = await client.post("/run_code", json=VERL | {"code": code, "files": {}, "fetch_files": []} | fields)
    response.raise_for_status()
    answer = response.json()
    assert {"status", "message", "compile_result", "run_result", "executor_pod_name", "files"} <= set(answer)
    if answer["run_result"] is not None:
        assert isinstance(answer["run_result"]["stdout"], str)
        assert isinstance(answer["run_result"]["stderr"], str)
    return answer


async def test_a_right_answer_is_rewarded(client: httpx2.AsyncClient) -> None:
    answer = await run_code(client, "print(int(input()) + 1)", stdin="41\n")
    assert reward_of(answer, expected="42") is True
    assert reward_of(answer, expected="43") is False
    assert answer["run_result"]["return_code"] == 0
    assert answer["run_result"]["execution_time"] > 0


async def test_an_error_of_the_program_is_shown_and_not_rewarded(client: httpx2.AsyncClient) -> None:
    answer = await run_code(client, "print(1)\n[][1]")
    assert reward_of(answer, expected="1") == -2
    assert shown_by_a_tool(answer).startswith("1\nTraceback")
    assert shown_by_a_tool(answer).endswith("IndexError: list index out of range\n")


async def test_the_return_code_is_the_exit_code(client: httpx2.AsyncClient) -> None:
    assert (await run_code(client, "raise SystemExit(7)"))["run_result"]["return_code"] == 7
    assert (await run_code(client, "raise SystemExit(0)"))["status"] == "Success"


@pytest.mark.slow
async def test_only_a_timeout_has_no_return_code(client: httpx2.AsyncClient) -> None:
    for code in ("while True: pass", "import time\ntime.sleep(600)"):
        answer = await run_code(client, "print('so far')\n" + code, run_timeout=0.5)
        assert reward_of(answer, expected="so far") == -3
        assert answer["run_result"]["return_code"] is None
        assert answer["run_result"]["stdout"] == "so far\n"


async def test_exhausted_memory_is_a_memory_error(client: httpx2.AsyncClient) -> None:
    answer = await run_code(client, "x = bytearray(2**31)", memory_limit_MB=128)
    assert reward_of(answer, expected=None) == -2
    assert (answer["outcome"], answer["run_result"]["return_code"]) == ("oom", 137)
    assert "MemoryError" in shown_by_a_tool(answer).splitlines()[-1]


async def test_a_signal_is_a_negative_return_code(client: httpx2.AsyncClient) -> None:
    answer = await run_code(client, "import os\nos.abort()")
    assert reward_of(answer, expected=None) == -2
    assert answer["run_result"]["return_code"] < 0
    assert "Crash" in shown_by_a_tool(answer)


async def test_limits_above_the_maxima_are_reduced_to_them(client: httpx2.AsyncClient) -> None:
    answer = await run_code(client, "print(1)", run_timeout=100_000, memory_limit_MB=10**6)
    assert reward_of(answer, expected="1") is True


async def test_missing_limits_are_the_defaults_of_the_service(client: httpx2.AsyncClient) -> None:
    response = await client.post("/run_code", json={"code": "print(1)", "language": "python", "run_timeout": 0})
    assert reward_of(response.json(), expected="1") is True


async def test_files_are_transferred(client: httpx2.AsyncClient, service: SandboxService) -> None:
    if not service.pool.level.startswith("namespaces"):
        pytest.skip("programs have no private directory at this level")
    content = base64.b64encode(b"abc").decode()
    code = "open('b', 'w').write(open('a').read().upper())"
    answer = await run_code(client, code, files={"a": content, "none": None}, fetch_files=["b"])
    assert base64.b64decode(answer["files"]["b"]) == b"ABC"


async def test_a_different_language_is_refused(client: httpx2.AsyncClient) -> None:
    response = await client.post("/run_code", json=VERL | {"code": "", "language": "cpp"})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "language"


async def test_a_full_queue_is_a_504_which_clients_retry(
    start_service: Callable[..., Any], connect: Callable[..., httpx2.AsyncClient]
) -> None:
    service = await start_service(slots=1, max_waiting=0)
    async with connect(create_app(service)) as client:
        async with holding(service):
            response = await client.post("/run_code", json=VERL | {"code": "print(1)"})
            assert response.status_code == 504
            assert response.json()["started"] is False
        assert reward_of(await run_code(client, "print(1)"), expected="1") is True


async def test_a_failure_of_the_sandbox_is_a_sandbox_error(
    start_service: Callable[..., Any], connect: Callable[..., httpx2.AsyncClient]
) -> None:
    service = await start_service()
    await service.pool.close()
    async with connect(create_app(service)) as client:
        answer = await run_code(client, "print(1)")
        assert reward_of(answer, expected="1") == -1
        assert (answer["status"], answer["outcome"]) == ("SandboxError", "sandbox_error")
        assert "closed" in answer["message"]


async def test_ping_is_answered(client: httpx2.AsyncClient) -> None:
    response = await client.get("/v1/ping")
    assert (response.status_code, response.json()) == (200, "pong")


async def observe(
    client: httpx2.AsyncClient, actions: list[str], **fields: Any
) -> tuple[list[Any], list[int], list[int]]:
    """Post actions and return observations, dones and valids, as verl-tool reads them."""
    body = {"trajectory_ids": [f"t{i}" for i in range(len(actions))], "actions": actions, **fields}
    response = await client.post("/get_observation", json=body)
    assert response.status_code == 200, response.text
    answer = response.json()
    assert answer["processing_time_ms"] >= answer["queue_time_ms"] >= 0
    return answer["observations"], [int(done) for done in answer["dones"]], [int(valid) for valid in answer["valids"]]


FRAMES = {
    "fence": ("Let me see. ```python\nprint(1)\n```\n", "\n```output\n1\n```\n"),
    "fence and output": ("```python\nprint(1)\n```\n```output", "\n1\n```\n"),
    "tags": ("<python>print(1)</python>", "\n<output>\n1\n</output>\n"),
    "tags and output": ("<python>print(1)</python>\n<output>", "\n1\n</output>\n"),
    "several blocks": ("```python\nx = 1\n```\nand\n```python\nprint(x)\n```", "\n```output\n1\n```\n"),
    "input": ("```python\nprint(input())\n```\n```input\n1\n```", "\n```output\n1\n```\n"),
}


@pytest.mark.parametrize(("action", "observation"), FRAMES.values(), ids=FRAMES.keys())
async def test_the_output_has_the_same_delimiters_as_the_action(
    client: httpx2.AsyncClient, action: str, observation: str
) -> None:
    assert await observe(client, [action]) == ([observation], [0], [1])


async def test_an_action_without_a_program_is_invalid(client: httpx2.AsyncClient) -> None:
    assert await observe(client, ["The answer is 4."]) == ([""], [0], [0])


async def test_observations_are_in_the_order_of_the_actions(client: httpx2.AsyncClient) -> None:
    actions = [f"<python>import time; time.sleep({0.05 * (i % 3)}); print({i})</python>" for i in range(7)]
    observations, _, valids = await observe(client, [*actions, "none"], is_last_step=[False] * 8)
    assert observations == [*(f"\n<output>\n{i}\n</output>\n" for i in range(7)), ""]
    assert valids == [1] * 7 + [0]


async def test_an_error_of_the_program_is_in_the_observation(client: httpx2.AsyncClient) -> None:
    [observation], _, valids = (await observe(client, ["```python\nprint(1)\n1 / 0\n```"]))[0:3]
    assert observation.startswith("\n```output\n1\n")
    assert observation.endswith("ZeroDivisionError: division by zero\n```\n")
    assert valids == [1]


async def test_stdin_is_read_from_extra_fields(client: httpx2.AsyncClient) -> None:
    action = "<python>print(input())</python>"
    observations, _, _ = await observe(client, [action, action], extra_fields=[{"stdin": "a"}, {"stdin": "b"}])
    assert observations == ["\n<output>\na\n</output>\n", "\n<output>\nb\n</output>\n"]


async def test_a_finished_trajectory_is_done(client: httpx2.AsyncClient) -> None:
    assert await observe(client, ["<python>print(1)</python>"], finish=[True]) == ([""], [1], [1])
    closing = {"trajectory_ids": "t0", "actions": [""], "finish": [True], "is_last_step": [True]}
    assert (await client.post("/get_observation", json=closing)).json()["dones"] == [True]


async def test_lists_of_different_lengths_are_refused(client: httpx2.AsyncClient) -> None:
    response = await client.post("/get_observation", json={"trajectory_ids": ["a", "b"], "actions": ["x"]})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "actions"


async def test_a_full_queue_is_retried(
    start_service: Callable[..., Any], connect: Callable[..., httpx2.AsyncClient]
) -> None:
    service = await start_service(slots=1, max_waiting=0)
    async with connect(create_app(service)) as client:
        observations, _, _ = await observe(client, [f"<python>print({i})</python>" for i in range(5)])
        assert observations == [f"\n<output>\n{i}\n</output>\n" for i in range(5)]


async def test_a_failure_of_the_sandbox_is_not_shown_as_output(
    start_service: Callable[..., Any], connect: Callable[..., httpx2.AsyncClient]
) -> None:
    service = await start_service()
    await service.pool.close()
    async with connect(create_app(service)) as client:
        [observation], dones, valids = await observe(client, ["<python>print(1)</python>"])
        assert (observation["obs"], dones, valids) == ("", [1], [0])
        assert "closed" in observation["error"]

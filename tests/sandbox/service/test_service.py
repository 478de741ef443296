"""The service's own request format: requests, responses and errors."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tirjudge_sandbox import Limits
from tirjudge_sandbox.app import create_app
from tirjudge_sandbox.service import SandboxService
from tirjudge_sandbox.wire import result_of_body

SLEEP = "import time\ntime.sleep(600)"
PATIENT = Limits(wall_s=120)

FIELDS = {
    *("outcome", "stdout", "stderr", "truncated", "error", "exit_code", "signal", "cpu_s", "wall_s", "queue_s"),
    *("max_rss_kb", "level", "preset", "in_process", "files"),
}


async def execute(client: httpx2.AsyncClient, code: str, **fields: Any) -> dict[str, Any]:
    response = await client.post("/v1/execute", json={"code": code, **fields})
    assert response.status_code == 200, response.text
    return response.json()


async def refusal(client: httpx2.AsyncClient, *, content: bytes, status: int = 400) -> dict[str, Any]:
    """Post an invalid body, check that the service still runs programs, and return the error."""
    response = await client.post("/v1/execute", content=content)
    assert response.status_code == status, response.text
    assert "x-request-id" in response.headers
    assert (await execute(client, "print(1)"))["stdout"] == "1\n"
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


async def test_a_response_has_all_fields_of_a_result(client: httpx2.AsyncClient, service: SandboxService) -> None:
    answer = await execute(client, "import sys\nprint('out')\nprint('err', file=sys.stderr)")
    assert set(answer) == FIELDS
    assert (answer["outcome"], answer["stdout"], answer["stderr"], answer["exit_code"]) == ("ok", "out\n", "err\n", 0)
    assert answer["level"] == service.pool.level
    assert result_of_body(answer).stdout == "out\n"


async def test_an_error_of_the_program_is_a_normal_response(client: httpx2.AsyncClient) -> None:
    answer = await execute(client, "print('before')\n1 / 0")
    assert (answer["outcome"], answer["stdout"], answer["exit_code"]) == ("error", "before\n", 1)
    assert answer["error"] == "ZeroDivisionError: division by zero"
    assert answer["stderr"].startswith("Traceback")


async def test_bindings_and_stdin_reach_the_program(client: httpx2.AsyncClient) -> None:
    code = "print(name, table['a'], input())"
    answer = await execute(client, code, bindings={"name": "x", "table": {"a": "ä"}}, stdin="a line\nanother")
    assert answer["stdout"] == "x ä a line\n"


async def test_files_are_transferred(client: httpx2.AsyncClient, service: SandboxService) -> None:
    if not service.pool.level.startswith("namespaces"):
        pytest.skip("programs have no private directory at this level")
    code = "data = open('in/data.bin', 'rb').read()\nopen('out.bin', 'wb').write(data[::-1])"
    files = {"in/data.bin": base64.b64encode(b"\x00\xffab").decode()}
    answer = await execute(client, code, files=files, fetch=["out.bin"])
    assert answer["files"] == {"out.bin": base64.b64encode(b"ba\xff\x00").decode()}


async def test_a_request_may_set_a_single_limit(client: httpx2.AsyncClient) -> None:
    answer = await execute(client, "while True: pass", limits={"cpu_s": 0.2})
    assert answer["outcome"] == "timeout"
    assert "0.2 s" in answer["error"]


async def test_a_lone_surrogate_is_accepted(client: httpx2.AsyncClient) -> None:
    response = await client.post("/v1/execute", content=b'{"code": "print(len(x))", "bindings": {"x": "\\ud800"}}')
    assert response.json()["stdout"] == "1\n"


WRONG_FIELDS = {
    "missing code": ({}, "code", "not given"),
    "code is a number": ({"code": 5}, "code", "5 given"),
    "unknown field": ({"code": "", "timeout": 3}, "timeout", "known fields: code, bindings, stdin"),
    "unknown limit": ({"code": "", "limits": {"cpu": 3}}, "limits.cpu", "known fields: cpu_s, wall_s"),
    "limit is not a number": ({"code": "", "limits": {"cpu_s": "3"}}, "limits.cpu_s", '"3" given'),
    "limit is zero": ({"code": "", "limits": {"cpu_s": 0}}, "limits.cpu_s", "got 0"),
    "limit is infinite": ({"code": "", "limits": {"wall_s": 1e999}}, "limits", ""),
    "limit is too large": ({"code": "", "limits": {"cpu_s": 1e6}}, "limits", "at most"),
    "invalid variable name": ({"code": "", "bindings": {"two words": ""}}, "bindings", "got 'two words'"),
    "binding is not a text": ({"code": "", "bindings": {"x": 3}}, "bindings.x", "3 given"),
    "binding is nested too deeply": (
        {"code": "", "bindings": {"x": {"y": {}}}},
        "bindings.x.y",
        "an object of 0 given",
    ),
    "file is not base64": ({"code": "", "files": {"a": "%"}}, "files.a", '"%" given'),
    "file outside of the directory": ({"code": "", "files": {"../a": ""}}, "files", "got"),
    "attachments": ({"code": "", "attachments": {"a": "/etc"}}, "attachments", "unknown field"),
    "a list": ([], "body", "not a JSON object"),
}


@pytest.mark.parametrize(("body", "param", "says"), WRONG_FIELDS.values(), ids=WRONG_FIELDS.keys())
async def test_an_invalid_field_is_named(client: httpx2.AsyncClient, body: Any, param: str, says: str) -> None:
    error = await refusal(client, content=json.dumps(body).replace("Infinity", "1e999").encode())
    assert error["type"] == "invalid_request_error"
    assert error["param"].startswith(param)
    assert error["message"].startswith(param)
    assert says in error["message"]


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"{", "invalid_json"), (b"\xff", "not_utf8"), (b"[" * 100_000, "invalid_json"), (b"", "invalid_json")],
    ids=["broken", "latin", "deep", "empty"],
)
async def test_a_body_that_is_not_json_is_refused(client: httpx2.AsyncClient, content: bytes, code: str) -> None:
    assert (await refusal(client, content=content))["code"] == code


async def test_a_body_that_is_too_large_is_refused(client: httpx2.AsyncClient) -> None:
    error = await refusal(client, content=b" " * 1_000_001, status=413)
    assert error["code"] == "body_too_large"


async def test_results_of_a_batch_are_in_order_and_independent(client: httpx2.AsyncClient) -> None:
    codes = [f"import time\ntime.sleep({0.05 * (i % 2)})\nprint({i})" for i in range(9)]
    programs: list[dict[str, Any]] = [{"code": code} for code in codes]
    programs[3] = {"code": "import os\nos.abort()"}
    programs[5] = {"code": "", "bindings": {"no name": ""}}
    response = await client.post("/v1/execute/batch", json={"programs": programs})
    results = response.json()["results"]
    assert [result["stdout"] for result in results] == [f"{i}\n" if i not in (3, 5) else "" for i in range(9)]
    assert (results[3]["outcome"], results[5]["outcome"]) == ("crash", "refused")
    assert "no name" in results[5]["error"]


async def test_a_watched_name_that_is_no_binding_is_refused(client: httpx2.AsyncClient) -> None:
    program = {"code": "exec(r)", "bindings": {"r": "print(5)", "empty": ""}, "candidate_code": "refuse"}
    response = await client.post("/v1/execute", json=program | {"watched": ["r", "nope"]})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "watched")
    said = "watched: 'nope' is not the name of a binding; the bindings are: 'r', 'empty'"
    assert response.json()["error"]["message"] == said
    result = (await client.post("/v1/execute", json=program | {"watched": ["r", "empty"]})).json()
    assert (result["outcome"], result["in_process"]) == ("error", ["exec"])


async def test_an_invalid_program_of_a_batch_is_named(client: httpx2.AsyncClient) -> None:
    response = await client.post("/v1/execute/batch", json={"programs": [{"code": ""}, {"cod": ""}]})
    assert response.status_code == 400
    assert response.json()["error"]["param"].startswith("programs.1")


async def test_a_full_queue_is_a_429_with_a_retry_time(
    start_service: Callable[..., Any], connect: Callable[..., httpx2.AsyncClient], until: Callable[..., Any]
) -> None:
    service = await start_service(slots=1, max_waiting=0)
    async with connect(create_app(service)) as client:
        running = asyncio.create_task(service.pool.run(SLEEP, limits=PATIENT))
        await until(lambda: service.pool.stats().num_idle == 0)
        response = await client.post("/v1/execute", json={"code": ""})
        assert response.status_code == 429
        assert int(response.headers["retry-after"]) >= 1
        assert int(response.headers["retry-after-ms"]) >= 0
        body = response.json()
        assert (body["error"]["code"], body["outcome"], body["started"]) == ("queue_full", "sandbox_error", False)
        running.cancel()
        await until(lambda: service.pool.stats().num_idle == 1)
        assert (await execute(client, "print('done')"))["stdout"] == "done\n"
        assert "tirjudge_sandbox_turned_away_total 1.0" in (await client.get("/metrics")).text


async def test_a_failure_of_the_sandbox_is_a_503(
    start_service: Callable[..., Any], connect: Callable[..., httpx2.AsyncClient]
) -> None:
    service = await start_service()
    await service.pool.close()
    async with connect(create_app(service)) as client:
        response = await client.post("/v1/execute", json={"code": "print(1)"})
        body = response.json()
        assert (response.status_code, body["outcome"]) == (503, "sandbox_error")
        assert body["error"]["code"] == "sandbox_unavailable"
        assert "stdout" not in body
        ready = await client.get("/ready")
        assert (ready.status_code, ready.json()["ready"]) == (503, False)
        assert 'outcome="sandbox_error"' in (await client.get("/metrics")).text


async def test_at_shutdown_new_programs_are_refused_and_running_ones_aborted_after_the_grace_period(
    client: httpx2.AsyncClient, service: SandboxService, until: Callable[..., Any]
) -> None:
    slow = asyncio.create_task(client.post("/v1/execute", json={"code": SLEEP, "limits": {"wall_s": 120}}))
    await until(lambda: service.pool.stats().num_idle == 1)
    service.draining.begin(grace_s=0.1)
    refused = await client.post("/v1/execute", json={"code": ""})
    assert (refused.status_code, refused.json()["started"]) == (503, False)
    aborted = await slow
    assert (aborted.status_code, aborted.json()["started"]) == (503, True)
    assert (await client.get("/ready")).status_code == 503
    assert (await client.get("/health")).json()["status"] == "shutting down"
    await until(lambda: service.pool.stats().num_idle == 2)


async def test_a_disconnect_of_the_caller_kills_the_program(
    service: SandboxService, listen: Callable[..., Any], until: Callable[..., Any]
) -> None:
    url = httpx2.URL(await listen(create_app(service)))
    body = json.dumps({"code": SLEEP, "limits": {"wall_s": 120}}).encode()
    _, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(b"POST /v1/execute HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
    await until(lambda: service.pool.stats().num_idle == 1)
    writer.close()
    await until(lambda: service.pool.stats().num_idle == 2)


KEYS = {
    "bearer": ({"authorization": "Bearer two"}, 200),
    "another case": ({"authorization": "bearer  two"}, 200),
    "in the URL": ({"authorization": "Basic " + base64.b64encode(b"anyone:one").decode()}, 200),
    "wrong": ({"authorization": "Bearer three"}, 401),
    "no password": ({"authorization": "Basic " + base64.b64encode(b"one").decode()}, 401),
    "no base64": ({"authorization": "Basic %"}, 401),
    "another scheme": ({"authorization": "Digest one"}, 401),
    "none": ({}, 401),
}


@pytest.mark.parametrize(("headers", "status"), KEYS.values(), ids=KEYS.keys())
async def test_running_programs_needs_a_key(
    service: SandboxService, connect: Callable[..., httpx2.AsyncClient], headers: dict[str, str], status: int
) -> None:
    async with connect(create_app(service, keys=["one", "two"]), headers=headers) as client:
        for path in ("/v1/execute", "/run_code"):
            response = await client.post(path, json={"code": "print(1)"})
            assert response.status_code == status
        if status == 401:
            assert response.json()["error"]["code"] == "invalid_api_key"
            assert "one" not in response.text.replace("none", "")
        for path in ("/health", "/ready", "/metrics", "/v1/ping"):
            assert (await client.get(path)).status_code == 200


async def test_metrics_count_programs_by_outcome(client: httpx2.AsyncClient, service: SandboxService) -> None:
    preset = (await execute(client, "print(1)"))["preset"]
    await execute(client, "1 / 0")
    text = (await client.get("/metrics")).text
    assert f'tirjudge_sandbox_programs_total{{outcome="ok",preset="{preset}"}} 1.0' in text
    assert f'tirjudge_sandbox_programs_total{{outcome="error",preset="{preset}"}} 1.0' in text
    assert "tirjudge_sandbox_run_seconds_count 2.0" in text
    assert "tirjudge_sandbox_queue_seconds_bucket" in text
    assert "tirjudge_sandbox_pool_slots 2.0" in text


@pytest.mark.slow
async def test_health_includes_the_diagnosis(client: httpx2.AsyncClient, service: SandboxService) -> None:
    assert (await client.get("/health")).json()["doctor"] is None
    await service.examine()
    health = (await client.get("/health")).json()
    assert health["doctor"]["level"] == health["level"] == service.pool.level
    assert health["pool"]["num_slots"] == 2
    assert health["limits"]["cpu_s"] == 2.0


async def test_a_working_service_is_ready(client: httpx2.AsyncClient, service: SandboxService) -> None:
    response = await client.get("/ready")
    assert (response.status_code, response.json()) == (
        200,
        {"ready": True, "problem": None, "level": service.pool.level},
    )


async def test_unknown_paths_and_methods_have_the_same_error_format(client: httpx2.AsyncClient) -> None:
    for method, path, status in (("GET", "/v1/execute", 405), ("POST", "/v2", 404)):
        response = await client.request(method, path)
        assert response.status_code == status
        assert path in response.json()["error"]["message"]


async def test_the_openapi_description_has_the_request_bodies(client: httpx2.AsyncClient) -> None:
    schema = (await client.get("/openapi.json")).json()
    for path in ("/v1/execute", "/v1/execute/batch", "/run_code", "/get_observation"):
        reference = schema["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        assert reference.rpartition("/")[2] in schema["components"]["schemas"]

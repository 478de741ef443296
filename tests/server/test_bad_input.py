"""Every invalid request gets an error in OpenAI's format that names the field, and does not affect later requests."""

from __future__ import annotations

import gzip
import json
from typing import Any

import httpx2
import pytest

from tirjudge.errors import EngineUnavailable, PromptTooLong, SandboxUnavailable
from tirjudge.tools.python import PythonTool
from tirjudge_server.app import create_app


async def refusal(client: httpx2.AsyncClient, *, content: bytes, status: int = 400) -> dict[str, Any]:
    """Post a body; return its error, after checking that the error is complete and that the server still judges."""
    response = await client.post("/v1/judge", content=content)
    assert response.status_code == status, response.text
    assert "x-request-id" in response.headers
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] is None or error["message"].startswith(error["param"])
    good = {"mode": "pairwise", "prompt": "p", "responses": ["a", "b"], "tools": "off"}
    assert (await client.post("/v1/judge", json=good)).status_code == 200
    return error


WRONG_FIELDS = {
    "no responses": ({"responses": []}, "responses", "responses: a list of 0 given; give at least 1"),
    "one response for pairwise": ({"responses": ["a"]}, "responses", "exactly 2 responses, 1 given"),
    "three responses for pairwise": ({"responses": ["a", "b", "c"]}, "responses", "exactly 2 responses, 3 given"),
    "one response for listwise": (
        {"mode": "listwise", "responses": ["a"]},
        "responses",
        "at least 2 responses, 1 given",
    ),
    "too many responses": ({"responses": ["a"] * 1025}, "responses", "a list of 1025 given; give at most 1024"),
    "responses not a list": ({"responses": "ab"}, "responses", '"ab" given'),
    "response not a string": ({"responses": ["a", 3]}, "responses.1", "3 given"),
    "wrong mode": ({"mode": "best"}, "mode", "'pointwise', 'pairwise', 'listwise' or 'rules'"),
    "unknown field": ({"respones": ["a"]}, "respones", "known fields: mode, prompt, responses"),
    "unknown field in a message": (
        {"prompt": [{"role": "user", "content": "x", "n": 1}]},
        "prompt.0.n",
        "known fields:",
    ),
    "unknown role": ({"prompt": [{"role": "me", "content": "x"}]}, "prompt.0.role", '"me" given'),
    "prompt is a number": ({"prompt": 5}, "prompt", "5 given"),
    "zero votes": ({"votes": 0}, "votes", "0 given"),
    "misspelled tools": ({"tools": "yes"}, "tools", '"yes" given'),
    "negative seed": ({"seed": -1}, "seed", "-1 given"),
    "infinite temperature": ({"temperature": 1e999}, "temperature", ""),
}


@pytest.mark.parametrize(("change", "param", "says"), WRONG_FIELDS.values(), ids=WRONG_FIELDS.keys())
async def test_error_for_a_wrong_field_names_it(
    client: httpx2.AsyncClient, change: dict[str, Any], param: str, says: str
) -> None:
    body = {"mode": "pairwise", "prompt": "p", "responses": ["a", "b"]} | change
    error = await refusal(client, content=json.dumps(body).replace("Infinity", "1e999").encode())
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert says in error["message"]


@pytest.mark.parametrize("field", ["mode", "prompt", "responses"])
async def test_error_for_a_missing_field_names_it(client: httpx2.AsyncClient, field: str) -> None:
    body = {"mode": "pairwise", "prompt": "p", "responses": ["a", "b"]}
    del body[field]
    error = await refusal(client, content=json.dumps(body).encode())
    assert (error["param"], error["code"]) == (field, "missing")
    assert "pointwise or pairwise or listwise or rules" in error["message"] or field != "mode"


async def test_error_for_a_missing_field_names_the_unknown_fields(client: httpx2.AsyncClient) -> None:
    error = await refusal(client, content=b'{"mode": "pointwise", "prompt": "p", "response": "x"}')
    assert error["message"] == "responses: not given; this field has no default; unknown fields given: response"


async def test_error_for_an_unknown_field_names_a_similar_one(client: httpx2.AsyncClient) -> None:
    error = await refusal(client, content=b'{"mode": "pointwise", "prompt": "p", "responses": ["x"], "vote": 3}')
    assert error["message"].startswith("vote: unknown field; did you mean votes? known fields: mode, prompt,")


NO_REQUESTS = {
    "empty body": (b"", "invalid_json"),
    "not JSON": (b"mode=pairwise", "invalid_json"),
    "NaN": (b'{"votes": NaN}', "invalid_json"),
    "truncated JSON": (b'{"mode": "pairwise", "pro', "invalid_json"),
    "nested too deeply": (b"[" * 50_000, "invalid_json"),
    "a number of 5000 digits": (b"1" * 5000, "invalid_json"),
    "not UTF-8": (b'{"mode": "\xff"}', "not_utf8"),
    "UTF-16": ('{"mode": "pairwise"}'.encode("utf-16"), "not_utf8"),
    "an encoded surrogate": (b'{"mode": "\xed\xa0\x80"}', "not_utf8"),
    "a list": (b"[]", "invalid_body"),
    "null": (b"null", "invalid_body"),
}


@pytest.mark.parametrize(("content", "code"), NO_REQUESTS.values(), ids=NO_REQUESTS.keys())
async def test_body_that_is_not_a_request_is_refused(client: httpx2.AsyncClient, content: bytes, code: str) -> None:
    error = await refusal(client, content=content)
    assert (error["param"], error["code"]) == ("body", code)


@pytest.mark.parametrize(
    ("change", "param"),
    [({"x\ud800y": 1}, r"x\ud800y"), ({"prompt": [{"role": "user", "content": "x", "\udfff": 1}]}, r"prompt.0.\udfff")],
)
async def test_error_names_a_field_with_invalid_unicode(client: httpx2.AsyncClient, change: Any, param: str) -> None:
    body = {"mode": "pairwise", "prompt": "p", "responses": ["a", "b"]} | change
    error = await refusal(client, content=json.dumps(body).encode())
    assert (error["param"], error["code"]) == (param, "unknown_field")


async def test_thousands_of_unknown_fields_are_counted_and_not_described(client: httpx2.AsyncClient) -> None:
    body = {"mode": "pairwise", "prompt": "p", "responses": ["a", "b"]} | dict.fromkeys(map(str, range(5000)), 0)
    error = await refusal(client, content=json.dumps(body).encode())
    assert (error["param"], error["code"]) == ("body", "invalid_body")
    assert error["message"].startswith("body: 5000 unknown or invalid fields given")


async def test_deep_nesting_inside_a_field_is_refused(client: httpx2.AsyncClient) -> None:
    nested = b"[" * 900 + b"]" * 900
    error = await refusal(client, content=b'{"mode": "pairwise", "responses": ["a", "b"], "prompt": ' + nested + b"}")
    assert error["param"].startswith("prompt")


async def test_oversized_content_length_is_refused_before_reading(client: httpx2.AsyncClient) -> None:
    error = await refusal(client, content=b" " * 100_001, status=413)
    assert error["code"] == "body_too_large"
    assert "100001 bytes given, this server takes 100000" in error["message"]


async def test_oversized_chunked_body_is_refused(client: httpx2.AsyncClient) -> None:
    async def chunks():
        for _ in range(200):
            yield b" " * 1000

    response = await client.post("/v1/judge", content=chunks())
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "body_too_large"


async def test_a_compressed_body_is_refused_by_its_header(client: httpx2.AsyncClient) -> None:
    response = await client.post("/v1/judge", content=gzip.compress(b"{}"), headers={"content-encoding": "gzip"})
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "unsupported_encoding")
    assert error["message"] == 'content-encoding: "gzip" given; send the body without compression'


async def test_an_unknown_path_names_the_page_of_all_paths(client: httpx2.AsyncClient) -> None:
    error = (await client.post("/v1/jugde", content=b"{}")).json()["error"]
    assert error["message"] == "POST /v1/jugde: Not Found; /docs lists all paths"
    assert (await client.get("/docs")).status_code == 200


async def test_a_refused_method_names_the_allowed_ones(client: httpx2.AsyncClient) -> None:
    error = (await client.get("/v1/judge")).json()["error"]
    assert error["message"] == "GET /v1/judge: Method Not Allowed; allowed: POST"


async def test_an_unknown_model_is_not_found(client: httpx2.AsyncClient) -> None:
    body = {"mode": "pairwise", "prompt": "p", "responses": ["a", "b"], "model": "gpt-7"}
    error = await refusal(client, content=json.dumps(body).encode(), status=404)
    assert (error["param"], error["code"]) == ("model", "model_not_found")
    assert error["message"] == 'model: "gpt-7" given, this server has "judge"'


async def test_long_value_is_truncated_in_error(client: httpx2.AsyncClient) -> None:
    body = {"mode": "pairwise", "prompt": "p", "responses": ["a", "b"], "model": "x" * 90_000}
    error = await refusal(client, content=json.dumps(body).encode(), status=404)
    assert len(error["message"]) < 200


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/v1/judgments", 404), ("GET", "/v1/judge", 405)])
async def test_unknown_routes_return_standard_errors(
    client: httpx2.AsyncClient, method: str, path: str, status: int
) -> None:
    response = await client.request(method, path)
    assert response.status_code == status
    assert response.json()["error"]["message"].startswith(f"{method} {path}: ")


class Failing:
    """A sandbox that raises."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def run(self, code: str, *, bindings: object, offer: object = None) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (SandboxUnavailable("lost its fork-server"), 503, "sandbox_unavailable"),
        (EngineUnavailable("no GPU"), 503, "engine_unavailable"),
        (PromptTooLong("the prompt has 9 tokens"), 400, "context_length_exceeded"),
        (RuntimeError("secret/path.py"), 500, "internal"),
    ],
)
async def test_internal_failure_has_status_of_its_kind(
    make_service, connect, error: Exception, status: int, code: str
) -> None:
    from dataclasses import replace

    service = make_service(["```python\n1\n```\n```output"])
    service.judge = replace(service.judge, tools=[PythonTool(Failing(error))])
    async with connect(create_app(service)) as client:
        body = {"mode": "pairwise", "prompt": "p", "responses": ["a", "b"]}
        response = await client.post("/v1/judge", json=body, headers={"x-request-id": "mine"})
    assert response.status_code == status
    assert response.headers["x-request-id"] == "mine"
    assert response.json()["error"]["code"] == code
    assert ("retry-after" in response.headers) == (status == 503)
    assert (str(error) in response.text) == (status != 500)

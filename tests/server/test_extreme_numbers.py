"""Numbers out of range and texts that databases reject get an error that names the field, and never a server error."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Iterable
from urllib.parse import quote

import httpx2
import pytest
import pytest_asyncio

from tests.server.bodies import BODIES, GRADERS, openapi, spoiled
from tests.tiers import sampled
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.http.protocol import NumberTooLarge, parse_json
from tirjudge.judge import Judge
from tirjudge_server.app import create_app
from tirjudge_server.dialects import DialectSettings
from tirjudge_server.records.record import versions_of
from tirjudge_server.records.store import open_records
from tirjudge_server.service import JudgeService

EXTREMES = {
    "larger than a double": "1e999",
    "near the largest double": "1e308",
    "subnormal double": "1e-320",
    "above 64 bits": "9223372036854775808",
    "400 digits": "1" * 400,
    "5,000 digits": "9" * 5000,
    "not a number": "NaN",
    "infinity": "Infinity",
    "negative zero": "-0.0",
    "unpaired surrogate": r'"\ud800"',
    "NUL character": r'"a\u0000b"',
    "deeply nested": "[" * 500 + "]" * 500,
}
"""Extreme numbers as JSON text."""

TYPED = [
    "1e999",
    "-1e999",
    "nan",
    "inf",
    "9" * 5000,
    "-1",
    "0",
    "٣",
    "²",
    "1_0",
    "1e999,0",
    "-1e308,1e308",
    "[" * 2000,
    "a\0b",
]
"""Extreme values in a URL, a form or a header."""


def _verdict(sequence: str) -> str:
    is_score = re.findall("<(score|preference)>", sequence)[-1:] == ["score"]
    return "<score>7</score>" if is_score else "<preference>A</preference>"


in_one_loop = pytest.mark.asyncio(loop_scope="module")
"""Runs a test in the event loop of the server that the tests of this module share."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a server with all endpoints, without a sandbox."""
    folder = tmp_path_factory.mktemp("whole")
    judge = Judge(engine=ScriptedEngine(_verdict, label_probs={"A": 0.8, "B": 0.2, "7": 0.9}), tools=())
    versions = versions_of(judge, fingerprint="scripted", isolation=None)
    async with open_records(str(folder / "records.db"), versions=versions) as records:
        service = JudgeService(judge, records=records)
        settings = DialectSettings(patience_s=0.0)
        app = create_app(service, records=records, files=folder / "files", settings=settings)
        transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
            yield client
            path, body = BODIES["judge"]
            assert (await client.post(path, json=body)).status_code == 200, "the server no longer judges"


def is_fine(response: httpx2.Response) -> bool:
    """Whether the response is a result, an error that names the invalid value, or a 504 for a deadline that is too short."""
    if response.status_code in (200, 404, 413, 504):
        return True
    return response.status_code == 400 and bool(response.json()["error"]["param"])


@pytest.mark.parametrize(
    "turns",
    [range(0, 12, 4), pytest.param([turn for turn in range(12) if turn % 4], marks=pytest.mark.slow)],
    ids=["some", "others"],
)
@pytest.mark.parametrize("name", sampled(BODIES))
@in_one_loop
async def test_extreme_values_in_a_body_cause_no_server_error(
    whole: httpx2.AsyncClient, name: str, turns: Iterable[int]
) -> None:
    path, body = BODIES[name]
    schemas = openapi()["components"]["schemas"]
    schema = schemas.get(_model_at(path), {})
    extremes = list(EXTREMES.values())
    assert len(extremes) == 12
    for turn in turns:
        for content in spoiled(body, by=extremes[turn], turn=turn, schema=schema, schemas=schemas):
            response = await whole.post(path, content=content)
            assert is_fine(response), (content[:300], response.status_code, response.text[:300])


def _model_at(path: str) -> str:
    operation = openapi()["paths"][path.partition("?")[0]]["post"]
    return operation["requestBody"]["content"]["application/json"]["schema"].get("$ref", "").rpartition("/")[2]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/judge", '{"mode": "pointwise", "prompt": "p", "responses": ["a"], "seed": 1e999}', "seed"),
        ("/v1/reward", '{"prompt": "p", "response": "r", "scale": [0, -1e999]}', "scale.1"),
        (
            "/verify",
            '{"responses_create_params": {"a": [{"b": 1e999}]}, "response": {}}',
            "responses_create_params.a.0.b",
        ),
        (GRADERS + "/run", '{"grader": {}, "model_sample": "", "item": {"n": %s}}' % ("7" * 5000), "item.n"),
        ("/aggregate_metrics", '{"verify_responses": [{"reward": 1e308}]}', "verify_responses.0.reward"),
    ],
)
@in_one_loop
async def test_error_for_an_oversized_number_names_its_field(
    whole: httpx2.AsyncClient, path: str, body: str, param: str
) -> None:
    response = await whole.post(path, content=body.encode())
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == param
    assert len(error["message"]) < 300


@pytest.mark.parametrize("typed", sampled(TYPED))
@in_one_loop
async def test_extreme_values_in_a_query_a_path_or_a_header_cause_no_server_error(
    whole: httpx2.AsyncClient, typed: str
) -> None:
    said = quote(typed)
    answers = []
    for path in ("/v1/judgments", "/v1/files", "/v1/batches"):
        answers += [await whole.get(f"{path}?{name}={said}") for name in ("limit", "after", "order", "purpose")]
        answers += [await whole.get(f"{path}/{said}"), await whole.delete(f"{path}/{said}/content")]
    for option in ("scale", "fallback", "votes", "seed", "temperature", "mode", "criteria", "rubric", "reward_key"):
        for dialect in ("openrlhf", "slime", "vllm_scoring", "rerank_shapes"):
            path, body = BODIES[dialect]
            answers.append(await whole.post(f"{path}{'&' if '?' in path else '?'}{option}={said}", json=body))
    for header in ("x-judge-deadline-ms", "idempotency-key", "content-length", "traceparent", "x-request-id"):
        path, body = BODIES["judge"]
        headers = {header: typed.encode("utf-8")}
        answers.append(await whole.post(path, content=json.dumps(body), headers=headers))
    for answer in answers:
        assert answer.status_code == 405 or is_fine(answer), (answer.request.url, answer.text[:300])


@pytest.mark.parametrize("typed", sampled(TYPED))
@in_one_loop
async def test_extreme_lifetimes_and_names_of_files_cause_no_server_error(
    whole: httpx2.AsyncClient, typed: str
) -> None:
    form = {"purpose": "batch", "expires_after[anchor]": "created_at", "expires_after[seconds]": typed}
    response = await whole.post("/v1/files", data=form, files={"file": ("a.jsonl", b"{}")})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "expires_after")
    response = await whole.post("/v1/files", data={"purpose": "batch"}, files={"file": (typed or "a", b"{}")})
    assert is_fine(response)


@pytest.mark.parametrize("extreme", EXTREMES.values(), ids=EXTREMES)
@in_one_loop
async def test_extreme_values_in_a_line_do_not_break_its_batch(
    whole: httpx2.AsyncClient, extreme: str, caplog: pytest.LogCaptureFixture
) -> None:
    body = {"mode": "pointwise", "prompt": "p", "responses": ["r"], "tools": "off", "model": "@@"}
    line = json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/judge", "body": body}).replace('"@@"', extreme)
    uploaded = await whole.post("/v1/files", data={"purpose": "batch"}, files={"file": ("a.jsonl", line.encode())})
    wanted = {"input_file_id": uploaded.json()["id"], "endpoint": "/v1/judge", "completion_window": "24h"}
    batch = (await whole.post("/v1/batches", json=wanted)).json()

    async with asyncio.timeout(20):
        while batch["status"] not in ("completed", "failed"):
            await asyncio.sleep(0.01)
            batch = (await whole.get(f"/v1/batches/{batch['id']}")).json()
    assert "internal" not in str(batch["errors"])
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@in_one_loop
async def test_a_scale_of_thousands_of_digits_is_refused(whole: httpx2.AsyncClient) -> None:
    prompt = (
        f"[Question]\nq\n\n[The Start of Assistant's Answer]\na\n[The End of Assistant's Answer]\n\n"
        f"Rate it on a scale of 1 to {'9' * 5000}, as [[rating]]."
    )
    body = {"model": "judge", "messages": [{"role": "user", "content": prompt}]}
    response = await whole.post("/v1/chat/completions", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "messages"


@in_one_loop
async def test_an_index_of_thousands_of_digits_is_refused(whole: httpx2.AsyncClient) -> None:
    path, body = BODIES["string check"]
    grader = {**body["grader"], "input": f"{{{{item.n[{'9' * 5000}]}}}}"}
    response = await whole.post(path, json={**body, "grader": grader})
    assert response.status_code == 400
    assert response.json()["error"]["param"].startswith("grader")


@pytest.mark.parametrize("ends", ["[0, 1e101]", "[-1e101, 0]", "[-1e308, 1e308]", "[0, null]", "[0, true]"])
@in_one_loop
async def test_range_with_an_oversized_or_invalid_bound_is_rejected(whole: httpx2.AsyncClient, ends: str) -> None:
    path, body = BODIES["validate"]
    response = await whole.post(path, content=json.dumps(body).replace("[0, 9]", ends).encode())
    assert response.status_code == 400
    assert response.json()["error"]["param"].startswith("grader.range")


@in_one_loop
async def test_a_content_length_of_thousands_of_digits_is_too_large(whole: httpx2.AsyncClient) -> None:
    response = await whole.post("/v1/judge", content=b"{}", headers={"content-length": "9" * 5000})
    assert response.status_code == 413
    assert len(response.text) < 400


@pytest.mark.parametrize(
    "text", ["1e308", "-1e308", "1e-999", "9" * 308, "1" + "0" * 308, '"1e999"', "1E2", "[1.5, -0]"]
)
def test_representable_numbers_parse_as_in_python(text: str) -> None:
    assert repr(parse_json(text.encode())) == repr(json.loads(text))


@pytest.mark.parametrize(
    "number", ["1e309", "-1E+309", "1e0999", "9" * 309, "1" + "0" * 250 + "e99", "1.5e400", "9" * 9000]
)
def test_unrepresentable_number_is_refused_with_its_location(number: str) -> None:
    with pytest.raises(NumberTooLarge) as caught:
        parse_json(f'{{"a": [0, {{"b": {number}}}], "c": {number}}}'.encode())
    assert caught.value.path == ("a", 1, "b")


def test_last_value_of_a_duplicate_key_is_used() -> None:
    assert parse_json(b'{"a": 1e999, "a": 1}') == {"a": 1}

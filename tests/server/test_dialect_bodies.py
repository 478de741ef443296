"""Corrupted request bodies, in every dialect: the response is a score, a missing score or an error, and never a 5xx."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import httpx2
import pytest

from tests.server.speaking import Speak, dialect_app, service_of, speak
from tests.server.test_failure_table import EXAMPLES
from tests.tiers import sampled
from tirjudge_server.dialects import DIALECTS, requests_of

__all__ = ["speak"]

JUNK: list[Any] = [None, 0, -1, 1e300, True, "", "\ud800", "x", [], [None], {}, {"a": None}, [[["x"]]], [{}], ["a", 3]]

BODIES = {
    **{name: (example.path, example.body) for name, example in EXAMPLES.items() if name != "batch"},
    "batch": ("/v1/judge/batch", {"requests": [EXAMPLES["batch"].body]}),
    "score": ("/score", {"text_1": "q", "text_2": ["a", "b"], "instruction": "i"}),
    "pooling": ("/pooling", {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}),
    "tei": ("/rerank", {"query": "q", "texts": ["a", "b"], "return_text": True}),
    "session": ("/seed_session", {"resources_session_id": "s"}),
    "metrics": ("/aggregate_metrics", {"verify_responses": [{"_ng_task_index": 0, "reward": 1.0}]}),
    "reward items": (
        "/v1/reward",
        {"mode": "cohort", "items": [{"prompt": "p", "responses": ["a", "b"], "reference": "r", "id": "i"}]},
    ),
    "system one": (
        "/v1/systemone",
        {
            "state": {"a": 1},
            "questions": {
                "c": {"type": "choice", "criteria": {"x": None, "y": "d", "z": 3}},
                "s": {"type": "score", "instructions": "i", "criteria": ["a", "b", "c"]},
            },
        },
    ),
}


def changed(body: Any) -> Iterator[Any]:
    """Yield bodies where one value is replaced by junk, or one field is missing."""
    for path in places(body):
        for junk in JUNK:
            copy = deepcopy(body)
            *way, last = path
            inner = copy
            for step in way:
                inner = inner[step]
            inner[last] = junk
            yield copy
        if isinstance(path[-1], str):
            copy = deepcopy(body)
            inner = copy
            for step in path[:-1]:
                inner = inner[step]
            del inner[path[-1]]
            yield copy


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from places(child, (*path, key))


@pytest.mark.parametrize("name", sampled(BODIES))
async def test_corrupted_bodies_cause_no_server_error(speak: Speak, name: str) -> None:
    path, body = BODIES[name]
    verdict = "<score>7</score> <preference>A</preference>"
    async with speak(lambda sequence: verdict, names=tuple(DIALECTS)) as client:
        for other in changed(body):
            response = await client.post(path, content=json.dumps(other).encode())
            assert response.status_code in (200, 400, 404), (other, response.text)
            if response.status_code == 400:
                assert response.json()["error"]["message"]
        for text in (b"", b"[]", b"null", b"{", b"\xff", b"3"):
            assert (await client.post(path, content=text)).status_code == 400


def test_every_dialect_path_has_a_body_model_in_the_schema() -> None:
    app = dialect_app(service_of([]))
    described = requests_of(list(DIALECTS))
    paths = {path for path, operations in app.openapi()["paths"].items() if "post" in operations}
    native = {"/v1/reward", "/v1/rerank", "/v1/judge/batch"}
    assert set(described) == paths - native


def test_body_models_have_unique_names() -> None:
    models = set(requests_of(list(DIALECTS)).values())
    names: dict[str, Any] = {}
    for model in models:
        schema = model.model_json_schema()
        for name, definition in ({model.__name__: schema} | schema.get("$defs", {})).items():
            assert names.setdefault(name, definition) == definition or name == model.__name__


async def test_disabled_dialect_is_not_served() -> None:
    for name in DIALECTS:
        app = dialect_app(service_of([]), names=[name])
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
            for path in requests_of(list(DIALECTS)):
                status = (await client.post(path, content=b"{")).status_code
                assert (status == 404) == (path not in requests_of([name])), (name, path)


def test_error_for_an_unknown_dialect_names_it() -> None:
    with pytest.raises(ValueError, match="opnrlhf"):
        dialect_app(service_of([]), names=["opnrlhf"])

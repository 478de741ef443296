"""A valid body for each endpoint with a body, and functions that corrupt its values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.server.speaking import service_of
from tests.server.test_dialect_bodies import BODIES as DIALECT_BODIES
from tests.server.test_dialect_bodies import places
from tirjudge_server.app import create_app

PAIR = {"mode": "pairwise", "prompt": "p", "responses": ["a", "b"], "tools": "off"}
STRING_CHECK = {"type": "string_check", "name": "same", "input": "{{item.n}}", "reference": "1", "operation": "eq"}
ASKS_MODEL = {"model": "judge", "input": [{"role": "user", "content": "{{item.n}}"}], "sampling_params": {}}
GRADERS = "/v1/fine_tuning/alpha/graders"

BODIES: dict[str, tuple[str, Any]] = {
    **DIALECT_BODIES,
    "judge": ("/v1/judge", {**PAIR, "criteria": [{"text": "short", "weight": 2}]}),
    "chat": ("/v1/chat/completions", {"model": "judge", "messages": [{"role": "user", "content": "p"}], "judge": PAIR}),
    "completions": ("/v1/completions", {"model": "judge", "prompt": "[Question]\nq", "max_tokens": 4}),
    "decisions": (
        "/v1/decisions",
        {
            "model": "judge",
            "input": "It rains.",
            "judge": {"votes": 1},
            "questions": [
                {"type": "predicate", "instructions": "It is dry."},
                {"type": "score", "instructions": "How wet?", "levels": [{"label": "1"}, {"label": "2"}]},
            ],
        },
    ),
    "string check": (GRADERS + "/run", {"grader": STRING_CHECK, "model_sample": "1", "item": {"n": 1}}),
    "score model": (
        GRADERS + "/run",
        {
            "grader": {"type": "score_model", "name": "s", "range": [0, 9], **ASKS_MODEL},
            "model_sample": '{"a": 1}',
            "item": {"n": [1, {"m": 2}]},
        },
    ),
    "multi": (
        GRADERS + "/run",
        {
            "grader": {"type": "multi", "name": "m", "graders": {"a": STRING_CHECK}, "calculate_output": "a * 2"},
            "model_sample": "1",
            "item": {"n": 1},
        },
    ),
    "evals": (
        "/v1/evals",
        {
            "name": "e",
            "metadata": {"a": "b"},
            "data_source_config": {"type": "custom", "item_schema": {"type": "object"}, "include_sample_schema": True},
            "testing_criteria": [
                {"type": "score_model", "name": "s", "range": [0, 9], "pass_threshold": 5, **ASKS_MODEL},
                {"type": "python", "name": "p", "source": "def grade(sample, item): return 1", "pass_threshold": 0.5},
                STRING_CHECK,
            ],
        },
    ),
    "validate": (
        GRADERS + "/validate",
        {"grader": {"type": "score_model", "name": "s", "range": [0, 9], **ASKS_MODEL}},
    ),
    "batches": (
        "/v1/batches",
        {
            "input_file_id": "file-none",
            "endpoint": "/v1/judge",
            "completion_window": "24h",
            "metadata": {"a": "b"},
            "output_expires_after": {"anchor": "created_at", "seconds": 3600},
        },
    ),
}
"""Name -> path and body."""


@cache
def openapi() -> dict[str, Any]:
    """Return the OpenAPI document of a server with all these endpoints. It takes half a second to make."""
    with TemporaryDirectory() as folder:
        return create_app(service_of(lambda _: ""), files=Path(folder)).openapi()


FORMS: tuple[Any, ...] = ("@@", ["@@", "@@"], ["-@@", "@@"], {"a": ["@@"]})
"""Values that contain an extreme number `@@`."""


def spoiled(body: Any, *, by: str, turn: int, schema: dict[str, Any], schemas: dict[str, Any]) -> Iterator[bytes]:
    """Yield changed bodies. Each has a new value in one place of `body`, or in one numeric field of the schema.

    The new value is one of `FORMS`. With four successive turns, each place gets each of them once.

    Args:
        body: a valid body.
        by: a number as JSON text.
        turn: which form the first place gets; the next place gets the next form.
        schema: JSON Schema of the body.
        schemas: definitions that `schema` refers to.
    """
    paths = [*places(body), *((name,) for name in numeric_fields(schema, schemas=schemas))]
    for number, path in enumerate(paths, turn):
        copy = deepcopy(body)
        inner = copy
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = FORMS[number % len(FORMS)]
        negative = by.removeprefix("-") if by.startswith("-") else f"-{by}"
        yield json.dumps(copy).replace('"-@@"', negative).replace('"@@"', by).encode()


def numeric_fields(schema: dict[str, Any], *, schemas: dict[str, Any]) -> list[str]:
    """Names of an object's fields that may contain a number at any depth."""
    return [name for name, field in schema.get("properties", {}).items() if _may_hold_number(field)]


def _may_hold_number(field: dict[str, Any]) -> bool:
    text = json.dumps(field)
    return '"number"' in text or '"integer"' in text or "additionalProperties" in text or field == {}

"""Adds request bodies, event streams and errors to the OpenAPI schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from tirjudge.http.protocol import EVENTS, JUDGE_PATH, ErrorBody
from tirjudge.types import MODEL_MODES, JudgeRequest, Mode
from tirjudge_server.examples import EXAMPLES
from tirjudge_web.openapi import describe_fields, describe_requests, json_content


class Tag(StrEnum):
    """Groups of endpoints, in the order of the documentation."""

    JUDGE = "Judge"
    REWARDS = "Rewards and ranking"
    OPENAI = "OpenAI's API"
    FILES = "Files and batches"
    DIALECTS = "Protocols of trainers"
    RECORDS = "Records"
    ADMIN = "Administration"
    STATE = "State of the server"


_TAGS = {
    Tag.JUDGE: "Judgments of one request, as JSON or as a stream of events, or of many requests.",
    Tag.REWARDS: "Rewards of responses and rankings of responses, in tirjudge's own format.",
    Tag.OPENAI: "Endpoints that clients of OpenAI's API call: chat, completions, decisions, graders and models.",
    Tag.FILES: "Files of requests, and batches that judge them in the background.",
    Tag.DIALECTS: "Reward protocols of trainers and rerankers. `--dialects` selects them.",
    Tag.RECORDS: "Stored judgments, and the replay of their programs.",
    Tag.ADMIN: "Operations of the server's owner. They need a key with the scope `admin`.",
    Tag.STATE: "Health, readiness and metrics. No key is needed.",
}

_SECURITY = {
    "key": {
        "type": "http",
        "scheme": "bearer",
        "description": "A server has no keys until `tirjudge keys create` creates the first one. Then requests need the "
        "header `Authorization: Bearer KEY`, or `x-api-key: KEY`.",
    }
}

ERROR_STATUSES = {
    "400": "The request is invalid; `param` names the field.",
    "401": "The API key is missing or invalid.",
    "403": "The API key does not have the required scope.",
    "404": "The model does not exist.",
    "409": "The judgment for this idempotency key was erased.",
    "413": "The request body is too large, or the request costs too much.",
    "422": "The idempotency key was already used with a different request.",
    "429": "The queue is full, or the API key has reached a limit; `retry-after` says when to retry.",
    "502": "The server of the model refuses this server: its key, its model or this request.",
    "503": "The engine, the sandbox or the records failed, or the server is shutting down.",
    "504": "The deadline passed before the model had written anything to judge by.",
}
"""Errors of endpoints that judge: status -> description."""

_READ_STATUSES = {status: ERROR_STATUSES[status] for status in ("400", "401", "403", "429", "503")} | {
    "404": "The object does not exist, or it belongs to another caller."
}
"""Errors of endpoints that do not judge: status -> description."""

_NO_KEY = frozenset({"/health", "/ready", "/metrics"})
"""Paths that need no API key. Their routes declare their own responses."""

_PATH_PARAMETERS = {
    "model": "Name of a model, as the list of models has it.",
    "file_id": "Id of a file.",
    "batch_id": "Id of a batch.",
    "eval_id": "Id of an eval.",
    "run_id": "Id of a run of this eval.",
    "output_item_id": "Id of an output item of this run.",
    "judgment_id": "Id of a judgment.",
}
"""Name of a part of a path -> its description."""


def _data(content: type[BaseModel]) -> dict[str, Any]:
    """The schema of the line `data` of an event."""
    return {
        "type": "string",
        "contentMediaType": "application/json",
        "contentSchema": {"$ref": f"#/components/schemas/{content.__name__}"},
        "description": f"A `{content.__name__}` as JSON.",
    }


def _named_event(name: str, content: type[BaseModel]) -> dict[str, Any]:
    """The schema of an event that has a name."""
    event = {"type": "string", "const": name, "description": f"Always `{name}`."}
    return {
        "type": "object",
        "title": name,
        "properties": {"event": event, "data": _data(content)},
        "required": ["event", "data"],
    }


_JUDGMENT_EVENT = {
    "description": "One event of the stream: `judgment.created` first, `judgment.turn` for each turn, then "
    "`judgment.completed`. `error` ends the stream early. Lines that begin with a colon keep the connection open.",
    "oneOf": [_named_event(name, content) for name, content in EVENTS.items()],
}


def _chunk_event(chunk: type[BaseModel]) -> dict[str, Any]:
    """The schema of an event of a completion in a stream."""
    return {
        "description": "One event of the stream: the chunks, then `[DONE]`. An error ends the stream early. Lines that begin "
        "with a colon keep the connection open.",
        "oneOf": [
            {"type": "object", "title": chunk.__name__, "properties": {"data": _data(chunk)}, "required": ["data"]},
            {"type": "object", "title": "Error", "properties": {"data": _data(ErrorBody)}, "required": ["data"]},
            {
                "type": "object",
                "title": "End",
                "properties": {"data": {"type": "string", "const": "[DONE]", "description": "The stream is whole."}},
                "required": ["data"],
            },
        ],
    }


def describe(
    app: FastAPI,
    requests: Mapping[str, type[BaseModel]],
    *,
    examples: Mapping[str, Mapping[str, Any]] = EXAMPLES,
    streams: Mapping[str, type[BaseModel]] = MappingProxyType({}),
    functions: Sequence[str] = (),
    has_checks: bool = False,
    takes_evidence: bool = False,
) -> None:
    """Complete the OpenAPI schema that FastAPI generates.

    Args:
        app: the application; its `openapi` method is replaced.
        requests: path -> model of its request body, for all paths except `JUDGE_PATH`.
        examples: path -> title of an example -> body.
        streams: path -> model of its chunks, for paths that can respond with a stream, except `JUDGE_PATH`.
        functions: names of the functions that this server offers to programs.
        has_checks: whether this server has checks of responses.
        takes_evidence: whether functions or checks can query stores that come with a request.
    """
    describe_requests(app, {JUDGE_PATH: JudgeRequest, **requests}, errors=ERROR_STATUSES)
    generate = app.openapi

    @cache
    def openapi() -> dict[str, Any]:
        schema = generate()
        schema["tags"] = [{"name": tag, "description": text} for tag, text in _TAGS.items()]
        schema["components"]["securitySchemes"] = _SECURITY
        for path, bodies in examples.items():
            if path not in schema["paths"]:  # a server without files has no evals
                continue
            content = schema["paths"][path]["post"]["requestBody"]["content"]["application/json"]
            content["examples"] = {title: {"value": body} for title, body in bodies.items()}
        _describe_streams(schema, streams)
        for path, operations in schema["paths"].items():
            for operation in operations.values():
                _describe_errors(operation["responses"], guarded=path not in _NO_KEY)
                for parameter in operation.get("parameters", ()):
                    if parameter["name"] in _PATH_PARAMETERS:
                        parameter.setdefault("description", _PATH_PARAMETERS[parameter["name"]])
                operation.setdefault("tags", [Tag.STATE])
                if path not in _NO_KEY:
                    operation["security"] = [{"key": []}, {}]
        for name in ("HTTPValidationError", "ValidationError"):
            schema["components"]["schemas"].pop(name, None)
        schemas = schema["components"]["schemas"]
        for name in {JudgeRequest.__name__} | {model.__name__ for model in requests.values()}:
            _offer_functions(schemas.get(name, {}), names=functions, takes_evidence=takes_evidence)
        if not has_checks:
            schemas[Mode.__name__]["enum"] = [str(mode) for mode in MODEL_MODES]
        describe_fields(schema)
        return schema

    app.openapi = openapi


def _describe_streams(schema: dict[str, Any], streams: Mapping[str, type[BaseModel]]) -> None:
    """Add the responses that are streams of events, and the models of their data."""
    schemas = schema["components"]["schemas"]
    for model in (*EVENTS.values(), *streams.values()):
        described = model.model_json_schema(ref_template="#/components/schemas/{model}", mode="serialization")
        for name, part in {**described.pop("$defs", {}), model.__name__: described}.items():
            schemas.setdefault(name, part)
    events = {JUDGE_PATH: _JUDGMENT_EVENT, **{path: _chunk_event(chunk) for path, chunk in streams.items()}}
    for path, event in events.items():
        content = schema["paths"][path]["post"]["responses"]["200"]["content"]
        content["text/event-stream"] = {"schema": event}


def _offer_functions(request: dict[str, Any], *, names: Sequence[str], takes_evidence: bool) -> None:
    """Allow only the offered functions in the field `functions` of a request, if it has one, and stores in the field
    `evidence` only if something can query them."""
    fields = request.get("properties", {})
    for kind in fields.get("functions", {}).get("anyOf", ()):
        if kind["type"] == "array" and names:
            kind["items"]["enum"] = list(names)
        elif kind["type"] == "array":
            kind["maxItems"] = 0
    for kind in fields.get("evidence", {}).get("anyOf", ()):
        if kind["type"] == "array" and not takes_evidence:
            kind["maxItems"] = 0


def _describe_errors(responses: dict[str, Any], *, guarded: bool) -> None:
    """Remove FastAPI's own 422, which these endpoints never send, and add the errors that they do send."""
    if "HTTPValidationError" in str(responses.get("422")):
        del responses["422"]
    for status, description in _READ_STATUSES.items() if guarded else ():
        responses.setdefault(status, {"description": description, "content": json_content(ErrorBody)})


def error_responses(statuses: Mapping[int | str, str]) -> dict[int | str, dict[str, Any]]:
    """The `responses` argument of a route.

    Args:
        statuses: status -> its meaning at this route.
    """
    return {
        status: {"description": meaning, "content": json_content(ErrorBody)} for status, meaning in statuses.items()
    }

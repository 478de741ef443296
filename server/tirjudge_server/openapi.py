"""The request and its errors on the OpenAPI page. FastAPI cannot see them, because the body is read by hand: that way its
size is bounded and an error names the field."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from tirjudge.protocol import JUDGE_PATH, ErrorBody
from tirjudge.types import JudgeRequest

ERROR_STATUSES = {
    "400": "The request is wrong; `param` names the field.",
    "404": "There is no such model.",
    "413": "The body is too large.",
    "429": "The queue is full; `retry-after` says when to ask again.",
    "503": "The engine or the sandbox failed, or the server is shutting down.",
}


def describe_request(app: FastAPI) -> None:
    """Complete what FastAPI generates."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        schema = generate()
        schemas = schema["components"]["schemas"]
        for model in (JudgeRequest, ErrorBody):
            described = model.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas |= described.pop("$defs") | {model.__name__: described}
        operation = schema["paths"][JUDGE_PATH]["post"]
        operation["requestBody"] = {"required": True, "content": _json("JudgeRequest")}
        operation["responses"]["200"]["content"]["text/event-stream"] = {"schema": {"type": "string"}}
        for status, description in ERROR_STATUSES.items():
            operation["responses"][status] = {"description": description, "content": _json("ErrorBody")}
        return schema

    app.openapi = openapi


def _json(model: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{model}"}}}

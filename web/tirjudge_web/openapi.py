"""Requests and errors on the OpenAPI page. FastAPI cannot see them, because bodies are read by hand: that way their size is
bounded and an error names the field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from tirjudge.http.protocol import ErrorBody

BARE: Mapping[str, Any] = {"docs_url": None, "redoc_url": None, "redirect_slashes": False}
"""Options of every `FastAPI` of ours. Its own pages run scripts from elsewhere, which could then use the server. Its
redirects repeat the `Host` of the request."""


def describe_requests(app: FastAPI, requests: Mapping[str, type[BaseModel]], *, errors: Mapping[str, str]) -> None:
    """Complete what FastAPI generates.

    Args:
        app: has the paths.
        requests: path -> what is posted there.
        errors: status -> what it means, at each of those paths.
    """
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        schema = generate()
        schemas = schema.setdefault("components", {}).setdefault("schemas", {})
        for model in (*requests.values(), ErrorBody):
            described = model.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas |= described.pop("$defs", {}) | {model.__name__: described}
        for path, model in requests.items():
            operation = schema["paths"][path]["post"]
            operation["requestBody"] = {"required": True, "content": json_content(model)}
            for status, description in errors.items():
                operation["responses"][status] = {"description": description, "content": json_content(ErrorBody)}
        return schema

    app.openapi = openapi


def json_content(model: type[BaseModel]) -> dict[str, Any]:
    """A body that holds a model, in OpenAPI's words."""
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}

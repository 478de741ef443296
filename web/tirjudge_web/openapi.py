"""Add request and error schemas to the OpenAPI description. FastAPI cannot generate them, because our handlers read
bodies themselves, to limit their size and to name the field in errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from tirjudge.http.protocol import ErrorBody

BARE: Mapping[str, Any] = {"docs_url": None, "redoc_url": None, "redirect_slashes": False}
"""Options of all our `FastAPI` applications. FastAPI's documentation pages load scripts from other sites, which could
then use the server. Its redirects repeat the `Host` of the request."""


def describe_requests(app: FastAPI, requests: Mapping[str, type[BaseModel]], *, errors: Mapping[str, str]) -> None:
    """Extend the OpenAPI description that FastAPI generates.

    Args:
        app: the application, whose paths are defined.
        requests: path -> model of its POST body.
        errors: status -> description, for all these paths.
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
    """Return the OpenAPI description of a JSON body of a model."""
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}

"""Add request and error schemas to the OpenAPI description. FastAPI cannot generate them, because our handlers read
bodies themselves, to limit their size and to name the field in errors."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from fastapi import FastAPI
from pydantic import AliasChoices, BaseModel
from pydantic.fields import FieldInfo

from tirjudge.http.protocol import ErrorBody
from tirjudge.http.rewards import JudgingOptions, RewardItem, RewardRequest
from tirjudge.types import JudgeRequest

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


SAME_FIELDS: Mapping[type[BaseModel], type[BaseModel]] = {JudgingOptions: JudgeRequest, RewardRequest: RewardItem}
"""Model -> the model that documents its fields of the same names."""


def describe_fields(schema: dict[str, Any]) -> None:
    """Add the docstrings of the fields of our models to an OpenAPI schema, as descriptions."""
    models = {model.__name__: model for model in _models_below(BaseModel)}
    for name, component in schema.get("components", {}).get("schemas", {}).items():
        if name not in models:
            continue
        docstrings: dict[str, str] = {}
        for model, documented in SAME_FIELDS.items():
            if issubclass(models[name], model):
                docstrings |= field_docstrings(documented)
        docstrings |= field_docstrings(models[name])
        for field, info in models[name].model_fields.items():
            if field in docstrings:
                docstrings[_name_in_schema(field, info)] = docstrings[field]
        for field, described in component.get("properties", {}).items():
            if field in docstrings:
                described.setdefault("description", docstrings[field])


def _name_in_schema(field: str, info: FieldInfo) -> str:
    """Return the name of a field in the schema of its model: the first of its aliases, as pydantic chooses."""
    alias = info.validation_alias
    first = alias.choices[0] if isinstance(alias, AliasChoices) else alias
    return first if isinstance(first, str) else field


def _models_below(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Yield the models of this project that inherit from a model."""
    for each in model.__subclasses__():
        if each.__module__.startswith("tirjudge"):
            yield each
        yield from _models_below(each)


def field_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings below the fields of a model, and below those that it inherits, each on one line."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if each.__module__.startswith("tirjudge"):
            found |= _docstrings_of(each.__module__).get(each.__qualname__, {})
    return found


@cache
def _docstrings_of(module: str) -> dict[str, dict[str, str]]:
    """Return class name -> field -> docstring. One parse per module: pydantic's `use_attribute_docstrings` parses the
    module for each class, at import."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {
        node.name: {
            field.target.id: " ".join(text.value.value.split())
            for field, text in zip(node.body, node.body[1:], strict=False)
            if isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        }
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def json_content(model: type[BaseModel]) -> dict[str, Any]:
    """Return the OpenAPI description of a JSON body of a model."""
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}


def answers_with(model: Any) -> dict[int | str, dict[str, Any]]:
    """The `responses` argument of a route that writes its JSON itself.

    Args:
        model: type of the JSON.
    """
    return {200: {"model": model}}

"""`GET /docs`: the OpenAPI schema of an application as one HTML page.

The page has no scripts and loads nothing, so it works without a network, and its content security policy allows its own
style only. FastAPI's documentation pages load scripts from another site.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from fastapi import FastAPI, Response
from markupsafe import Markup, escape

from tirjudge_web.errors import REFERENCE_PATH

METHODS = ("get", "post", "put", "patch", "delete")

_FOLDER = Path(__file__).parent
_STYLE = (_FOLDER / "reference.css").read_text(encoding="utf-8")
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS = {
    "content-security-policy": (
        f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
"""Headers of the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldRow:
    """One line of a table: a field, a parameter or a response."""

    name: str
    type: Markup
    description: str
    default: str | None = None
    """Default as JSON. None: there is no default."""
    is_required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleCommand:
    """An example of a request, as a command for a shell."""

    title: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationView:
    """One operation: a method of a path."""

    method: str
    path: str
    anchor: str
    description: str
    parameters: Sequence[FieldRow]
    body: Markup
    """Type of the body. Empty: no body."""
    fields: Sequence[FieldRow]
    """Fields of the body."""
    examples: Sequence[ExampleCommand]
    responses: Sequence[FieldRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class TagView:
    """A group of operations."""

    name: str
    anchor: str
    description: str
    operations: list[OperationView] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeView:
    """A named type of the schema."""

    name: str
    anchor: str
    description: str
    values: str
    """Allowed values of an enumeration. Empty: any."""
    fields: Sequence[FieldRow]


def add_reference(app: FastAPI) -> None:
    """Add the page to an application. It describes the routes that exist at the first request."""

    @cache
    def page() -> bytes:
        return reference_page(app.openapi()).encode()

    @app.get(REFERENCE_PATH, include_in_schema=False)
    async def reference() -> Response:
        return Response(page(), media_type="text/html; charset=utf-8", headers=HEADERS)


def reference_page(schema: Mapping[str, Any]) -> str:
    """Return the HTML page of an OpenAPI schema."""
    schemas = schema.get("components", {}).get("schemas", {})
    security = schema.get("components", {}).get("securitySchemes", {})
    environment = jinja2.Environment(
        autoescape=True, loader=jinja2.FileSystemLoader(_FOLDER), undefined=jinja2.StrictUndefined
    )
    environment.filters["prose"] = _prose
    return environment.get_template("reference.html.jinja").render(
        title=schema["info"]["title"],
        version=schema["info"]["version"],
        style=Markup(_STYLE),
        security=" ".join(each.get("description", "") for each in security.values()),
        tags=_tags(schema, schemas=schemas),
        types=[_type(name, schemas[name]) for name in sorted(schemas)],
    )


def _tags(schema: Mapping[str, Any], *, schemas: Mapping[str, Any]) -> list[TagView]:
    """Return the groups in the order of the schema's `tags`, then those without a description."""
    described = {tag["name"]: tag.get("description", "") for tag in schema.get("tags", ())}
    views = {name: TagView(name=name, anchor=f"tag-{name}", description=text) for name, text in described.items()}
    for path, operations in schema["paths"].items():
        for method in METHODS:
            if method in operations:
                name = (operations[method].get("tags") or ["Other"])[0]
                view = views.setdefault(name, TagView(name=name, anchor=f"tag-{name}", description=""))
                view.operations.append(_operation(method, path, operations[method], schemas=schemas))
    return [view for view in views.values() if view.operations]


def _operation(method: str, path: str, operation: Mapping[str, Any], *, schemas: Mapping[str, Any]) -> OperationView:
    kind, body = next(iter(operation.get("requestBody", {}).get("content", {}).items()), ("", {}))
    given = body.get("schema", {})
    target = schemas.get(given.get("$ref", "").rpartition("/")[2], given)
    return OperationView(
        method=method.upper(),
        path=path,
        anchor=f"{method}-{path}",
        description=operation.get("description") or operation.get("summary", ""),
        parameters=[
            _row(each["name"], {**each["schema"], **each}, is_required=each.get("required", False))
            for each in operation.get("parameters", ())
        ],
        body=type_text(given) if kind else Markup(),
        fields=_fields(target),
        examples=list(_examples(path, body)),
        responses=[
            FieldRow(name=status, type=_content(each), description=each.get("description", ""))
            for status, each in operation["responses"].items()
        ],
    )


def _examples(path: str, body: Mapping[str, Any]) -> Iterator[ExampleCommand]:
    for title, example in body.get("examples", {}).items():
        text = json.dumps(example["value"], indent=1, ensure_ascii=False).replace("'", "'\\''")
        yield ExampleCommand(title=example.get("summary", title), command=f"curl -s localhost:8400{path} -d '{text}'")


def _content(response: Mapping[str, Any]) -> Markup:
    kinds = response.get("content", {}).items()
    return Markup("<br>").join(type_text(each.get("schema", {})) or escape(kind) for kind, each in kinds)


def _type(name: str, schema: Mapping[str, Any]) -> TypeView:
    return TypeView(
        name=name,
        anchor=f"type-{name}",
        description=schema.get("description", ""),
        values=", ".join(json.dumps(value) for value in schema.get("enum", ())),
        fields=_fields(schema),
    )


def _fields(schema: Mapping[str, Any]) -> list[FieldRow]:
    required = schema.get("required", ())
    fields = schema.get("properties", {}).items()
    return [_row(name, each, is_required=name in required) for name, each in fields]


def _row(name: str, schema: Mapping[str, Any], *, is_required: bool) -> FieldRow:
    default = schema.get("default")
    return FieldRow(
        name=name,
        type=type_text(schema),
        description=schema.get("description", ""),
        default=None if default is None else json.dumps(default),
        is_required=is_required,
    )


def type_text(schema: Mapping[str, Any]) -> Markup:
    """Return the name of a JSON Schema's type, with links to named types."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return Markup('<a href="#type-{0}">{0}</a>').format(name)
    if "const" in schema:
        return escape(json.dumps(schema["const"]))
    if "enum" in schema:
        return escape(" or ".join(json.dumps(value) for value in schema["enum"]))
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return Markup(" or ").join(type_text(each) for each in schema[union])
    kind = schema.get("type", "")
    if kind == "array":
        return Markup("list of {}").format(type_text(schema.get("items", {})) or "any")
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return Markup("object of {}").format(type_text(schema["additionalProperties"]) or "any")
    return escape(f"{' or '.join(kind) if isinstance(kind, list) else kind}{_bounds(schema)}")


def _bounds(schema: Mapping[str, Any]) -> str:
    low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
    if low is None and high is None:
        return ""
    return f" from {low}" * (low is not None) + f" to {high}" * (high is not None)


def _prose(text: str) -> Markup:
    """Return a text as HTML. Text between backticks becomes code."""
    parts = text.split("`")
    return Markup().join(
        Markup("<code>{}</code>").format(part) if index % 2 else escape(part) for index, part in enumerate(parts)
    )

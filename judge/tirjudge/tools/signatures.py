"""JSON schemas as Python signatures, for the prompt: `(query: str, limit: int = 5) -> list[{"title": str, "url": str}]`.

The schemas come from other parties. The texts made of them are short and in one line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_TYPES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
    "array": "list",
    "object": "dict",
}
_MAX_DEPTH = 4
_MAX_CHARS = 60
_MAX_TYPE_CHARS = 300
_MAX_ITEMS = 12


def parameters_of(schema: Mapping[str, Any]) -> list[str]:
    """Return the names of the parameters in a schema of arguments: first those that are required."""
    properties = _mapping(schema.get("properties"))
    required = schema.get("required") or ()
    return sorted(properties, key=lambda name: name not in required)


def signature_of(schema: Mapping[str, Any], *, names: Mapping[str, str], result: Mapping[str, Any] | None) -> str:
    """Return a signature.

    Args:
        schema: schema of the arguments, an object.
        names: name in the schema -> name in Python.
        result: schema of the result. None: text.
    """
    properties = _mapping(schema.get("properties"))
    required = schema.get("required") or ()
    parts: list[str] = []
    for name in parameters_of(schema):
        part = f"{names[name]}: {type_of(properties[name], root=schema)}"
        if name not in required:
            default = _mapping(properties[name]).get("default")
            part += f" = {_short(repr(default))}"
        parts.append(part)
    returned = "str" if result is None else type_of(result, root=result)
    return f"({', '.join(parts)}) -> {returned}"


def type_of(schema: Any, *, root: Mapping[str, Any]) -> str:
    """Return the type of a schema, such as `list[str]` or `Literal['a', 'b'] | None`.

    Args:
        schema: JSON schema, or a boolean.
        root: schema whose definitions `schema` refers to.
    """
    shown = _type(schema, root=root, depth=0)
    return shown if len(shown) <= _MAX_TYPE_CHARS else shown.partition("[")[0].partition("{")[0] or "dict"


def _type(schema: Any, *, root: Mapping[str, Any], depth: int) -> str:
    schema = _resolved(schema, root=root)
    if depth > _MAX_DEPTH:
        return "Any"
    if isinstance(schema.get("enum"), list):
        return _short(f"Literal[{', '.join(map(repr, schema['enum'][:_MAX_ITEMS]))}]", otherwise="Any")
    if "const" in schema:
        return _short(f"Literal[{schema['const']!r}]", otherwise="Any")
    either = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(either, list):
        return _union([_type(each, root=root, depth=depth + 1) for each in either[:_MAX_ITEMS]])
    kind = schema.get("type")
    if isinstance(kind, list):
        return _union([_type({**schema, "type": each}, root=root, depth=depth + 1) for each in kind[:_MAX_ITEMS]])
    if kind == "array" and "items" in schema:
        return f"list[{_type(schema['items'], root=root, depth=depth + 1)}]"
    properties = _mapping(schema.get("properties"))
    if kind == "object" and 0 < len(properties) <= _MAX_ITEMS:
        items = (
            f"{_short(repr(name))}: {_type(each, root=root, depth=depth + 1)}" for name, each in properties.items()
        )
        return f"{{{', '.join(items)}}}"
    return _TYPES.get(str(kind), "Any")


def _resolved(schema: Any, *, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the definition that a schema refers to; the schema itself if it refers to none in this document."""
    schema = _mapping(schema)
    for _ in range(_MAX_DEPTH):
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        section, _, name = reference.removeprefix("#/").partition("/")
        schema = _mapping(_mapping(root.get(section)).get(name))
    return schema


def _union(types: Sequence[str]) -> str:
    return " | ".join(dict.fromkeys(types)) or "Any"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _short(text: str, *, otherwise: str = "...") -> str:
    return text if len(text) <= _MAX_CHARS and text.isprintable() else otherwise

"""Check JSON values against JSON schemas of other parties.

References are resolved inside the schema only: none is fetched. Regular expressions and `uniqueItems` are not checked here,
because a program could pass a value on which they take very long; the party that gave the schema checks them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jsonschema
from jsonschema.exceptions import best_match
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from tirjudge.tools.functions import ToolError

_MAX_PROBLEM_CHARS = 400

_NAMED = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose value maps names to schemas."""

_CONSTANT = frozenset({"const", "enum", "default", "examples"})
"""Keywords whose value is not a schema."""


def argument_check(
    schema: Mapping[str, Any], *, names: Mapping[str, str]
) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """Return a function that checks arguments, and that returns them under the names of the schema.

    Args:
        schema: schema of the arguments.
        names: name in the schema -> name in Python.

    Raises:
        ValueError: the schema is invalid.
    """
    validator = _validator(schema)
    properties = schema.get("properties") or {}
    takes_others = schema.get("additionalProperties", False) is not False or "patternProperties" in schema
    wire = {python: name for name, python in names.items()}

    def check(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        unknown = next((name for name in arguments if name not in wire), None)
        if unknown is not None and properties and not takes_others:
            raise ToolError(f"{unknown[:80]}: unknown parameter; expected {', '.join(wire)}")
        given = {wire.get(name, name): value for name, value in arguments.items()}
        missing = [names.get(name, name) for name in schema.get("required") or () if name not in given]
        if missing:
            raise ToolError(f"{missing[0]}: the parameter is missing")
        problem = problem_with(given, validator)
        if problem is not None:
            raise ToolError(problem)
        return given

    return check


def result_check(schema: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return a function that checks a result and returns it.

    Raises:
        ValueError: the schema is invalid.
    """
    validator = _validator(schema)

    def check(value: Any) -> Any:
        problem = problem_with(value, validator)
        if problem is not None:
            raise ToolError(f"the tool returned a result that does not match its output schema: {problem}")
        return value

    return check


def problem_with(value: Any, validator: Validator) -> str | None:
    """Return where a value does not match a schema, and why. None: it matches."""
    try:
        error = best_match(validator.iter_errors(value))
    except (RecursionError, Unresolvable) as failed:
        return f"cannot be checked: {type(failed).__name__}"
    if error is None:
        return None
    where = ".".join(map(str, error.absolute_path))
    return f"{where}: {error.message}"[:_MAX_PROBLEM_CHARS] if where else error.message[:_MAX_PROBLEM_CHARS]


def _validator(schema: Mapping[str, Any]) -> Validator:
    try:
        plain = without_patterns(schema)
        kind = validator_for(plain)
        kind.check_schema(plain)
    except (jsonschema.SchemaError, RecursionError, TypeError) as error:
        raise ValueError(
            f"not a JSON schema: {getattr(error, 'message', type(error).__name__)}"[:_MAX_PROBLEM_CHARS]
        ) from None
    return kind(plain, registry=Registry())


def patterns_in(schema: Any) -> Iterator[str]:
    """Yield the regular expressions of a schema: the values of `pattern`, and the keys of `patternProperties`."""
    if isinstance(schema, list):
        for each in schema:
            yield from patterns_in(each)
    if not isinstance(schema, Mapping):
        return
    for key, value in schema.items():
        if key == "pattern" and isinstance(value, str):
            yield value
        elif key == "patternProperties" and isinstance(value, Mapping):
            yield from map(str, value)
            yield from patterns_in(list(value.values()))
        elif key in _NAMED and isinstance(value, Mapping):
            yield from patterns_in(list(value.values()))
        elif key not in _CONSTANT:
            yield from patterns_in(value)


def without_patterns(schema: Any) -> Any:
    """Return a schema without the keywords whose check can take long: regular expressions and `uniqueItems`. Where patterns
    name properties, further properties are allowed."""
    if isinstance(schema, list):
        return [without_patterns(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    dropped = {"pattern", "patternProperties", "uniqueItems"}
    if "patternProperties" in schema:
        dropped |= {"additionalProperties", "unevaluatedProperties"}
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key in dropped:
            continue
        if key in _NAMED and isinstance(value, Mapping):
            made[key] = {name: without_patterns(each) for name, each in value.items()}
        else:
            made[key] = value if key in _CONSTANT else without_patterns(value)
    return made

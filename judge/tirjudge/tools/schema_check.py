"""Check JSON values against JSON schemas of other parties.

References are resolved inside the schema only: none is fetched. Regular expressions and `uniqueItems` in schemas of tools are
not checked, because a program could pass a value on which they take very long; the party that gave the schema checks them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any

import attrs
import jsonschema
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for
from jsonschema_specifications import REGISTRY
from referencing import Specification
from referencing.exceptions import Unresolvable
from referencing.jsonschema import specification_with

from tirjudge.tools.functions import ToolError
from tirjudge.types import whole

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
        validator, _ = open_schema(exact_validator(validator_for(plain)), plain)
    except (RecursionError, TypeError, ValueError) as error:
        problem = str(error) if isinstance(error, ValueError) else type(error).__name__
        raise ValueError(f"not a JSON schema: {problem}"[:_MAX_PROBLEM_CHARS]) from None
    return validator


def exact_validator(kind: Any, keywords: Mapping[str, Any] | None = None) -> Any:
    """Return a class of validators for untrusted values: its numbers are exact and of any size, and `uniqueItems` takes
    linear time. `$schema` in a part of a schema does not bring back the keywords of the library.

    Args:
        kind: class of `jsonschema`.
        keywords: name -> function of further keywords.
    """
    known = {name: check for name, check in _EXACT_KEYWORDS.items() if name in kind.VALIDATORS}
    made: Any = extend(kind, known | dict(keywords or {}))
    made.evolve = attrs.evolve
    return made


def open_schema(kind: Any, schema: Any, *, check: Callable[[Any], None] | None = None) -> tuple[Validator, list[str]]:
    """Return the validator of a schema, and its references that lead nowhere.

    The schema of schemas does not examine all parts that a reference can lead to, such as the value of `default`. So each of
    these parts is checked too.

    Args:
        kind: class of validators.
        schema: the schema.
        check: raises ValueError if a part is not a schema. None: check it against the schema of schemas.

    Raises:
        ValueError: it is not a schema, or a reference leads to a part that is none.
    """
    check = check or (lambda part: _check_schema(kind, part))
    check(schema)
    specification = specification_with(kind.META_SCHEMA["$schema"])
    root = specification.create_resource(schema)
    try:
        uri = root.id() or ""
        # The library would search the whole schema for each reference to an anchor.
        resolver = REGISTRY.with_resource(uri, root).crawl().resolver(uri)
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"an identifier ($id, $anchor or $schema) is invalid: {error}") from None
    return kind(schema, _resolver=resolver), _dangling(schema, resolver, specification=specification, check=check)


def _dangling(
    schema: Any, resolver: Any, *, specification: Specification[Any], check: Callable[[Any], None]
) -> list[str]:
    """Check the parts of a valid schema that references lead to. Return the references that lead nowhere.

    Raises:
        ValueError: a part is not a schema.
    """
    dangling: list[str] = []
    valid = set(map(id, parts_of(schema, specification)))
    seen: set[tuple[int, str]] = set()
    waiting: list[tuple[Any, Any]] = [(schema, resolver)]
    while waiting:
        part, at = waiting.pop()
        if not isinstance(part, Mapping) or (id(part), at._base_uri) in seen:
            continue
        seen.add((id(part), at._base_uri))
        for name in ("$ref", "$dynamicRef"):
            reference = part.get(name)
            if not isinstance(reference, str):
                continue
            try:
                target = at.lookup(reference)
                if id(target.contents) not in valid:
                    check(target.contents)
                    valid |= set(map(id, parts_of(target.contents, specification)))
            except Unresolvable:
                dangling.append(reference)
                continue
            except (AttributeError, TypeError, ValueError) as error:
                raise ValueError(f"{name}: {reference!r} given, expected a reference to a schema: {error}") from None
            waiting.append((target.contents, target.resolver))
        for below in specification.subresources_of(part):
            if isinstance(below, Mapping):
                waiting.append((below, at.in_subresource(specification.create_resource(below))))
    return dangling


def parts_of(schema: Any, specification: Specification[Any]) -> list[Mapping[str, Any]]:
    """Return a valid schema and the schemas in it, each once, without booleans."""
    parts: dict[int, Mapping[str, Any]] = {}
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping) and id(part) not in parts:
            parts[id(part)] = part
            waiting += specification.subresources_of(part)
    return list(parts.values())


def _check_schema(kind: Any, schema: Any) -> None:
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise ValueError(error.message) from None


def _multiple_of(validator: Validator, factor: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Compare decimal numbers: 19.99 is a multiple of 0.01, although the quotient of the floats is not an integer."""
    if not validator.is_type(instance, "number"):
        return
    numbers = [_exact(instance), _exact(factor)]
    if None in numbers or (numbers[0] / numbers[1]).denominator != 1:
        yield ValidationError(f"{instance!r} is not a multiple of {factor!r}")


def _exact(number: float) -> Any:
    """Return a number as a fraction. None: it is not finite."""
    if not isinstance(number, float):
        return Fraction(number)
    return Fraction(repr(number)) if math.isfinite(number) else None


def _unique_items(validator: Validator, is_unique: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if is_unique is not True or not isinstance(instance, list):
        return
    # Texts, because values with equal hashes could be chosen.
    if len({json.dumps(_comparable(each), sort_keys=True) for each in instance}) < len(instance):
        yield ValidationError("has two equal items")


def _comparable(value: Any) -> Any:
    """Return a JSON value whose equal numbers have the same text: 1.0 becomes 1."""
    if isinstance(value, dict):
        return {name: _comparable(each) for name, each in value.items()}
    return [_comparable(each) for each in value] if isinstance(value, list) else whole(value)


_EXACT_KEYWORDS: Mapping[str, Any] = {
    "multipleOf": _multiple_of,
    "divisibleBy": _multiple_of,
    "uniqueItems": _unique_items,
}
"""Name -> function of the keywords that `exact_validator` replaces."""


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

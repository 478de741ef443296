"""Check rows against a caller's JSON Schema (2020-12) within a limited number of steps.

A small schema whose parts refer to one another can take exponential time, so every keyword that is applied to a value is
counted. Patterns are not checked, because Python's regular expressions can take exponential time too. No reference outside
the schema is fetched.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable

from tirjudge.tools.schema_check import without_patterns

MAX_SCHEMA_BYTES = 64 * 1024
"""Maximum size of a schema as JSON."""

MAX_STEPS = 50_000
"""Maximum number of steps to check one row, or the schema itself."""

MAX_REQUEST_STEPS = 1_000_000
"""Maximum number of steps to check all rows of a request. Rows of a file are checked outside of requests."""

_MAX_SHOWN = 300


class _OutOfSteps(Exception):
    """The check of a value takes too long."""


class ItemSchema:
    """A caller's schema of rows.

    Args:
        schema: The JSON Schema.

    Attributes:
        num_steps: Number of steps of all checks so far.

    Raises:
        ValueError: It is not a JSON Schema, or too large.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.num_steps = 0
        self._most = MAX_STEPS
        kinds = {name: self._counted(check) for name, check in Draft202012Validator.VALIDATORS.items()}
        validator: Any = extend(Draft202012Validator, {**kinds, "uniqueItems": _unique_items})
        try:
            size = len(json.dumps(schema))
            if size > MAX_SCHEMA_BYTES:
                raise ValueError(f"{size} bytes given; the limit is {MAX_SCHEMA_BYTES}")
            problem = self._first(validator(Draft202012Validator.META_SCHEMA), schema)
            self._validator = validator(without_patterns(schema), registry=Registry())
        except RecursionError:
            problem = "nested too deeply"
        if problem is not None:
            raise ValueError(f"not a JSON Schema (2020-12): {problem}")

    def problem(self, item: Any) -> str | None:
        """Return where a value does not match the schema, and why. None: it matches."""
        return self._first(self._validator, item)

    def _first(self, validator: Any, value: Any) -> str | None:
        self._most = self.num_steps + MAX_STEPS
        try:
            error = next(validator.iter_errors(value), None)
        except (RecursionError, Unresolvable) as failed:
            return f"cannot be checked: {type(failed).__name__}"
        except _OutOfSteps:
            return f"cannot be checked in {MAX_STEPS} steps; use a simpler schema, or shorter rows"
        if error is None:
            return None
        where, message = ".".join(map(str, error.absolute_path)), error.message[:_MAX_SHOWN]
        return f"{where[:_MAX_SHOWN]}: {message}" if where else message

    def _counted(self, check: Callable[..., Any]) -> Callable[..., Any]:
        def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
            self.num_steps += 1 + sum(len(each) for each in (value, instance) if isinstance(each, list | dict))
            if self.num_steps > self._most:
                raise _OutOfSteps
            return check(validator, value, instance, schema)

        return counted


def _unique_items(validator: Any, is_unique: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Compare items by their JSON, in linear time."""
    texts = [json.dumps(each, sort_keys=True) for each in instance] if isinstance(instance, list) else []
    if is_unique is True and len(set(texts)) < len(texts):
        yield ValidationError("has two equal items")

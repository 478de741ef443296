"""Check rows against a caller's JSON Schema (2020-12) within a limited number of steps.

A small schema whose parts refer to one another can take exponential time, so every keyword that is applied to a value is
counted, and the characters that patterns search. Patterns take linear time (re2). No reference outside the schema is fetched.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from referencing.exceptions import Unresolvable

from tirjudge.tools.schema_check import exact_validator, open_schema, patterns_in
from tirjudge.types import encodable
from tirjudge_evidence.checks.response_json import compiled

MAX_SCHEMA_BYTES = 64 * 1024
"""Maximum size of a schema as JSON."""

MAX_SCHEMA_STEPS = 2_000_000
"""Maximum number of steps to check a schema."""

MAX_STEPS = 50_000
"""Maximum number of steps to check one row."""

MAX_REQUEST_STEPS = 1_000_000
"""Maximum number of steps to check all rows of a request. Rows of a file are checked outside of requests."""

CHARS_PER_STEP = 100
"""Number of characters that a pattern searches in one step."""

MAX_PATTERNS = 200
"""Maximum number of different patterns of a schema."""

_MAX_SHOWN = 300


class _OutOfSteps(Exception):
    """The check of a value takes too long."""


class ItemSchema:
    """A caller's schema of rows.

    Args:
        schema: The JSON Schema.

    Attributes:
        num_steps: Number of steps of all checks of values so far.

    Raises:
        ValueError: It is not a JSON Schema, is too large, or has a pattern that cannot be checked in linear time.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.num_steps = 0
        self._most = MAX_SCHEMA_STEPS
        self._given: set[str] = set()
        self._patterns: dict[str, Any] = {}
        own = {
            "pattern": self._pattern,
            "patternProperties": self._pattern_properties,
            "additionalProperties": self._additional_properties,
        }
        exact = exact_validator(Draft202012Validator)
        kind = exact_validator(exact, {name: self._counted(check) for name, check in (exact.VALIDATORS | own).items()})
        of_schemas = kind(kind.META_SCHEMA)
        try:
            size = len(json.dumps(schema))
            if size > MAX_SCHEMA_BYTES:
                raise ValueError(f"{size} bytes given; the limit is {MAX_SCHEMA_BYTES}")
            self._validator, _ = open_schema(kind, schema, check=lambda part: self._check_schema(part, of_schemas))
        except RecursionError:
            raise ValueError("not a JSON Schema (2020-12): nested too deeply") from None
        except _OutOfSteps:
            raise ValueError(f"cannot be checked in {MAX_SCHEMA_STEPS} steps; use a simpler schema") from None
        self.num_steps = 0

    def problem(self, item: Any) -> str | None:
        """Return where a value does not match the schema, and why. None: it matches."""
        self._most = self.num_steps + MAX_STEPS
        try:
            return self._first(self._validator, item)
        except _OutOfSteps:
            return f"cannot be checked in {MAX_STEPS} steps; use a simpler schema, or shorter rows"

    def _check_schema(self, schema: Any, of_schemas: Any) -> None:
        problem = self._first(of_schemas, schema)
        if problem is not None:
            raise ValueError(f"not a JSON Schema (2020-12): {problem}")
        self._compile(schema)

    def _first(self, validator: Any, value: Any) -> str | None:
        try:
            error = next(validator.iter_errors(value), None)
        except (RecursionError, Unresolvable) as failed:
            return f"cannot be checked: {type(failed).__name__}"
        if error is None:
            return None
        where, message = ".".join(map(str, error.absolute_path)), error.message[:_MAX_SHOWN]
        return f"{where[:_MAX_SHOWN]}: {message}" if where else message

    def _compile(self, schema: Mapping[str, Any]) -> None:
        """Compile the patterns of the schema, or of a part of it.

        Raises:
            ValueError: A pattern is not valid in re2, or there are too many.
        """
        found = set(patterns_in(schema))
        self._given |= found
        if len(self._given) > MAX_PATTERNS:
            raise ValueError(f"{len(self._given)} patterns given; the limit is {MAX_PATTERNS}")
        for pattern in sorted(found):
            try:
                self._patterns[pattern] = compiled(encodable(pattern))
            except ValueError as error:
                hint = "patterns take linear time here: use no lookaround and no back-references, or remove the pattern"
                raise ValueError(f"{str(error)[:_MAX_SHOWN]}; {hint}") from None
        text = json.dumps(schema)
        if '"unevaluatedProperties"' in text and '"patternProperties"' in text:
            # jsonschema would search these patterns with Python's regular expressions.
            raise ValueError("unevaluatedProperties: not supported with patternProperties; use additionalProperties")

    def _matches(self, pattern: str, text: str) -> bool:
        self._spend(len(text) // CHARS_PER_STEP)
        if pattern not in self._patterns:  # a pattern of the schema of schemas, which is a short one
            self._patterns[pattern] = compiled(pattern)
        return self._patterns[pattern].search(encodable(text)) is not None

    def _pattern(self, validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if isinstance(instance, str) and not self._matches(pattern, instance):
            yield ValidationError(f"{instance[:_MAX_SHOWN]!r} does not match {pattern!r}")

    def _pattern_properties(self, validator: Any, kinds: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if not isinstance(instance, dict):
            return
        for pattern, kind in kinds.items():
            self._spend(len(instance))
            for name, value in instance.items():
                if self._matches(pattern, name):
                    yield from validator.descend(value, kind, path=name, schema_path=pattern)

    def _additional_properties(
        self, validator: Any, kind: Any, instance: Any, schema: Any
    ) -> Iterator[ValidationError]:
        if not isinstance(instance, dict):
            return
        named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        self._spend(len(instance) * len(patterns))
        for name, value in instance.items():
            if name in named or any(self._matches(pattern, name) for pattern in patterns):
                continue
            if kind is False:
                yield ValidationError(f"{name[:_MAX_SHOWN]!r} was unexpected: additional properties are not allowed")
            else:
                yield from validator.descend(value, kind, path=name)

    def _spend(self, num_steps: int) -> None:
        self.num_steps += num_steps
        if self.num_steps > self._most:
            raise _OutOfSteps

    def _counted(self, check: Callable[..., Any]) -> Callable[..., Any]:
        def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
            self._spend(1 + sum(len(each) for each in (value, instance) if isinstance(each, list | dict)))
            return check(validator, value, instance, schema)

        return counted

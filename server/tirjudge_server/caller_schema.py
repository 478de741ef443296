"""Check values against a caller's JSON Schema (2020-12) within a limited number of steps.

A small schema whose parts refer to one another can take exponential time, so every schema and every keyword that is applied
to a value is counted, and the characters that patterns search and that messages repeat. Patterns take linear time (re2). No
other document is fetched.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from referencing.jsonschema import DRAFT202012

from tirjudge.tools.schema_check import exact_validator, open_schema, parts_of, patterns_in
from tirjudge.types import encodable
from tirjudge_evidence.checks.response_json import compiled

MAX_SCHEMA_BYTES = 64 * 1024
"""Maximum size of a schema as JSON."""

MAX_SCHEMA_STEPS = 2_000_000
"""Maximum number of steps to check a schema."""

MAX_STEPS = 50_000
"""Maximum number of steps to check one value."""

MAX_REQUEST_STEPS = 1_000_000
"""Maximum number of steps to check all rows of a request. Rows of a file are checked outside of requests."""

CHARS_PER_STEP = 100
"""Number of characters that a pattern searches in one step."""

CHARS_PER_MESSAGE_STEP = 1000
"""Number of characters that one step writes into a message. Each error of jsonschema has a message with its value."""

MAX_PATTERNS = 200
"""Maximum number of different patterns of a schema."""

_MAX_SHOWN = 300


class UncheckableValue(Exception):
    """A value cannot be checked: it takes too long, or the schema or the value is nested too deeply."""


class CallerSchema:
    """A caller's schema.

    Args:
        schema: The JSON Schema.
        max_steps: Maximum number of steps to check one value.

    Attributes:
        num_steps: Number of steps of all checks of values so far.

    Raises:
        ValueError: It is not a JSON Schema, is too large, has a reference that leads nowhere or an `$id` below its top, or
            has a pattern that cannot be checked in linear time.
    """

    def __init__(self, schema: Mapping[str, Any], *, max_steps: int = MAX_STEPS) -> None:
        self.num_steps = self._steps_per_error = 0
        self._max_steps = self._most = MAX_SCHEMA_STEPS
        self._given: set[str] = set()
        self._patterns: dict[str, Any] = {}
        own = {
            "pattern": self._pattern,
            "patternProperties": self._pattern_properties,
            "additionalProperties": self._additional_properties,
        }
        exact = exact_validator(Draft202012Validator)
        kind = exact_validator(exact, {name: self._counted(check) for name, check in (exact.VALIDATORS | own).items()})
        kind.evolve = self._counted_evolve()
        of_schemas = kind(kind.META_SCHEMA)
        try:
            size = len(json.dumps(schema))
            if size > MAX_SCHEMA_BYTES:
                raise ValueError(f"{size} bytes given; the limit is {MAX_SCHEMA_BYTES}")
            opened = open_schema(kind, schema, check=lambda part: self._check_schema(part, of_schemas))
        except RecursionError:
            raise ValueError("not a JSON Schema (2020-12): nested too deeply") from None
        except (UncheckableValue, ValueError) as error:
            raise ValueError(encodable(str(error)[: 2 * _MAX_SHOWN])) from None
        self._validator, dangling = opened
        if dangling:
            given = repr(dangling[0][:_MAX_SHOWN])
            raise ValueError(f"the schema has no {given}; only references such as #/$defs/NAME are supported")
        self.num_steps, self._max_steps = 0, max_steps

    def problem(self, value: Any) -> str | None:
        """Return where a value does not match the schema, and why. None: it matches.

        Raises:
            UncheckableValue: It is not known whether the value matches.
        """
        self._most = self.num_steps + self._max_steps
        return self._first(self._validator, value)

    def try_on(self, value: Any) -> None:
        """Check a value to the end, whether it matches or not.

        Raises:
            UncheckableValue: The value cannot be checked.
        """
        self._most = self.num_steps + self._max_steps
        for _ in self._errors(self._validator, value):
            pass

    def _check_schema(self, schema: Any, of_schemas: Any) -> None:
        problem = self._first(of_schemas, schema)
        if problem is not None:
            raise ValueError(f"not a JSON Schema (2020-12): {problem}")
        if any("$id" in part for part in parts_of(schema, DRAFT202012) if part is not schema):
            # jsonschema resolves some references there from the top of the schema, where they can lead to what is no schema.
            raise ValueError("$id: only supported at the top of a schema")
        self._compile(schema)

    def _first(self, validator: Any, value: Any) -> str | None:
        error = next(self._errors(validator, value), None)
        if error is None:
            return None
        where, message = ".".join(map(str, error.absolute_path)), error.message[:_MAX_SHOWN]
        return encodable(f"{where[:_MAX_SHOWN]}: {message}" if where else message)

    def _errors(self, validator: Any, value: Any) -> Iterator[ValidationError]:
        try:
            self._steps_per_error = len(json.dumps(value)) // CHARS_PER_MESSAGE_STEP
            yield from validator.iter_errors(value)
        except RecursionError:
            raise UncheckableValue("cannot be checked: nested too deeply, or a reference leads to itself") from None

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
            raise UncheckableValue(
                f"cannot be checked in {self._max_steps} steps; use a simpler schema, or shorter values"
            )

    def _counted_evolve(self) -> Callable[..., Any]:
        def evolve(validator: Any, **changes: Any) -> Any:
            self._spend(1)
            return attrs.evolve(validator, **changes)

        return evolve

    def _counted(self, check: Callable[..., Any]) -> Callable[..., Any]:
        def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
            self._spend(1 + sum(len(each) for each in (value, instance) if isinstance(each, list | dict)))
            for error in check(validator, value, instance, schema) or ():
                self._spend(self._steps_per_error)
                yield error

        return counted

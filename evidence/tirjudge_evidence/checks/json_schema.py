"""The check `json_schema`: the JSON of a response, validated with a JSON Schema (2020-12).

References stay inside the schema, and patterns take linear time (re2).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from pydantic import Field, field_validator

from tirjudge.tools.schema_check import exact_validator, open_schema
from tirjudge.types import CheckReason
from tirjudge_evidence.checks.base import (
    MAX_REASONS,
    CheckContext,
    CheckFinding,
    CheckKind,
    CheckSettings,
    Examine,
    Examined,
    Missing,
)
from tirjudge_evidence.checks.response_json import compiled, json_of

_SHOWN_CHARS = 300


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and compiled(pattern).search(instance) is None:
        yield ValidationError(f"does not match {pattern}")


_Validator = exact_validator(Draft202012Validator, {"pattern": _pattern})


class JsonSchemaSettings(CheckSettings):
    """Settings of the check."""

    kind: str = Field(pattern="^json_schema$")
    document: dict[str, Any] = Field(alias="schema")
    """The JSON Schema."""

    @field_validator("document")
    @classmethod
    def _check_schema(cls, schema: dict[str, Any]) -> dict[str, Any]:
        try:
            json.dumps(schema, default=str, allow_nan=False)
            _, dangling = open_schema(_Validator, schema)
        except ValueError as error:
            raise ValueError(f"not a valid JSON Schema (2020-12): {error}") from None
        _check_keywords(schema)
        if dangling:
            raise ValueError(f"$ref: {dangling[0]!r} given, which leads nowhere in the schema")
        return schema


def _check_keywords(schema: Any) -> None:
    """Check the references and the patterns of a schema.

    Raises:
        ValueError: a reference outside the schema, or a keyword whose patterns may take long.
    """
    if isinstance(schema, list):
        for each in schema:
            _check_keywords(each)
    if not isinstance(schema, Mapping):
        return
    for name, value in schema.items():
        if name in ("$ref", "$dynamicRef") and isinstance(value, str) and not value.startswith("#"):
            raise ValueError(f"{name}: {value!r} given, expected a reference inside the schema, such as #/$defs/name")
        if name == "patternProperties":
            raise ValueError(
                "patternProperties: not supported; list the properties, or use propertyNames with a pattern"
            )
        if name == "pattern" and isinstance(value, str):
            compiled(value)
        _check_keywords(value)


def _open(settings: JsonSchemaSettings, context: CheckContext) -> Examine:
    validator, _ = open_schema(_Validator, settings.document)

    def findings(response: str) -> list[CheckFinding]:
        contents = json_of(response)
        try:
            errors = list(islice(validator.iter_errors(contents), MAX_REASONS))
        except RecursionError:
            raise Missing("the JSON of the response is nested too deeply for the schema") from None
        return [CheckFinding(reason=_reason(error, settings), severity=settings.severity) for error in errors]

    async def examine(examined: Examined) -> list[CheckFinding]:
        return await asyncio.to_thread(findings, examined.response)

    return examine


def _reason(error: ValidationError, settings: JsonSchemaSettings) -> CheckReason:
    path = "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in error.absolute_path)
    instance: Any = error.instance
    shown = json.dumps(instance)
    value = instance if len(shown) <= _SHOWN_CHARS else shown[:_SHOWN_CHARS]
    detail = error.message[:_SHOWN_CHARS]
    return CheckReason(message=settings.said(f"{path or 'the JSON'}: {detail}"), path=path, value=value)


KIND = CheckKind(name="json_schema", settings=JsonSchemaSettings, open=_open)

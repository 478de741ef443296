"""What crosses HTTP: a program and what may be said about it, and its result. Service and client share these definitions.

Paths of the machine that runs a program are never taken from outside, so a request has no `attachments`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Annotated, Any, get_type_hints

from pydantic import BeforeValidator, Field, WithJsonSchema, create_model

from tirjudge.types import ExecResult, Outcome, Text, Wire
from tirjudge_sandbox.limits import Limits

EXECUTE_PATH = "/v1/execute"
BATCH_PATH = "/v1/execute/batch"

SANDBOX_ERROR = "sandbox_error"
"""The outcome when the sandbox failed. It says nothing about the program, and no model should be shown it as if it did."""

MAX_PROGRAMS = 4096
"""In one batch."""

RESULT_FIELDS = tuple(field.name for field in fields(ExecResult))


def _decoded(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except ValueError as error:
        raise ValueError(f"base64: {error}") from error


Base64 = Annotated[bytes, BeforeValidator(_decoded), WithJsonSchema({"type": "string", "format": "base64"})]
"""Bytes, as JSON takes them. Strict: what is no base64 is refused, not skipped over."""

LimitChanges = create_model(
    "LimitChanges",
    __base__=Wire,
    **{name: (Annotated[kind, Field(strict=True)] | None, None) for name, kind in get_type_hints(Limits).items()},  # type: ignore[call-overload]
)
"""The fields of `Limits`, each of which may be left out: then the service's own holds."""


class ExecuteRequest(Wire):
    """One program."""

    code: Text
    """Python source."""
    bindings: dict[str, Text | dict[str, Text]] = Field(default_factory=dict)
    """Variables it finds: name -> text, or name -> (label -> text)."""
    stdin: Text = ""
    files: dict[str, Base64] = Field(default_factory=dict)
    """Path in its working directory -> content, base64: there when it starts."""
    fetch: list[str] = Field(default_factory=list)
    """Paths in its working directory: handed back as `files` when it has ended."""
    limits: LimitChanges | None = None  # type: ignore[valid-type]
    """What it may use, within what the operator allows; None: the service's own."""


class ProgramBatchRequest(Wire):
    """Several programs; they run side by side and know nothing of one another."""

    programs: list[ExecuteRequest] = Field(min_length=1, max_length=MAX_PROGRAMS)


def limits_of(changes: Wire | None, *, base: Limits) -> Limits:
    """The limits that a request asks for.

    Raises:
        ValueError: one of them is none.
    """
    return base if changes is None else replace(base, **changes.model_dump(exclude_none=True))


def body_of(result: ExecResult) -> dict[str, Any]:
    """A result as JSON takes it."""
    values = {name: getattr(result, name) for name in RESULT_FIELDS}
    return values | {"outcome": str(result.outcome), "files": encoded(result.files)}


def result_json(result: ExecResult) -> bytes:
    """The JSON of `body_of`. Files go in as they are: base64 needs no escapes, and looking for some takes a while."""
    rest = body_of(replace(result, files={}))
    del rest["files"]
    files = (b'%s:"%s"' % (to_json(path), base64.b64encode(content)) for path, content in result.files.items())
    return b'{"files":{%s},%s' % (b",".join(files), to_json(rest)[1:])


def result_of_body(body: Mapping[str, Any]) -> ExecResult:
    """What `body_of` was given; fields of a later version are left out.

    Raises:
        ValueError, LookupError, TypeError: it is no result.
    """
    values = {name: body[name] for name in RESULT_FIELDS}
    files = {path: base64.b64decode(content) for path, content in body["files"].items()}
    return ExecResult(**values | {"outcome": Outcome(body["outcome"]), "files": files})


def encoded(files: Mapping[str, bytes]) -> dict[str, str]:
    """Files as JSON takes them."""
    return {path: base64.b64encode(content).decode() for path, content in files.items()}


def to_json(body: Any) -> bytes:
    """ASCII, so that half a surrogate pair in a path or a message is no reason to fail."""
    return json.dumps(body, separators=(",", ":")).encode()

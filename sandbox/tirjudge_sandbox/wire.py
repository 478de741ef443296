"""Request and response bodies of the HTTP interface, shared by service and client.

A request has no `attachments`, because clients must not name paths of the service's machine.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Annotated, Any, get_type_hints

from pydantic import BeforeValidator, Field, WithJsonSchema, create_model

from tirjudge.types import CandidateCode, ExecResult, Outcome, Text, Wire
from tirjudge_sandbox.limits import Limits

EXECUTE_PATH = "/v1/execute"
BATCH_PATH = "/v1/execute/batch"
SESSION_PATH = "/v1/execute/session"

SANDBOX_ERROR = "sandbox_error"
"""Outcome for a failure of the sandbox. It is unrelated to the program and should not be shown to a model."""

MAX_PROGRAMS = 4096
"""Maximum number of programs of a batch."""

MAX_SESSION_FUNCTIONS = 1024
"""Maximum number of functions that the program of a session may call."""

MAX_CALLS_S = 3600.0
"""Maximum total duration of the function calls of one program, in seconds."""

_MAX_NAME_CHARS = 256

RESULT_FIELDS = tuple(field.name for field in fields(ExecResult) if field.name not in ("calls", "stores"))
"""Names of the fields of a result. Function calls and their stores are recorded where they are answered, which is not the
service."""


def _decoded(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except ValueError as error:
        raise ValueError(f"base64: {error}") from error


Base64 = Annotated[bytes, BeforeValidator(_decoded), WithJsonSchema({"type": "string", "format": "base64"})]
"""Bytes, base64-encoded in JSON. Characters that are not base64 are an error."""

LimitChanges = create_model(  # pyrefly: ignore[no-matching-overload]
    "LimitChanges",
    __base__=Wire,
    **{name: (Annotated[kind, Field(strict=True)] | None, None) for name, kind in get_type_hints(Limits).items()},
)
"""The fields of `Limits`. A missing field means the service's default."""


class ExecuteRequest(Wire):
    """One program with its inputs and limits."""

    code: Text
    """Python source."""
    bindings: dict[str, Text | dict[str, Text]] = Field(default_factory=dict)
    """Variables of the program: name -> text, or name -> (label -> text)."""
    stdin: Text = ""
    """Text on the standard input."""
    files: dict[str, Base64] = Field(default_factory=dict)
    """Path in the working directory -> content, base64-encoded. The files exist when the program starts."""
    fetch: list[str] = Field(default_factory=list)
    """Paths in the working directory. After the program, these files are returned as `files`."""
    limits: LimitChanges | None = None  # type: ignore[valid-type]
    """Limits of the program, up to the operator's maxima. None: the service's defaults."""
    watched: list[Text] = Field(default_factory=list)
    """Names of bindings. If the program executes one of their texts in its own process, the result reports it."""
    candidate_code: CandidateCode = "flag"
    """What happens then: `flag` only reports it; with `refuse`, the execution also fails."""


class FunctionNames(Wire):
    """A function that the program of a session may call."""

    name: Annotated[str, Field(max_length=_MAX_NAME_CHARS, pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")]
    """Name in the program, which may be dotted."""
    parameters: list[Annotated[str, Field(max_length=_MAX_NAME_CHARS)]] = Field(default_factory=list, max_length=256)
    """Names of the parameters that can be given by position, in order."""


class SessionRequest(ExecuteRequest):
    """The program of a session: the calls of its functions are answered by the client."""

    functions: list[FunctionNames] = Field(min_length=1, max_length=MAX_SESSION_FUNCTIONS)
    """Functions that the program may call."""
    calls_s: Annotated[float, Field(ge=0, le=MAX_CALLS_S)]
    """Maximum total duration of the calls in seconds, which does not count as wall time."""


class ProgramBatchRequest(Wire):
    """Several independent programs, which run concurrently."""

    programs: list[ExecuteRequest] = Field(min_length=1, max_length=MAX_PROGRAMS)
    """The programs, at most 4096."""


def limits_of(changes: Wire | None, *, base: Limits) -> Limits:
    """Return the limits that a request asks for, based on the service's.

    Raises:
        ValueError: a value is not a valid limit.
    """
    return base if changes is None else replace(base, **changes.model_dump(exclude_none=True))


def body_of(result: ExecResult) -> dict[str, Any]:
    """Return a result as a dict of JSON values."""
    values = {name: getattr(result, name) for name in RESULT_FIELDS}
    return values | {"outcome": str(result.outcome), "files": encoded(result.files)}


def result_json(result: ExecResult) -> bytes:
    """Encode the body of `body_of`. Files skip the JSON encoder: base64 needs no escapes, and searching for them is
    slow."""
    rest = body_of(replace(result, files={}))
    del rest["files"]
    files = (b'%s:"%s"' % (to_json(path), base64.b64encode(content)) for path, content in result.files.items())
    return b'{"files":{%s},%s' % (b",".join(files), to_json(rest)[1:])


async def encode_result(result: ExecResult) -> bytes:
    """Return `result_json`, computed in a thread if there are files, because base64 of large files takes long."""
    return await asyncio.to_thread(result_json, result) if result.files else result_json(result)


def result_of_body(body: Mapping[str, Any]) -> ExecResult:
    """Decode a body of `body_of`. Unknown fields, such as those of a later version, are ignored.

    Raises:
        ValueError, LookupError, TypeError: the body is not a result.
    """
    values = {name: body[name] for name in RESULT_FIELDS}
    files = {path: base64.b64decode(content) for path, content in body["files"].items()}
    ways = tuple(map(str, body["in_process"]))
    return ExecResult(**values | {"outcome": Outcome(body["outcome"]), "files": files, "in_process": ways})


def encoded(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return path -> base64-encoded content."""
    return {path: base64.b64encode(content).decode() for path, content in files.items()}


def to_json(body: Any) -> bytes:
    """Encode a body as JSON in ASCII, so that lone surrogates in paths and messages can be encoded."""
    return json.dumps(body, separators=(",", ":")).encode()

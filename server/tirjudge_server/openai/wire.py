"""Parsing of request bodies, for all endpoints in OpenAI's format. Unknown fields are ignored, and content is converted to
text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from typing_extensions import TypedDict

from tirjudge.http.protocol import invalid, problem_of, shown
from tirjudge.types import JudgeRequest, Received, Text
from tirjudge_server.service import JudgeService
from tirjudge_web.body import parse_body, read_body
from tirjudge_web.errors import Refused

_BRANCHES = frozenset(
    {"predicate", "choice", "score", "message", "call", "output", "multi", "string_check", "text_similarity"}
    | {"python", "score_model", "label_model", "custom", "logs", "stored_completions", "jsonl", "completions"}
    | {"responses", "file_content", "file_id", "template", "item_reference"}
)
"""Names of union branches, which pydantic adds to the location of an error."""

_UNIONS = frozenset({"grader", "data_source_config", "data_source", "source", "input_messages"})
"""Names of fields whose value has several types."""

_TEXT_PARTS = ("text", "input_text", "output_text")


class Foreign(Received):
    """Base class of request bodies in another project's format. Unknown fields are ignored, because clients of that project
    send more fields than this server reads."""

    model_config = ConfigDict(frozen=True, extra="ignore")


def _joined(value: Any) -> Any:
    """Join a list of content parts into one text. A part that is not text is rejected; the error names its type."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return _part(value)
    if isinstance(value, list):
        return "\n".join(part if isinstance(part, str) else _part(part) for part in value)
    return value


def _part(part: Any) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind in _TEXT_PARTS and isinstance(part.get("text"), str):
        return part["text"]
    if kind == "refusal" and isinstance(part.get("refusal"), str):
        return part["refusal"]
    if kind == "input_json":
        return json.dumps(part.get("data"), ensure_ascii=False, separators=(",", ":"))
    raise ValueError(f"got a part of type {shown(kind)}; this judge reads only text")


Metadata = Annotated[
    dict[Annotated[Text, Field(max_length=64)], Annotated[Text, Field(max_length=512)]], Field(max_length=16)
]
"""Notes of a caller on an object: at most 16 names with texts."""


class TextPart(TypedDict):
    """A part of a content that holds text."""

    type: Annotated[
        Literal["text", "input_text", "output_text"],
        Field(description="All of these names mean the same."),
    ]
    text: Annotated[str, Field(description="Text of the part.")]


Content = Annotated[Text, BeforeValidator(_joined, json_schema_input_type=str | list[str | TextPart] | None)]
"""Text, or a list of parts that hold text. None, as in an assistant's tool call, is read as an empty text."""


Model = TypeVar("Model", bound=BaseModel)


def parse(body: bytes, model: type[Model]) -> Model:
    """Parse a body.

    Raises:
        Refused: 400, the body is not JSON or not a valid request.
    """
    try:
        return parse_body(body, model)
    except Refused as refused:
        raise _plain(refused) from refused


async def receive(request: Request, model: type[Model], *, service: JudgeService, max_bytes: int) -> Model:
    """Read and parse the body of an HTTP request.

    Raises:
        Refused: The body is too large (413), or not a valid request (400).
        ShuttingDown: The server is shutting down.
    """
    async with service.draining.limit():
        body = await read_body(request, max_bytes=max_bytes)
    return parse(body, model)


def parsed(value: Any, model: type[Model]) -> Model:
    """Validate a parsed JSON body.

    Raises:
        Refused: 400, the body is not a valid request.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _plain(Refused(problem_of(error, model=model))) from error


def _plain(refused: Refused) -> Refused:
    """Return the refusal without pydantic's names of union branches.

    `questions.0.choice.choices` becomes `questions.0.choices`.
    """
    problem = refused.problem
    param = _without_branches(problem.param)
    message = problem.message
    if problem.param is not None and param is not None:
        message = message.replace(f"{problem.param}:", f"{param}:", 1)
    return Refused(problem.model_copy(update={"message": message, "param": param}), status=refused.status)


def _without_branches(param: str | None) -> str | None:
    parts = [] if param is None else param.split(".")
    kept = [part for index, part in enumerate(parts) if part not in _BRANCHES or not _is_element(parts[:index])]
    return ".".join(kept) or None


def _is_element(path: list[str]) -> bool:
    """Whether a path ends at an element of a list, or at another value that has several types."""
    return bool(path) and (path[-1].isdecimal() or path[-1] in _UNIONS or path[-2:-1] == ["graders"])


def judge_request(fields: Mapping[str, Any], *, service: JudgeService) -> JudgeRequest:
    """Build a judge request from the fields of a translated request.

    `tools` defaults to "off" on a server without a sandbox, because callers of other formats cannot know about tools.

    Raises:
        Refused: A field is invalid.
    """
    tools = "off" if service.judge.sandbox is None else "auto"
    return parsed({"tools": tools, **fields}, JudgeRequest)


def refuse(name: str, value: Any, *, hint: str) -> Refused:
    """Return the refusal of an unsupported field or value."""
    return Refused(invalid(f"{name}: {shown(value)} given; {hint}", param=name, code="unsupported_parameter"))


def merged(options: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the caller's `judge` object into the fields that the endpoint derived from the request.

    Args:
        options: The caller's `judge` object. Takes precedence.
        fields: The derived fields.

    Raises:
        Refused: `judge` contains a field that the endpoint derives.
    """
    clash = sorted(options.keys() & {"mode", "prompt", "responses", "model", "stream"})
    if clash:
        hint = "this endpoint derives it from the rest of the request; leave it out"
        raise refuse(f"judge.{clash[0]}", options[clash[0]], hint=hint)
    return {**fields, **options}


def usage_of(
    *, input_tokens: int | None, cached_tokens: int | None, output_tokens: int | None
) -> dict[str, Any] | None:
    """Return token counts in the format of `usage` in decisions; None if the endpoint of the model does not report them.

    All output tokens are reasoning tokens, because the answer is computed from the verdict.
    """
    if input_tokens is None or output_tokens is None:
        return None
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": cached_tokens, "cache_write_tokens": 0},
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": output_tokens},
        "total_tokens": input_tokens + output_tokens,
    }

"""What OpenAI's request bodies have in common: fields of theirs that mean nothing here are ignored, and content is text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from tirjudge.http.protocol import invalid, problem_of, shown
from tirjudge.types import JudgeRequest, Received, Text
from tirjudge_server.service import JudgeService
from tirjudge_web.body import parse_body, read_body
from tirjudge_web.errors import Refused

_BRANCHES = frozenset(
    {"predicate", "choice", "score", "message", "call", "output", "multi", "string_check", "text_similarity"}
    | {"python", "score_model", "label_model"}
)
"""The branches of the unions that are read here."""

_TEXT_PARTS = ("text", "input_text", "output_text")


class Foreign(Received):
    """Base of a body in a format that is not ours. Its clients send more than we read, so what is unknown is ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


def _joined(value: Any) -> Any:
    """A list of content parts as one text; what is no text is refused by name."""
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
    raise ValueError(f"a part of type {shown(kind)} given; this judge reads text alone")


Content = Annotated[Text, BeforeValidator(_joined)]
"""Text, or a list of parts that hold text. None, as an assistant's tool call has it, is the empty text."""


Model = TypeVar("Model", bound=BaseModel)


def parse(body: bytes, model: type[Model]) -> Model:
    """The request in a body.

    Raises:
        Refused: 400, not JSON, or not a request.
    """
    try:
        return parse_body(body, model)
    except Refused as refused:
        raise _plain(refused) from refused


async def receive(request: Request, model: type[Model], *, service: JudgeService, max_bytes: int) -> Model:
    """The request in a body that is still to be read.

    Raises:
        Refused: 413, it is too large; 400, it is no such request.
        ShuttingDown: the server ended meanwhile.
    """
    async with service.draining.limit():
        body = await read_body(request, max_bytes=max_bytes)
    return parse(body, model)


def parsed(value: Any, model: type[Model]) -> Model:
    """A body that was JSON already.

    Raises:
        Refused: it is no such request.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _plain(Refused(problem_of(error, model=model))) from error


def _plain(refused: Refused) -> Refused:
    """The refusal without the names that pydantic gives to the branches of a union: `questions.0.choice.choices` is
    `questions.0.choices` to its caller."""
    problem = refused.problem
    param = _without_branches(problem.param)
    message = problem.message.replace("expected: Value error, ", "")
    if problem.param is not None and param is not None:
        message = message.replace(f"{problem.param}:", f"{param}:", 1)
    return Refused(problem.model_copy(update={"message": message, "param": param}), status=refused.status)


def _without_branches(param: str | None) -> str | None:
    parts = [] if param is None else param.split(".")
    kept = [part for index, part in enumerate(parts) if part not in _BRANCHES or not _is_element(parts[:index])]
    return ".".join(kept) or None


def _is_element(path: list[str]) -> bool:
    """Whether a path leads to an element of a list, or to a grader."""
    return bool(path) and (path[-1].isdecimal() or path[-1] == "grader" or path[-2:-1] == ["graders"])


def judge_request(fields: Mapping[str, Any], *, service: JudgeService) -> JudgeRequest:
    """A request from fields that came in foreign clothes, whose callers know of no tools: where there is no sandbox,
    and nothing was said of tools, there are none.

    Raises:
        Refused: they make no request.
    """
    tools = "off" if service.judge.sandbox is None else "auto"
    return parsed({"tools": tools, **fields}, JudgeRequest)


def refuse(name: str, value: Any, *, hint: str) -> Refused:
    """The refusal of a field that this server cannot honour."""
    return Refused(invalid(f"{name}: {shown(value)} given; {hint}", param=name, code="unsupported_parameter"))


def merged(options: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request: what the endpoint found, and the caller's own `judge` object over it.

    Raises:
        Refused: `judge` names what the endpoint itself fills in.
    """
    clash = sorted(options.keys() & {"mode", "prompt", "responses", "model", "stream"})
    if clash:
        raise refuse(f"judge.{clash[0]}", options[clash[0]], hint="here it follows from the rest of the request")
    return {**fields, **options}


def usage_of(*, input_tokens: int, cached_tokens: int, output_tokens: int) -> dict[str, Any]:
    """Token counts as Decisions and batches have them. All that a judge writes is reasoning: the answer is made of its
    verdict."""
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": cached_tokens, "cache_write_tokens": 0},
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": output_tokens},
        "total_tokens": input_tokens + output_tokens,
    }

"""Wire types shared by server and client: errors in OpenAI's format, models, records, and the events of a stream.

Untrusted JSON is always parsed with `parse_json`. An event is one block of `text/event-stream`: its name and one line
of JSON.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Literal, get_args

from pydantic import BaseModel, Field, ValidationError
from pydantic.fields import FieldInfo

from tirjudge.types import JudgeRequest, Judgment, Mode, TurnRecord, Wire

JUDGE_PATH = "/v1/judge"
MODELS_PATH = "/v1/models"
JUDGMENTS_PATH = "/v1/judgments"

HEARTBEAT = b": heartbeat\n\n"
"""A comment that keeps a quiet stream open."""

MAX_SHOWN_CHARS = 80
"""Maximum length of an invalid value in an error message, in characters."""

MAX_NAMED = 8
"""Maximum number of unknown fields that the error for a missing field names."""

MAX_ERRORS = 1000
"""For a body with more errors, only their number is reported, because describing each error is expensive."""

_BRANCHES = ("list[", "dict[", "tuple[", "literal[", "function-")
"""Prefixes of the names that pydantic gives to the branches of a union."""

_SCALARS = ("str", "int", "float", "bool")
"""Names that pydantic gives to the branches of a union that contain nothing."""

_EXPECTED = re.compile("^(Input should be |Value error, )?(expected:? )?")
"""Beginning of a message of pydantic, or of a validator of ours, before what was expected."""

_LENGTHS = {"too_short": "give at least {min_length}", "too_long": "give at most {max_length}"}
"""Pydantic error type -> message about the number of elements of a list."""


_OUTLINE = bytes.maketrans(b"123456789E", b"000000000e")
_LONG_NUMBER, _LARGE_EXPONENTS = b"0" * 200, (b"e000", b"e+000")
"""After each digit is replaced by 0, every number of at least 1e300 contains one of these. Other texts rarely do."""


class Problem(Wire):
    """Description of an error."""

    message: str
    """The invalid field, its value, and how to fix it."""
    type: str
    """`invalid_request_error`, `rate_limit_error` or `server_error`."""
    param: str | None = None
    """The invalid field. None: no single field is invalid."""
    code: str | None = None
    """Machine-readable error code, such as `model_not_found`."""


class ErrorBody(Wire):
    """Body of every error response, and last event of a failed stream."""

    error: Problem
    """The error."""


class ModelCard(Wire):
    """A judge that a server offers, in OpenAI's format."""

    id: str
    """Name of the judge."""
    object: Literal["model"] = "model"
    """Always `model`."""
    created: int
    """Unix time of the server's start, in seconds."""
    owned_by: str
    """Owner, for compatibility with OpenAI's API."""
    modes: list[Mode]
    """Supported modes."""
    context_tokens: int
    """As in the judge's profile."""
    rollout_tokens: int
    """As in the judge's profile."""
    group_size: int
    """As in the judge's profile."""
    fingerprint: str | None
    """Hash of the model. None: not known."""
    format: str | None = None
    """Name of the prompt format. None: an older server, with `tirjudge/1`."""
    functions: dict[str, str] = Field(default_factory=dict, exclude_if=lambda functions: not functions)
    """Name -> version of the functions that programs may call. Empty is omitted from JSON."""


class ModelList(Wire):
    """Response of `MODELS_PATH`."""

    object: Literal["list"] = "list"
    """Always `list`."""
    data: list[ModelCard] = Field(min_length=1)
    """The judges of the server."""


class JudgmentRecord(Wire):
    """A stored judgment with its metadata."""

    id: str
    """Id of the judgment."""
    object: Literal["judgment.record"] = "judgment.record"
    """Always `judgment.record`."""
    created_ms: int
    """Unix time of storage, in milliseconds."""
    sequence: int
    """Position in the hash chain."""
    hash: str
    """Hash of this record."""
    previous_hash: str
    """Hash of the previous record in the chain."""
    intact: bool
    """Whether the content matches its hash. `tirjudge audit verify` checks the whole chain."""
    dialect: str
    """Name of the endpoint that received the request."""
    caller: str | None
    """Name of the API key. None: no key was used, or the name is erased."""
    request_id: str | None
    """Id of the HTTP request. None: not recorded."""
    request: dict[str, Any]
    """Fields of the request that are not erased, including defaults."""
    judgment: Judgment
    """The judgment. If the turns are erased, its rollouts have none."""
    versions: dict[str, Any]
    """Versions of the software and the model."""
    erased: list[str]
    """Fields that were erased or never stored."""


class JudgmentCreated(Wire):
    """Event: the request was accepted and queued."""

    id: str
    """Id of the judgment."""
    mode: Mode
    """Mode of the request."""
    model: str
    """Name of the judge."""


class JudgmentTurn(Wire):
    """Event: a turn of a rollout has ended."""

    order: list[int]
    """Indexes into the request of the responses shown in that rollout."""
    turn: TurnRecord
    """The turn."""


Event = JudgmentCreated | JudgmentTurn | Judgment | ErrorBody

EVENTS: dict[str, type[Event]] = {
    "judgment.created": JudgmentCreated,
    "judgment.turn": JudgmentTurn,
    "judgment.completed": Judgment,
    "error": ErrorBody,
}
"""Name of an event -> type of its data."""
_NAMES = {kind: name for name, kind in EVENTS.items()}


def encode_event(event: Event) -> bytes:
    """Encode an event as one block of a stream."""
    return f"event: {_NAMES[type(event)]}\ndata: {event.model_dump_json()}\n\n".encode()


def decode_event(name: str, *, data: str) -> Event:
    """Decode one block of a stream.

    Args:
        name: name of the event.
        data: its JSON.

    Raises:
        ValueError: unknown event, or invalid data.
    """
    if name not in EVENTS:
        raise ValueError(f"event: {name!r} given; known events: {', '.join(EVENTS)}")
    return EVENTS[name].model_validate_json(data)


class NumberTooLarge(ValueError):
    """JSON contains a number outside the range of a 64-bit float.

    Attributes:
        path: keys and indexes that lead to the number. Empty: the whole document is the number.
    """

    def __init__(self, *, path: tuple[str | int, ...]) -> None:
        super().__init__("a number beyond 1.8e308 given; give one that a 64-bit float holds")
        self.path = path


def parse_json(data: bytes) -> Any:
    """Parse strict JSON: without NaN, and without numbers outside the range of a 64-bit float, which would become
    infinite.

    Uses the parser of the standard library, because pydantic's rejects the lone surrogates that JSON can contain.

    Raises:
        UnicodeDecodeError: not UTF-8.
        RecursionError: nested too deeply.
        NumberTooLarge: a number is outside the range of a 64-bit float.
        ValueError: not JSON.
    """
    text = data.decode()
    outline = data.translate(_OUTLINE)
    has_long = _LONG_NUMBER in outline
    value = json.loads(text, parse_constant=_refuse_constant, parse_int=_whole_number if has_long else None)
    may_be_infinite = has_long or any(exponent in outline for exponent in _LARGE_EXPONENTS)
    if may_be_infinite and (path := _path_to_infinity(value)) is not None:
        raise NumberTooLarge(path=path)
    return value


def _whole_number(spelled: str) -> float | int:
    """Parse an integer; infinity if it is outside the range of a float. Python rejects integers with thousands of
    digits."""
    return int(spelled) if math.isfinite(value := float(spelled)) else value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


_INFINITE = (math.inf, -math.inf)
_MAX_SEARCHED = 10_000
"""Maximum number of lists and objects to search for an infinite number."""


def _path_to_infinity(value: Any) -> tuple[str | int, ...] | None:
    """Return the path of the first infinite number. None: not found, because a later duplicate key replaced it."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        waiting: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
        for _ in range(_MAX_SEARCHED):
            path, found = waiting.pop()
            if not isinstance(found, dict | list):
                return path
            children = found.items() if isinstance(found, dict) else enumerate(found)
            # Skip finite numbers: a list may contain half a million of them.
            kept = [pair for pair in children if isinstance(pair[1], (list, dict)) or pair[1] in _INFINITE]
            waiting += [((*path, key), child) for key, child in reversed(kept)]
        return ()
    return None


def problem_of(error: ValidationError, *, model: type[BaseModel] = JudgeRequest) -> Problem:
    """Convert a validation error to a message for the caller, about the first invalid field at its most specific path.

    Args:
        error: the validation error.
        model: type of the request.
    """
    if error.error_count() > MAX_ERRORS:
        message = f"body: {error.error_count()} unknown or invalid fields given; send only documented fields"
        return invalid(message, param="body", code="invalid_body")
    errors = [_at_the_key(other) for other in error.errors(include_url=False)]
    field = errors[0]["loc"][:1]
    worst = max((other for other in errors if other["loc"][:1] == field), key=lambda other: len(_path(other["loc"])))
    param, kind = _path(worst["loc"]), worst["type"]
    if not param and kind == "value_error":
        message = worst["msg"].removeprefix("Value error, ")
        named, colon, _ = message.partition(":")
        return invalid(message, param=named if colon else None, code="invalid_value")
    if not param:
        return invalid("body: not a JSON object with the fields of a request", param="body", code="invalid_body")
    name = ".".join(param)
    known = list(_fields_at(param[:-1], model=model))
    if kind == "missing":
        choices = _choices_of(param, model=model)
        expected = f"expected: {' or '.join(choices)}" if choices else "this field has no default"
        message = f"{name}: not given; {expected}"
        unknown = [path[-1] for path in _unknown_fields(errors) if path[:-1] == param[:-1]][:MAX_NAMED]
        given = f"; unknown fields given: {', '.join(unknown)}" if unknown else ""
        return invalid(message + given, param=name, code="missing")
    if kind == "extra_forbidden":
        similar = get_close_matches(param[-1], known, n=1)
        hint = f"did you mean {similar[0]}? " if similar else ""
        message = f"{name}: unknown field; {hint}known fields: {', '.join(known)}"
        return invalid(message, param=name, code="unknown_field")
    if kind == "string_unicode":
        return invalid(
            f"{name}: field name with a lone surrogate; send valid Unicode", param=name, code="unknown_field"
        )
    given = f"{name}: {shown(worst['input'])} given"
    if kind in _LENGTHS:
        return invalid(f"{given}; {_LENGTHS[kind].format(**worst['ctx'])}", param=name, code=kind)
    wanted = dict.fromkeys(_wanted(other) for other in errors if _path(other["loc"]) == param)
    return invalid(f"{given}; expected: {' or '.join(wanted)}", param=name, code=kind)


def _wanted(error: Mapping[str, Any]) -> str:
    """Return what was expected in the place of an invalid value."""
    if error["type"] in ("model_type", "model_attributes_type", "dict_type"):
        return "an object"
    if error["type"] == "too_short":
        return f"a list of at least {error['ctx']['min_length']}"
    return _EXPECTED.sub("", error["msg"])


def _unknown_fields(errors: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return the paths of the fields that the request has and its model lacks."""
    return [_path(error["loc"]) for error in errors if error["type"] == "extra_forbidden"]


def problem_of_number(error: NumberTooLarge) -> Problem:
    """Return the error for a body with a number that is too large."""
    if not error.path:
        return invalid(f"body: {error}", param="body", code="invalid_json")
    param = ".".join(_path(error.path))
    return invalid(f"{param}: {error}", param=param, code="number_too_large")


def invalid(message: str, *, param: str | None, code: str) -> Problem:
    """Return an `invalid_request_error`."""
    return Problem(message=message, type="invalid_request_error", param=param, code=code)


def _choices_of(path: tuple[str, ...], *, model: type[BaseModel]) -> list[str]:
    """Return the values of the field at a path, if it is an enumeration; otherwise an empty list."""
    field = _fields_at(path[:-1], model=model).get(path[-1])
    annotation = None if field is None else field.annotation
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return [each.value for each in annotation]
    return []


def _fields_at(path: tuple[str, ...], *, model: type[BaseModel]) -> Mapping[str, FieldInfo]:
    """Return the fields of the object at a path inside a model. The path may contain list indexes and dict keys."""
    for part in path:
        if part in model.model_fields:
            model = next(_models_in(model.model_fields[part].annotation), model)
    return model.model_fields


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models inside an annotation, such as `ChatMessage` in `str | list[ChatMessage]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def _at_the_key(error: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add an invalid Unicode key to the path of its error, because pydantic reports only the path of the object around
    it."""
    is_key = error["type"] == "string_unicode"
    return {**error, "loc": (*error["loc"], error["input"])} if is_key else error


def _path(loc: tuple[int | str, ...]) -> tuple[str, ...]:
    """Return the path of an error, without pydantic's names for union branches: `("responses", 3)` -> `("responses",
    "3")`."""
    parts = [str(part) for part in loc if not str(part).startswith(_BRANCHES)]
    if len(parts) > 1 and parts[-1] in _SCALARS:
        parts.pop()
    return tuple(part.encode("utf-8", "backslashreplace").decode()[:MAX_SHOWN_CHARS] for part in parts)


def shown(value: object) -> str:
    """Return an invalid value for an error message: JSON, cut if it is long; for a container, only its size."""
    if isinstance(value, list | dict):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    return _cut(json.dumps(value, default=str))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}..."

"""What crosses HTTP besides a request and its judgment: errors in OpenAI's shape, and the events of a stream.

Server and client share these definitions; all that reads JSON of strangers reads it with `parse_json`. An event is one block
of `text/event-stream`: its name, and one line of JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, get_args

from pydantic import BaseModel, Field, ValidationError

from tirjudge.types import JudgeRequest, Judgment, Mode, TurnRecord, Wire

JUDGE_PATH = "/v1/judge"
MODELS_PATH = "/v1/models"
JUDGMENTS_PATH = "/v1/judgments"

HEARTBEAT = b": heartbeat\n\n"
"""A comment that keeps a quiet stream open."""

MAX_SHOWN_CHARS = 80
"""How much of a wrong value an error message repeats."""

MAX_ERRORS = 1000
"""Of a body with more errors only their number is told: each takes microseconds and kilobytes to describe."""

_BRANCHES = ("list[", "dict[", "function-")
"""How the names begin that pydantic gives to the branches of a union."""

_LENGTHS = {"too_short": "at least {min_length} is needed", "too_long": "at most {max_length} are taken"}
"""What pydantic says of a list with too few or too many elements, in fewer words."""


_OUTLINE = bytes.maketrans(b"123456789E", b"000000000e")
_LONG_NUMBER, _LARGE_EXPONENTS = b"0" * 200, (b"e000", b"e+000")
"""Every number of 1e300 or more has that many digits, or such an exponent, once each digit is a zero. Few texts that hold no
such number have."""


class Problem(Wire):
    """Why a request was not answered."""

    message: str
    """Names the field, what was given, and what would do."""
    type: str
    """`invalid_request_error`, `rate_limit_error` or `server_error`."""
    param: str | None = None
    """The field that is wrong; None when it is none of them."""
    code: str | None = None
    """A short name to branch on, such as `model_not_found`."""


class ErrorBody(Wire):
    """The body of every answer that is not a success, and the last event of a stream that failed."""

    error: Problem


class ModelCard(Wire):
    """A judge that a server offers, in OpenAI's shape."""

    id: str
    object: Literal["model"] = "model"
    created: int
    """When the server started, Unix time, seconds."""
    owned_by: str
    modes: list[Mode]
    context_tokens: int
    rollout_tokens: int
    group_size: int
    fingerprint: str | None
    """A hash of the model; None if it is not known."""


class ModelList(Wire):
    """The answer at `MODELS_PATH`."""

    object: Literal["list"] = "list"
    data: list[ModelCard] = Field(min_length=1)


class JudgmentRecord(Wire):
    """A judgment, and what stands on record with it."""

    id: str
    object: Literal["judgment.record"] = "judgment.record"
    created_ms: int
    """When it was stored: Unix time, milliseconds."""
    sequence: int
    """Its place in the chain."""
    hash: str
    previous_hash: str
    intact: bool
    """Whether it is what was stored, as far as the record alone can tell; `tirjudge audit verify` tells for the chain."""
    dialect: str
    """Which endpoint it came through."""
    caller: str | None
    """Name of the key it was asked for with; None: there was none, or it is erased."""
    request_id: str | None
    request: dict[str, Any]
    """The fields of the request, defaults included, that are not erased."""
    judgment: Judgment
    """Its rollouts have no turns if those are erased."""
    versions: dict[str, Any]
    """What made it."""
    erased: list[str]
    """Fields that were erased or never stored."""


class JudgmentCreated(Wire):
    """The request was taken and has its place in the queue."""

    id: str
    mode: Mode
    model: str


class JudgmentTurn(Wire):
    """A turn of one of the rollouts has ended."""

    order: list[int]
    """Which responses that rollout was shown, as indexes into the request."""
    turn: TurnRecord


Event = JudgmentCreated | JudgmentTurn | Judgment | ErrorBody

_EVENTS: dict[str, type[Event]] = {
    "judgment.created": JudgmentCreated,
    "judgment.turn": JudgmentTurn,
    "judgment.completed": Judgment,
    "error": ErrorBody,
}
_NAMES = {kind: name for name, kind in _EVENTS.items()}


def encode_event(event: Event) -> bytes:
    """One block of a stream."""
    return f"event: {_NAMES[type(event)]}\ndata: {event.model_dump_json()}\n\n".encode()


def decode_event(name: str, *, data: str) -> Event:
    """The event that a block of a stream carries.

    Raises:
        ValueError: no such event, or its data do not fit it.
    """
    if name not in _EVENTS:
        raise ValueError(f"event: {name!r} given; known are {', '.join(_EVENTS)}")
    return _EVENTS[name].model_validate_json(data)


class NumberTooLarge(ValueError):
    """JSON that holds a number beyond the range of a 64-bit float.

    Attributes:
        path: keys and indexes that lead to it; empty: it is the whole document.
    """

    def __init__(self, *, path: tuple[str | int, ...]) -> None:
        super().__init__("a number beyond 1.8e308 given; give one that a 64-bit float holds")
        self.path = path


def parse_json(data: bytes) -> Any:
    """Strict JSON: no NaN, and no number that a 64-bit float cannot hold, so that nobody who computes with one meets an
    infinity. The standard library's parser, because pydantic's refuses the lone surrogates that JSON can spell.

    Raises:
        UnicodeDecodeError: not UTF-8.
        RecursionError: nested too deeply.
        NumberTooLarge: such a number.
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
    """An integer of thousands of digits takes quadratic time to read, and Python refuses to."""
    return int(spelled) if math.isfinite(value := float(spelled)) else value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


_INFINITE = (math.inf, -math.inf)
_MAX_SEARCHED = 10_000
"""Lists and objects that are searched for the place of an infinite number."""


def _path_to_infinity(value: Any) -> tuple[str | int, ...] | None:
    """Where the first one stands; None: there is none, since the key that held it was given again with another value."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        waiting: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
        for _ in range(_MAX_SEARCHED):
            path, found = waiting.pop()
            if not isinstance(found, dict | list):
                return path
            children = found.items() if isinstance(found, dict) else enumerate(found)
            # Only what may lead to one: a list may hold half a million numbers.
            kept = [pair for pair in children if isinstance(pair[1], (list, dict)) or pair[1] in _INFINITE]
            waiting += [((*path, key), child) for key, child in reversed(kept)]
        return ()
    return None


def problem_of(error: ValidationError, *, model: type[BaseModel] = JudgeRequest) -> Problem:
    """What is wrong with a request, in words that a caller can act on: the first field, at its deepest known place.

    Args:
        error: says so in pydantic's.
        model: of the request.
    """
    if error.error_count() > MAX_ERRORS:
        message = f"body: {error.error_count()} fields given that are unknown or wrong; send those that are documented"
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
        return invalid("body: no JSON object with the fields of a request", param="body", code="invalid_body")
    name = ".".join(param)
    if kind == "missing":
        return invalid(f"{name}: not given, and it has no default", param=name, code="missing")
    if kind == "extra_forbidden":
        known = ", ".join(_fields_at(param[:-1], model=model))
        return invalid(f"{name}: unknown field; known are {known}", param=name, code="unknown_field")
    if kind == "string_unicode":
        return invalid(f"{name}: no name of a field, it holds half a surrogate pair", param=name, code="unknown_field")
    given = f"{name}: {shown(worst['input'])} given"
    if kind in _LENGTHS:
        return invalid(f"{given}, {_LENGTHS[kind].format(**worst['ctx'])}", param=name, code=kind)
    wanted = dict.fromkeys(other["msg"] for other in errors if _path(other["loc"]) == param)
    expected = " or ".join(message.removeprefix("Input should be ") for message in wanted)
    return invalid(f"{given}; expected: {expected}", param=name, code=kind)


def problem_of_number(error: NumberTooLarge) -> Problem:
    """What is wrong with a body that holds such a number."""
    if not error.path:
        return invalid(f"body: {error}", param="body", code="invalid_json")
    param = ".".join(_path(error.path))
    return invalid(f"{param}: {error}", param=param, code="number_too_large")


def invalid(message: str, *, param: str | None, code: str) -> Problem:
    """A mistake of the caller."""
    return Problem(message=message, type="invalid_request_error", param=param, code=code)


def _fields_at(path: tuple[str, ...], *, model: type[BaseModel]) -> Iterable[str]:
    """The fields of the object at a path into a model; numbers and keys on the way lead through lists and dicts."""
    for part in path:
        if part in model.model_fields:
            model = next(_models_in(model.model_fields[part].annotation), model)
    return model.model_fields


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that an annotation speaks of, such as `ChatMessage` in `str | list[ChatMessage]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def _at_the_key(error: Mapping[str, Any]) -> Mapping[str, Any]:
    """A key that is no Unicode is reported at the object around it; it belongs with the other unknown ones."""
    is_key = error["type"] == "string_unicode"
    return {**error, "loc": (*error["loc"], error["input"])} if is_key else error


def _path(loc: tuple[int | str, ...]) -> tuple[str, ...]:
    """`("responses", 3)` -> `("responses", "3")`; what pydantic adds for the branches of `str | list` is left out."""
    parts = [str(part) for part in loc if not str(part).startswith(_BRANCHES)]
    return tuple(part.encode("utf-8", "backslashreplace").decode()[:MAX_SHOWN_CHARS] for part in parts)


def shown(value: object) -> str:
    """A wrong value: as JSON, cut if it is long; containers by their size."""
    if isinstance(value, list | dict):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    return _cut(json.dumps(value, default=str))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}..."

"""Typed access to the columns of a row. Every function raises KeyError if the column is missing, and ValueError with the
name of the column if the value has a different type.

The cells of a CSV file are text: numbers are parsed, and lists and objects are parsed as JSON.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tirjudge.http.protocol import problem_of
from tirjudge.types import ChatMessage, Text
from tirjudge_harness.benchmark import Row

_TEXT = TypeAdapter[str](Text)


def text(row: Row, column: str) -> str:
    """Return a string. Lone surrogates are replaced by U+FFFD, so that the string can be encoded."""
    value = row[column]
    if not isinstance(value, str):
        raise _wrong(column, value, wanted="a string")
    return _TEXT.validate_python(value)


def name(row: Row, column: str) -> str:
    """Return an identifier: a string, or an integer converted to a string."""
    value = row[column]
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else text(row, column)


def whole(row: Row, column: str) -> int:
    """Return an integer; a string of digits and a float without a fraction are converted."""
    value = row[column]
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal():
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(column, value, wanted="an integer")
    return value


def texts(row: Row, column: str, *, num: int | None = None) -> tuple[str, ...]:
    """Return a list of strings. `num`: the required length; None: any length."""
    values = enumerate(items(row, column, num=num))
    return tuple(text({f"{column}[{index}]": value}, f"{column}[{index}]") for index, value in values)


def items(row: Row, column: str, *, num: int | None = None) -> list[Any]:
    """Return a list of any values. `num`: the required length; None: any length."""
    value = _decoded(row, column)
    if not isinstance(value, list | tuple):
        raise _wrong(column, row[column], wanted="a list")
    if num is not None and len(value) != num:
        raise ValueError(f"{column}: expected {num} values, got {len(value)}")
    return list(value)


def wholes(row: Row, column: str, *, num: int) -> tuple[int, ...]:
    """Return a list of exactly `num` integers."""
    return tuple(whole({column: value}, column) for value in items(row, column, num=num))


def truths(row: Row, column: str) -> tuple[bool, ...]:
    """Return a list of booleans; 1 and 0 are converted."""
    values = items(row, column)
    if any(value not in (0, 1) for value in values):
        raise _wrong(column, values, wanted="a list of booleans")
    return tuple(map(bool, values))


def flag(row: Row, column: str) -> bool:
    """Return a boolean; 1 and 0, and in a CSV file `true` and `false`, are converted."""
    value = row[column]
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if value not in (0, 1):
        raise _wrong(column, value, wanted="a boolean")
    return bool(value)


def shown(row: Row, column: str) -> str:
    """Return any value as text: a string unchanged, other values as JSON."""
    value = row[column]
    return text(row, column) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def record(row: Row, column: str) -> dict[str, Any]:
    """Return an object."""
    value = _decoded(row, column)
    if not isinstance(value, dict):
        raise _wrong(column, row[column], wanted="an object")
    return value


def conversation(row: Row, column: str) -> str | tuple[ChatMessage, ...]:
    """Return a prompt: a string, or a list of messages. A string that is such a list as JSON is a list of messages."""
    value = row[column]
    if not isinstance(value, str) or _is_json_of_messages(value):
        return messages(row, column)
    return text(row, column)


def _is_json_of_messages(value: str) -> bool:
    """Whether a text is a list of messages as JSON. Other lists and objects are texts."""
    if not value.lstrip().startswith("["):
        return False
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return False
    return bool(found) and all(isinstance(one, dict) and {"role", "content"} <= one.keys() for one in found)


def messages(row: Row, column: str) -> tuple[ChatMessage, ...]:
    """Return a list of at least one message. Each message has a role and a content."""
    given = items(row, column)
    if not given:
        raise ValueError(f"{column}: expected at least one message, got none")
    found: list[ChatMessage] = []
    for place, message in enumerate(given):
        if not isinstance(message, dict):
            raise _wrong(f"{column}[{place}]", message, wanted="a message with role and content")
        try:
            found.append(ChatMessage.model_validate(message))
        except ValidationError as error:
            raise ValueError(f"{column}[{place}]: {problem_of(error, model=ChatMessage).message}") from None
    return tuple(found)


def id_of(*texts: str) -> str:
    """Return an id for a row without an id: a hash of its texts, 16 hex digits."""
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]


def _decoded(row: Row, column: str) -> Any:
    value = row[column]
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError(f"{column}: not valid JSON: {value[:60]!r}") from None


def _wrong(column: str, value: Any, *, wanted: str) -> ValueError:
    shown = "null" if value is None else repr(value)
    return ValueError(f"{column}: expected {wanted}, got {shown[:60]}")

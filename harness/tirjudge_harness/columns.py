"""Values of a known kind out of a row, whatever file it came from. What is wrong with one names its column.

In a CSV file everything is text: numbers are read from it, and lists and records are written as JSON.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import TypeAdapter

from tirjudge.types import ChatMessage, Text
from tirjudge_harness.benchmark import Row

_TEXT = TypeAdapter[str](Text)


def text(row: Row, column: str) -> str:
    """A text that can be encoded: what is left of half a character becomes U+FFFD.

    Raises:
        KeyError: the row has no such column.
        ValueError: it holds something else.
    """
    value = row[column]
    if not isinstance(value, str):
        raise _wrong(column, value, wanted="a text")
    return _TEXT.validate_python(value)


def name(row: Row, column: str) -> str:
    """A text or a whole number, as text: the id of something."""
    value = row[column]
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else text(row, column)


def whole(row: Row, column: str) -> int:
    """A whole number."""
    value = row[column]
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal():
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(column, value, wanted="a whole number")
    return value


def texts(row: Row, column: str, *, num: int | None = None) -> tuple[str, ...]:
    """A list of texts, and of exactly `num` of them if that is given."""
    values = enumerate(items(row, column, num=num))
    return tuple(text({f"{column}[{index}]": value}, f"{column}[{index}]") for index, value in values)


def items(row: Row, column: str, *, num: int | None = None) -> list[Any]:
    """A list of anything, and of exactly `num` things if that is given."""
    value = _decoded(row, column)
    if not isinstance(value, list | tuple):
        raise _wrong(column, row[column], wanted="a list")
    if num is not None and len(value) != num:
        raise ValueError(f"{column}: {len(value)} given, {num} wanted")
    return list(value)


def wholes(row: Row, column: str, *, num: int) -> tuple[int, ...]:
    """A list of exactly `num` whole numbers."""
    return tuple(whole({column: value}, column) for value in items(row, column, num=num))


def truths(row: Row, column: str) -> tuple[bool, ...]:
    """A list of true and false, or 1 and 0."""
    values = items(row, column)
    if any(value not in (0, 1) for value in values):
        raise _wrong(column, values, wanted="a list of true and false")
    return tuple(map(bool, values))


def shown(row: Row, column: str) -> str:
    """Anything, as text: a text as it is, all else as JSON."""
    value = row[column]
    return text(row, column) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def record(row: Row, column: str) -> dict[str, Any]:
    """An object with named values."""
    value = _decoded(row, column)
    if not isinstance(value, dict):
        raise _wrong(column, row[column], wanted="an object")
    return value


def conversation(row: Row, column: str) -> str | tuple[ChatMessage, ...]:
    """A prompt: a text, or messages."""
    return text(row, column) if isinstance(row[column], str) else messages(row, column)


def messages(row: Row, column: str) -> tuple[ChatMessage, ...]:
    """A list of messages, at least one, with a role and a content each."""
    given = items(row, column)
    if not given:
        raise ValueError(f"{column}: no message given, at least one wanted")
    return tuple(ChatMessage.model_validate(message) for message in given)


def id_of(*texts: str) -> str:
    """An id for a row that has none: a hash of its texts, 16 hex digits."""
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]


def _decoded(row: Row, column: str) -> Any:
    value = row[column]
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError(f"{column}: a text given that is no JSON: {value[:60]!r}") from None


def _wrong(column: str, value: Any, *, wanted: str) -> ValueError:
    shown = "null" if value is None else repr(value)
    return ValueError(f"{column}: {shown[:60]} given, {wanted} wanted")

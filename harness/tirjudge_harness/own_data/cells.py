"""Read the cells of a user's file: texts, conversations, and lists of texts."""

from __future__ import annotations

import json
import math
from collections.abc import Container, Sequence
from typing import Any, Literal

from tirjudge_harness.benchmark import Row
from tirjudge_harness.columns import text
from tirjudge_harness.own_data.conversations import (
    PYTHON_LISTS,
    Conversation,
    are_messages,
    conversation_in,
    transcript_in,
)

Reply = str | Conversation
"""A response as text, or a conversation that ends with the response."""

Structure = Literal["conversation", "list", "damaged"]
"""What a text is: a conversation, a JSON list of texts, or another text that begins like a JSON list of texts or objects."""

_EMPTY = frozenset({"", "nan", "<na>"})
"""Texts, in lower case, that programs write for an empty cell."""


def is_empty(cell: Any) -> bool:
    """Whether a cell has no value: null, NaN, blank, or the text `nan`."""
    if isinstance(cell, str):
        return not cell.strip() or (len(cell) < 80 and cell.strip().lower() in _EMPTY)
    return cell is None or (isinstance(cell, float) and math.isnan(cell)) or (isinstance(cell, list) and not cell)


def text_in(row: Row, column: str) -> str:
    """Return a cell as text. Numbers are converted, and lone surrogates are replaced.

    Raises:
        ValueError: the cell is empty, or has another type. The message names the column.
    """
    value = row.get(column)
    if is_empty(value):
        raise ValueError(f"{column}: the cell is empty")
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = repr(value)
    return text({column: value}, column)


def structure_of(cell: str) -> Structure | None:
    """Return what a text is. None: a plain text.

    A conversation is a list of messages as JSON or in Python's notation, or a transcript.
    """
    head = cell.lstrip()
    if not head.startswith("["):
        return None if transcript_in(cell) is None else "conversation"
    if head.startswith(PYTHON_LISTS):
        return "conversation"
    try:
        found = json.loads(cell)
    except (ValueError, RecursionError):
        return "damaged" if head[1:].lstrip().startswith(("{", '"')) else None
    if are_messages(found):
        return "conversation"
    return "list" if _are_texts(found) else "damaged"


def replies_in(cell: Any, *, column: str, structured: Container[str]) -> list[Reply]:
    """Return the responses in a cell: one text or conversation, or a list of them.

    Args:
        cell: the cell.
        column: its column, for messages.
        structured: columns whose texts are JSON or transcripts. In other columns, such a text is a response as it is.

    Raises:
        ValueError: the cell is empty, or has another type.
    """
    if is_empty(cell):
        raise ValueError(f"{column}: the cell is empty")
    if isinstance(cell, str):
        if column not in structured:
            return [text_in({column: cell}, column)]
        if (transcript := transcript_in(cell)) is not None:
            return [transcript]
        cell = _list_in(cell, column=column)
    conversation = conversation_in(cell, column=column)
    if conversation is not None:
        return [conversation]
    if isinstance(cell, Sequence) and not isinstance(cell, str):
        named = [(f"{column}[{place}]", one) for place, one in enumerate(cell)]
        return [conversation_in(one, column=name) or text_in({name: one}, name) for name, one in named]
    return [text_in({column: cell}, column)]


def _list_in(cell: str, *, column: str) -> list[Any]:
    """Return the list in a cell of a structured column.

    Raises:
        ValueError: the text is not a JSON list of texts or messages.
    """
    expected = f"{column}: expected a JSON list, as in the other rows"
    if cell.lstrip().startswith(PYTHON_LISTS):
        raise ValueError(f"{column}: a list in Python's notation, not JSON; write the column with json.dumps")
    try:
        found = json.loads(cell)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{expected}, but the cell is not JSON ({error}); correct it, or export the rows as JSONL if it is cut, as Excel "
            "does after 32,767 characters"
        ) from None
    if not (_are_texts(found) or are_messages(found)):
        raise ValueError(f"{expected}; the list has other values than texts or messages with a role and a content")
    return found


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)


def prompt_in(row: Row, columns: Sequence[str], *, structured: Container[str]) -> Reply:
    """Return the prompt of a row: a conversation, or the texts of the columns joined by blank lines.

    Raises:
        ValueError: a cell has another type, or all are empty.
    """
    filled = [column for column in columns if not is_empty(row.get(column))]
    if len(filled) > 1:
        return "\n\n".join(text_in(row, column) for column in filled)
    (column,) = filled or columns[:1]
    replies = replies_in(row.get(column), column=column, structured=structured)
    if len(replies) > 1:
        raise ValueError(f"{column}: expected one prompt, got a list of {len(replies)} texts")
    return replies[0]

"""Read the cells of a user's file: texts, conversations, and lists of texts."""

from __future__ import annotations

import json
import math
from collections.abc import Container, Sequence
from typing import Any

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


def is_structured(cell: str) -> bool:
    """Whether a text is a list of messages or of texts as JSON, a list of messages in Python's notation, or a transcript."""
    head = cell.lstrip()
    if head.startswith("["):
        return head.startswith(PYTHON_LISTS) or isinstance(_decoded(cell), list)
    return transcript_in(cell) is not None


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
    if cell.lstrip().startswith(PYTHON_LISTS):
        raise ValueError(f"{column}: a list in Python's notation, not JSON; write the column with json.dumps")
    found = _decoded(cell)
    if not isinstance(found, list):
        raise ValueError(f"{column}: expected a JSON list, as in the other rows")
    return found


def _decoded(cell: str) -> Any:
    """Return a JSON list of texts, or of messages. None: another text."""
    try:
        value = json.loads(cell)
    except (ValueError, RecursionError):
        return None
    is_texts = isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)
    return value if is_texts or are_messages(value) else None


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

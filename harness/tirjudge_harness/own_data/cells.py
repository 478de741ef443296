"""Read the cells of a user's file: texts, conversations, and lists of texts."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from tirjudge_harness.benchmark import Row
from tirjudge_harness.columns import text
from tirjudge_harness.own_data.conversations import Conversation, conversation_in

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


def replies_in(cell: Any, *, column: str) -> list[Reply]:
    """Return the responses in a cell: one text or conversation, or a list of them.

    Raises:
        ValueError: the cell is empty, or has another type.
    """
    if is_empty(cell):
        raise ValueError(f"{column}: the cell is empty")
    conversation = conversation_in(cell, column=column)
    if conversation is not None:
        return [conversation]
    if isinstance(cell, str) and cell.lstrip().startswith('["'):
        cell = _texts_in_json(cell) or cell
    if isinstance(cell, Sequence) and not isinstance(cell, str):
        named = [(f"{column}[{place}]", one) for place, one in enumerate(cell)]
        return [conversation_in(one, column=name) or text_in({name: one}, name) for name, one in named]
    return [text_in({column: cell}, column)]


def _texts_in_json(cell: str) -> list[str] | None:
    """Return the list of texts in a cell of a CSV file. None: the cell is not such a list."""
    try:
        value = json.loads(cell)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) and all(isinstance(one, str) for one in value) else None


def prompt_in(row: Row, columns: Sequence[str]) -> Reply:
    """Return the prompt of a row: a conversation, or the texts of the columns joined by blank lines.

    Raises:
        ValueError: a cell has another type, or all are empty.
    """
    filled = [column for column in columns if not is_empty(row.get(column))]
    if len(filled) <= 1:
        (column,) = filled or columns[:1]
        conversation = conversation_in(row.get(column), column=column)
        return conversation or text_in(row, column)
    return "\n\n".join(text_in(row, column) for column in filled)

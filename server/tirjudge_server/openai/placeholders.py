"""Fill placeholders such as `{{ item.answer }}` and `{{ sample.output_text }}` in a grader's texts.

Filling is one pass. Placeholders inside a value are not filled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_PATH = re.compile(r"\s*(?P<space>item|sample)(?P<rest>(?:\.[A-Za-z_]\w*|\[\d{1,9}\]|\[(?:\"[^\"]*\"|'[^']*')\])*)\s*")
_STEP = re.compile(r"\.([A-Za-z_]\w*)|\[(\d{1,9})\]|\[\"([^\"]*)\"\]|\['([^']*)'\]")


MAX_INDEX_DIGITS = 9
"""Maximum number of digits of a list index."""


class UnknownVariable(ValueError):
    """A placeholder names a missing value, or is malformed."""


def as_text(value: Any) -> str:
    """Return the text that replaces a placeholder: a string unchanged, another value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def fill_in(text: str, values: Mapping[str, Any], *, to_text: Callable[[Any], str] = as_text) -> str:
    """Return the text with all placeholders replaced.

    Args:
        text: The template.
        values: `item` and `sample`.
        to_text: Converts a value to text.

    Raises:
        UnknownVariable: A placeholder names a missing value.
    """
    return "".join(piece if path is None else piece + to_text(value_at(path, values)) for piece, path in _pieces(text))


def names_sample(text: str) -> bool:
    """Whether a template contains a placeholder for `sample` or a part of it."""
    return any(path.lstrip().startswith("sample") for _, path in _pieces(text) if path is not None)


def check_placeholders(text: str) -> None:
    """Check the syntax of all placeholders.

    Raises:
        UnknownVariable: A placeholder is not a path into `item` or `sample`.
    """
    for _, path in _pieces(text):
        if path is not None and _PATH.fullmatch(path) is None:
            raise UnknownVariable(_no_path(path))


def item_path(path: str) -> str:
    """Return a path into `item`, such as `item.messages`, after checking its syntax.

    Raises:
        UnknownVariable: It is not such a path.
    """
    match = _PATH.fullmatch(path)
    if match is None or match["space"] != "item":
        raise UnknownVariable(f"{path[:80]!r} given; expected: a path such as item.messages")
    return path


def _pieces(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield each piece of plain text with the path in the placeholder after it. The last piece comes with None."""
    start = 0
    while (opening := text.find("{{", start)) >= 0 and (closing := text.find("}}", opening + 2)) >= 0:
        yield text[start:opening], text[opening + 2 : closing]
        start = closing + 2
    yield text[start:], None


def value_at(path: str, values: Mapping[str, Any]) -> Any:
    """Return the value at a path such as `item.messages`.

    Raises:
        UnknownVariable: The path is malformed, or names a missing value.
    """
    match = _PATH.fullmatch(path)
    if match is None:
        raise UnknownVariable(_no_path(path))
    value = values[match["space"]]
    for step in _steps(match["rest"]):
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            raise UnknownVariable(f"{{{{{path}}}}}: {step!r} not found") from None
    return value


def _steps(rest: str) -> Iterator[str | int]:
    for name, index, double, single in _STEP.findall(rest):
        if len(index) > MAX_INDEX_DIGITS:
            raise UnknownVariable(f"an index of {len(index)} digits given; the limit is {MAX_INDEX_DIGITS}")
        yield int(index) if index else name or double or single


def _no_path(path: str) -> str:
    return f"{{{{{path}}}}}: expected: `item` or `sample`, followed by names and indexes"

"""`{{ item.answer }}` and `{{ sample.output_text }}` in a grader's texts, filled in one pass: what a value contains is never
looked at."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_PATH = re.compile(r"\s*(?P<space>item|sample)(?P<rest>(?:\.[A-Za-z_]\w*|\[\d{1,9}\]|\[(?:\"[^\"]*\"|'[^']*')\])*)\s*")
_STEP = re.compile(r"\.([A-Za-z_]\w*)|\[(\d{1,9})\]|\[\"([^\"]*)\"\]|\['([^']*)'\]")


MAX_INDEX_DIGITS = 9
"""Of a place in a list."""


class UnknownVariable(ValueError):
    """A placeholder that names nothing there is."""


def spelled(value: Any) -> str:
    """A value as a template shows it: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def fill_in(text: str, values: Mapping[str, Any], *, spell: Callable[[Any], str] = spelled) -> str:
    """The text with every placeholder replaced.

    Args:
        text: the template.
        values: `item` and `sample`.
        spell: what stands in for a value.

    Raises:
        UnknownVariable: a placeholder names what is not there.
    """
    return "".join(piece if path is None else piece + spell(_value(path, values)) for piece, path in _pieces(text))


def names_sample(text: str) -> bool:
    """Whether a template shows anything of the sample."""
    return any(path.lstrip().startswith("sample") for _, path in _pieces(text) if path is not None)


def check_placeholders(text: str) -> None:
    """
    Raises:
        UnknownVariable: a placeholder is no path into `item` or `sample`.
    """
    for _, path in _pieces(text):
        if path is not None and _PATH.fullmatch(path) is None:
            raise UnknownVariable(_no_path(path))


def _pieces(text: str) -> Iterator[tuple[str, str | None]]:
    """The template in one pass: each piece of plain text, with what the placeholder after it names; None after the last."""
    begun = 0
    while (opening := text.find("{{", begun)) >= 0 and (closing := text.find("}}", opening + 2)) >= 0:
        yield text[begun:opening], text[opening + 2 : closing]
        begun = closing + 2
    yield text[begun:], None


def _value(path: str, values: Mapping[str, Any]) -> Any:
    match = _PATH.fullmatch(path)
    if match is None:
        raise UnknownVariable(_no_path(path))
    value = values[match["space"]]
    for step in _steps(match["rest"]):
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            raise UnknownVariable(f"{{{{{path}}}}}: there is no {step!r}") from None
    return value


def _steps(rest: str) -> Iterator[str | int]:
    for name, index, double, single in _STEP.findall(rest):
        if len(index) > MAX_INDEX_DIGITS:
            raise UnknownVariable(f"an index of {len(index)} digits")
        yield int(index) if index else name or double or single


def _no_path(path: str) -> str:
    return f"{{{{{path}}}}}: expected: `item` or `sample` with names and indexes after it"

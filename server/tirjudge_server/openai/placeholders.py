"""`{{ item.answer }}` and `{{ sample.output_text }}` in a grader's texts, filled in one pass: what a value contains is never
looked at."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_PLACEHOLDER = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_PATH = re.compile(r"\s*(?P<space>item|sample)(?P<rest>(?:\.[A-Za-z_]\w*|\[\d+\]|\[(?:\"[^\"]*\"|'[^']*')\])*)\s*")
_STEP = re.compile(r"\.([A-Za-z_]\w*)|\[(\d+)\]|\[\"([^\"]*)\"\]|\['([^']*)'\]")


MAX_INDEX_DIGITS = 9
"""Of a place in a list."""


class UnknownVariable(ValueError):
    """A placeholder that names nothing there is."""


def fill_in(text: str, values: Mapping[str, Any]) -> str:
    """The text with every placeholder replaced: a string as it is, anything else as JSON.

    Args:
        text: the template.
        values: `item` and `sample`.

    Raises:
        UnknownVariable: a placeholder names what is not there.
    """
    return _PLACEHOLDER.sub(lambda match: _spelled(_value(match[1], values)), text)


def names_sample(text: str) -> bool:
    """Whether a template shows anything of the sample."""
    return any(path.lstrip().startswith("sample") for path in _PLACEHOLDER.findall(text))


def check_placeholders(text: str) -> None:
    """
    Raises:
        UnknownVariable: a placeholder is no path into `item` or `sample`.
    """
    for path in _PLACEHOLDER.findall(text):
        if _PATH.fullmatch(path) is None:
            raise UnknownVariable(_no_path(path))


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
    return f"{{{{{path}}}}}: `item` or `sample` with names and indexes after it would do"


def _spelled(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

"""Find the final answer in a response: the content of the last `\\boxed{}`, or the last number."""

from __future__ import annotations

import re
from decimal import Decimal

_BRACES = re.compile(r"\\(?:boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)
_BARE_BOX = re.compile(r"\\boxed\s+([^\s{}$]+)")
_NUMBER = re.compile(r"(?<![\w.])-?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|(?<![\w.])-?\.\d+")
MAX_DIGITS = 400
"""Maximum number of digits of an answer. Longer numbers are repetition loops of a model."""


def last_boxed(text: str) -> str | None:
    """Return the content of the last closed `\\boxed{...}` or `\\boxed 5`, stripped of whitespace. None: no box."""
    opened: list[tuple[int, bool]] = []
    start, content = -1, None
    for brace in _BRACES.finditer(text):
        if brace[0].endswith("{") and brace[0] != "\\{":
            opened.append((brace.end(), brace[0] != "{"))
        elif brace[0] == "}" and opened:
            inside, is_box = opened.pop()
            if is_box and inside > start:
                start, content = inside, text[inside : brace.start()].strip()
    bare = _BARE_BOX.findall(text, max(start, 0))
    return bare[-1].rstrip(".,") if bare else content


def last_number(text: str) -> Decimal | None:
    """Return the last decimal number; commas may separate thousands. None: no number, or one longer than MAX_DIGITS."""
    numbers = _NUMBER.findall(text)
    if not numbers or len(numbers[-1]) > MAX_DIGITS:
        return None
    return Decimal(numbers[-1].replace(",", ""))


def number_text(number: Decimal) -> str:
    """Return the canonical text of a number: 18, 18.0 and 0018 are `18`."""
    if number == number.to_integral_value():
        return str(int(number))
    return format(number, "f").rstrip("0")

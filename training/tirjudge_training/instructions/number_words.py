"""Numbers and ordinals in words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import Random

_UNITS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_ORDINALS = [
    "zeroth",
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
]
_OTHER_WORDS = {2: ("twice", "both", "pair", "couple", "double"), 3: ("thrice", "trio"), 12: ("dozen",)}
"""Number -> other words that tell this number, such as "twice"."""


def number_word(number: int) -> str:
    """Return a number from 0 to 100 in words."""
    if number < 20:
        return _UNITS[number]
    if number == 100:
        return "a hundred"
    return _TENS[number // 10 - 2] + (f"-{_UNITS[number % 10]}" if number % 10 else "")


def is_in_words(number: int, text: str) -> bool:
    """Return whether a text has a number from 0 to 100 in words, as a cardinal, an ordinal or a word such as "twice"."""
    words = [number_word(number)] if number <= 100 else []
    words += [*_ORDINALS[number : number + 1], *_OTHER_WORDS.get(number, ())]
    return any(re.search(rf"\b{word}\b", text, re.IGNORECASE) for word in words)


def with_ordinals(text: str, values: Mapping[str, str | int], *, rng: Random) -> str:
    """Replace `{n}th`, `{n}st`, `{n}nd` and `{n}rd` by the ordinal."""

    def ordinal(match: re.Match[str]) -> str:
        number = int(values[match[1]])
        if number < len(_ORDINALS) and rng.random() < 0.6:
            return _ORDINALS[number]
        last = number % 10 if number % 100 // 10 != 1 else 0
        return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(last, 'th') }"

    return re.sub(r"\{(\w+)\}(?:th|st|nd|rd)\b", ordinal, text)

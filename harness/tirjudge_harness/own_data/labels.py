"""The meaning of label values: `A`, `model_b`, `tie`, `B>A`, 0/1, 1/2, and values that the user explains.

A value has the same meaning in all rows and for all raters. Values whose meaning is not certain have none: 0 and 1 are
indexes counted from 0, but a file whose only value is 1 could also count from 1.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tirjudge.types import MAX_RESPONSES, label_of
from tirjudge.verdict import TIED
from tirjudge_harness.own_data.mapping import TIE

_HUMAN_REF = "human_ref_"
"""Start of the columns of the responses in Stanford Human Preferences (SHP), where 1 means the first response."""

MAX_LABEL_CHARS = 80
"""Maximum length of a label value in characters."""

_MISSING = frozenset({"", "nan", "<na>", "none", "null", "n/a", "na", "-"})
"""Normalized values that mean: no label."""

_TIES = frozenset(
    {
        "tie",
        "tied",
        "draw",
        "equal",
        "same",
        "both",
        "neither",
        "tie (bothbad)",
        "bothbad",
        "both_bad",
        "both_good",
    }
)

_NUMBERED = {"first": 0, "second": 1, "third": 2, "left": 0, "right": 1}

_BEFORE = ("model", "response", "answer", "assistant", "option", "completion", "output", "candidate", "winner")
"""Words before the letter or the number of a response, as in `model_a`."""

_COMPARED = re.compile(r"([ab])(>{1,3}|<{1,3}|=)([ab])")

_TRUE, _FALSE = (
    ("true", "yes", "correct", "pass", "passed", "right"),
    ("false", "no", "incorrect", "fail", "failed", "wrong"),
)

_FIRST_IS_BETTER = frozenset(
    f"{before}{name}{after}"
    for name in ("a", "1")
    for before in ("", "response_", "model_", "is_")
    for after in ("_is_better", "_wins", "_better", "_preferred", "_is_preferred")
)
"""Names of columns with booleans that are true if the first response is better."""

_SIGNED = frozenset({"preference_strength", "overall_preference"})
"""Names of columns from -3 (the first response is much better) to 3 (the second one is), as in HelpSteer 2 and 3."""


def plain(name: str) -> str:
    """Normalize the name of a column: lower case, and one underscore for each group of other characters.

    >>> plain(" Response-A "), plain("Winner (human)")
    ('response_a', 'winner_human')
    """
    words = "".join(letter if letter.isalnum() else " " for letter in name.lower()).split()
    return "_".join(words)


def label_value(cell: Any) -> str | None:
    """Normalize a label: lower case, without blanks around it and without `[[` `]]`; an integer has no fraction.

    None: the cell is empty.

    Raises:
        ValueError: the cell is a list or an object, or too long for a label.
    """
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    if cell is not None and not isinstance(cell, str | int | float):
        raise ValueError("expected a label, got a list or an object")
    text = "" if cell is None else str(cell).strip()
    if len(text) > MAX_LABEL_CHARS:
        raise ValueError(f"expected a label, got a text of {len(text)} characters")
    value = text.removeprefix("[[").removesuffix("]]").strip().lower()
    if value.endswith(".0") and value[:-2].lstrip("-").isdecimal():
        value = value[:-2]
    return None if value in _MISSING else value


def meanings_of(
    counted: Counter[str], *, columns: Sequence[str], num_responses: int, label_column: str, given: Mapping[str, str]
) -> dict[str, str]:
    """Return value -> letter or `tie`, for the values whose meaning is certain.

    Args:
        counted: normalized values of all rows, with the number of rows.
        columns: columns of the responses. Empty: the responses are in one column.
        num_responses: number of responses; the maximum over all rows.
        label_column: name of the column of the labels.
        given: meanings that the user gave, by normalized value.
    """
    known = dict(given)
    names = {plain(name): index for index, name in enumerate(columns)}
    for value in counted:
        index = _index_of(value, names=names, num_responses=num_responses)
        if index is not None and value not in known:
            known[value] = TIE if index == TIED else label_of(index)
    unknown = [value for value in counted if value not in known]
    coded = _boolean(unknown, label_column) | _signed(unknown, label_column)
    if coded or not _are_indexes(unknown, label_column):
        return known | coded
    numbers = [int(value) for value in unknown if value.isdecimal() and int(value) <= MAX_RESPONSES]
    return known | _numbers(numbers, columns=columns, num_responses=num_responses)


def _index_of(value: str, *, names: Mapping[str, int], num_responses: int) -> int | None:
    """Return the index of the response that a value names by a word or a letter, or `TIED`. None: it names none."""
    if value in _TIES:
        return TIED
    if (compared := _COMPARED.fullmatch("".join(value.split()))) is not None and compared[1] != compared[3]:
        if compared[2] == "=":
            return TIED
        return "ab".index(compared[1] if compared[2].startswith(">") else compared[3])
    word = plain(value)
    if word in names:
        return names[word]
    head, _, tail = word.rpartition("_")
    own = _NUMBERED.get(word)
    if own is None and (not head or head in _BEFORE) and len(tail) == 1 and "a" <= tail <= "z":
        own = ord(tail) - ord("a")
    if own is None and head in _BEFORE:
        own = next((index for name, index in names.items() if name.rpartition("_")[2] == tail), None)
    if own is None and not word.isdecimal():  # `v1` for the column `answer_v1`
        ended = [index for name, index in names.items() if name.endswith(f"_{word}")]
        own = ended[0] if word and len(ended) == 1 else None
    return own if own is not None and own < num_responses else None


def _boolean(unknown: Sequence[str], column: str) -> dict[str, str]:
    if plain(column) not in _FIRST_IS_BETTER or not set(unknown) <= {"true", "false", "0", "1"}:
        return {}
    return {value: "A" if value in ("true", "1") else "B" for value in unknown}


def _signed(unknown: Sequence[str], column: str) -> dict[str, str]:
    """Return the meaning of signed strengths. Without a negative value, the code is not certain."""
    if plain(column) not in _SIGNED or not set(unknown) <= {str(number) for number in range(-3, 4)}:
        return {}
    if not any(value.startswith("-") for value in unknown):
        return {}
    return {value: TIE if value == "0" else "A" if value.startswith("-") else "B" for value in unknown}


def _are_indexes(unknown: Sequence[str], column: str) -> bool:
    """Whether numbers can be indexes of responses. 0.5 and -1 are codes of another kind (0, 0.5 and 1 often say how good the
    first response is), and so is a 0 in a column of signed strengths."""
    others = [value for value in unknown if not value.isdecimal()]
    is_coded = any(rating_of(value, given={}) is not None and value not in (*_TRUE, *_FALSE) for value in others)
    return not is_coded and not (plain(column) in _SIGNED and "0" in unknown)


def _numbers(numbers: Sequence[int], *, columns: Sequence[str], num_responses: int) -> dict[str, str]:
    """Return the meaning of numbers: those at the end of the columns' names, or indexes from 0 or from 1. Empty: unclear."""
    if not numbers:
        return {}
    if columns and all(plain(name).startswith(_HUMAN_REF) for name in columns):
        return {str(number): "BA"[number] for number in numbers if number in (0, 1)}
    ends = {plain(name)[-1:]: index for index, name in enumerate(columns)}
    if columns and all(end.isdecimal() for end in ends):
        return {str(number): label_of(ends[str(number)]) for number in numbers if str(number) in ends}
    low, high = min(numbers), max(numbers)
    if low == 0 and high < num_responses:
        return {str(number): label_of(number) for number in numbers}
    if low >= 1 and high == num_responses:
        return {str(number): label_of(number - 1) for number in numbers}
    return {}


def rating_of(value: str, *, given: Mapping[str, str]) -> float | None:
    """Return a label as a number; true and false are 1 and 0. None: not a finite number."""
    try:
        number = float(given.get(value, value))
    except ValueError:
        return 1.0 if value in _TRUE else 0.0 if value in _FALSE else None
    return number if abs(number) < float("inf") else None


def comma_advice(values: Iterable[str]) -> str:
    """Return how to write a number with a decimal comma. Empty: no value is one."""
    for value in values:
        if "," in value and rating_of(point := value.replace(",", "."), given={}) is not None:
            return f"; write a decimal point: {point}"
    return ""


def majority(votes: Sequence[int | None]) -> int | None:
    """Return the response that most raters name; `TIED` if several are named equally often. None: no rater gave a label."""
    counted = Counter(vote for vote in votes if vote is not None).most_common(2)
    if not counted:
        return None
    (choice, most), *others = counted
    return TIED if others and others[0][1] == most else choice

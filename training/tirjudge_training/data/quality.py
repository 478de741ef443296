"""What a row must be to become an item, and what is said of one that is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tirjudge.types import ChatMessage, prompt_text

MAX_CHARS = 24_000
"""Characters of a prompt with its responses, about 6,000 tokens: the judge has to think in what is left of 8,192."""


class Reason(StrEnum):
    """Why a row gives no item."""

    BROKEN_ROW = "broken_row"
    """A column holds something else than its data set says."""
    OTHER_TASK = "other_task"
    """A row of the data set that the mixture has no use for, such as mathematics among code."""
    NON_COMMERCIAL = "non_commercial"
    """The licence forbids commercial use, and `--commercial` was asked for."""
    UNCLEAR_PREFERENCE = "unclear_preference"
    """Those who labelled it were not sure enough."""
    UNVERIFIABLE_ANSWER = "unverifiable_answer"
    """No program can tell a right answer from a wrong one."""
    DUPLICATE = "duplicate"
    """Its prompt was there already."""
    CONTAMINATED = "contaminated"
    """It shares eight words in a row with a benchmark."""
    NO_CANDIDATES = "no_candidates"
    """A problem that nobody has answered yet: answers are to be sampled."""
    NO_POSITIVE = "no_positive"
    """No answer is right."""
    NO_NEGATIVE = "no_negative"
    """No answer is wrong."""
    EQUAL_ANSWERS = "equal_answers"
    """The right and the wrong answer are the same text."""
    TOO_LONG = "too_long"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A row that gives no item."""

    reason: Reason
    detail: str = ""
    """What is wrong with this one; empty where the reason says it all."""


def num_chars(prompt: str | Sequence[ChatMessage], *, responses: Sequence[str]) -> int:
    """How long the judge's question will be, in characters."""
    return len(prompt_text(prompt)) + sum(map(len, responses))


def prompt_key(prompt: str | Sequence[ChatMessage]) -> str:
    """The same for prompts that differ in case and white space alone."""
    return " ".join(prompt_text(prompt).casefold().split())

"""Quality rules for rows, and the reasons for rejecting a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tirjudge.types import ChatMessage, prompt_text

MAX_CHARS = 24_000
"""Maximum number of characters of a prompt with its responses. They are about 6,000 tokens. The context has 8,192 tokens;
the rest is left for the judge's reasoning."""


class Reason(StrEnum):
    """Reason for rejecting a row."""

    BROKEN_ROW = "broken_row"
    """A column has an invalid value."""
    OTHER_TASK = "other_task"
    """The mixture does not use rows of this task, such as mathematics in a data set of code."""
    NON_COMMERCIAL = "non_commercial"
    """The license forbids commercial use, and `--commercial` was given."""
    UNCLEAR_PREFERENCE = "unclear_preference"
    """The preference of the annotators is too weak."""
    UNVERIFIABLE_ANSWER = "unverifiable_answer"
    """A program cannot decide whether an answer is right."""
    DUPLICATE = "duplicate"
    """An earlier row has the same prompt."""
    CONTAMINATED = "contaminated"
    """The row shares eight words in a row with a benchmark."""
    NO_CANDIDATES = "no_candidates"
    """The problem has no answers yet; they must be sampled."""
    NO_POSITIVE = "no_positive"
    """No answer is right."""
    NO_NEGATIVE = "no_negative"
    """No answer is wrong, or (listwise) too few are."""
    EQUAL_ANSWERS = "equal_answers"
    """All wrong answers are equal to a right one."""
    TOO_LONG = "too_long"
    """The prompt with its responses is too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A rejected row."""

    reason: Reason
    detail: str = ""
    """Details for this row. Empty: the reason is sufficient."""


def num_chars(prompt: str | Sequence[ChatMessage], *, responses: Sequence[str]) -> int:
    """Return the length of a prompt with its responses, in characters."""
    return len(prompt_text(prompt)) + sum(map(len, responses))


def prompt_key(prompt: str | Sequence[ChatMessage]) -> str:
    """Return a key that is equal for prompts that differ only in case and white space."""
    return " ".join(prompt_text(prompt).casefold().split())

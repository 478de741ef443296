"""The repetition limit of a turn, which the embedded engine and vLLM have in common."""

from __future__ import annotations

from collections.abc import Sequence

MAX_PATTERN = 32
"""Maximum number of tokens of a pattern."""

MIN_COUNT = 64
"""Number of times in a row. A turn ends after the same 1 to `MAX_PATTERN` tokens were generated as often. Programs with long
lists or tables do not reach this limit."""


def is_repeated(token_ids: Sequence[int]) -> bool:
    """Return whether a turn has reached the limit with its last token.

    >>> is_repeated([1] + [7, 8] * 64)
    True
    >>> is_repeated([1] + [7, 8] * 63)
    False
    """
    for size in range(1, MAX_PATTERN + 1):
        length = size * MIN_COUNT
        if length > len(token_ids):
            return False
        if token_ids[-1] == token_ids[-1 - size] and token_ids[-length:-size] == token_ids[size - length :]:
            return True
    return False

"""Numbers with their nouns, as text for people."""

from __future__ import annotations


def counted(num: int, noun: str) -> str:
    """Return a number and its noun, which is plural unless the number is 1.

    >>> counted(1, "item"), counted(2500, "item")
    ('1 item', '2,500 items')
    """
    return f"{num:,} {noun}{'' if num == 1 else 's'}"

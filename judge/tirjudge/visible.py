"""Make the control characters of a stranger's text visible, so that a terminal or a browser does not act on them."""

from __future__ import annotations

import unicodedata

_KEPT = "\n\t\u200c\u200d"
"""Line breaks, tabs, and the joiners that scripts and emoji need."""

_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
"""Unicode categories of characters that have no shape, or that change the text around them."""


def visible(text: str) -> str:
    r"""Replace control characters, direction marks and lone surrogates with escapes.

    >>> visible("a\x1b[31mb\u202ec\r\nd")
    'a\\x1b[31mb\\u202ec\\r\nd'
    """
    return "".join(
        letter if letter in _KEPT or unicodedata.category(letter) not in _HIDDEN else _escape(letter) for letter in text
    )


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape", "surrogatepass").decode()

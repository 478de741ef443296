"""Make the control characters of a stranger's text visible, so that a terminal does not act on them."""

from __future__ import annotations

import unicodedata

MAX_CHARS = 2_000
"""Maximum length of a text that is not shown whole, in characters."""

MAX_LINES = 40
"""Maximum number of lines of a text that is not shown whole."""

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


def shortened(text: str) -> str:
    """Return the beginning of a text, at most `MAX_CHARS` characters and `MAX_LINES` lines, and the length of the rest."""
    kept = "".join(text[: MAX_CHARS + 1].splitlines(keepends=True)[:MAX_LINES])[:MAX_CHARS]
    rest = len(text) - len(kept)
    return f"{kept.rstrip()}\n… {rest:,} more characters, see --full" if rest > 0 else text


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape", "surrogatepass").decode()

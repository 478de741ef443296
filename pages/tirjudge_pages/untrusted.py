"""Prepare texts of requests, models and programs for a page.

Autoescape makes a text harmless as HTML. What is left are characters that are invisible or reorder the text around them, and
texts that are too long for a browser. Both are handled here, in time linear in the text that is shown.
"""

from __future__ import annotations

import datetime

from tirjudge.visible import visible

MAX_CHARS = 20_000
"""Maximum length of a text on a page, in characters."""


def shown_text(text: object, max_chars: int = MAX_CHARS) -> str:
    r"""Return a text with visible control characters, cut to `max_chars` characters. The cut is marked.

    >>> shown_text("a\x1b[31m" + "b" * 9, 7)
    'a\\x1b[31mb\n… 8 more characters'
    """
    given = str(text)
    rest = len(given) - max_chars
    kept = visible(given[:max_chars])
    return f"{kept}\n… {rest:,} more characters" if rest > 0 else kept


def shown_time(unix_ms: int) -> str:
    """Return a time as on pages, in UTC.

    >>> shown_time(1_800_000_000_000)
    '2027-01-15 08:00:00'
    """
    try:
        return f"{datetime.datetime.fromtimestamp(unix_ms / 1000, tz=datetime.UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return "unknown"

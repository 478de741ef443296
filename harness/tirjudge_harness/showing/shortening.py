"""Cut long texts for a terminal."""

from __future__ import annotations

MAX_CHARS = 2_000
"""Maximum length of a text that is not shown whole, in characters."""

MAX_LINES = 40
"""Maximum number of lines of a text that is not shown whole."""


def shortened(text: str) -> str:
    """Return the beginning of a text, at most `MAX_CHARS` characters and `MAX_LINES` lines, and the length of the rest."""
    kept = "".join(text[: MAX_CHARS + 1].splitlines(keepends=True)[:MAX_LINES])[:MAX_CHARS]
    rest = len(text) - len(kept)
    return f"{kept.rstrip()}\n… {rest:,} more characters, see --full" if rest > 0 else text

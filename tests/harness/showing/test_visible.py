from __future__ import annotations

import pytest

from tirjudge.visible import visible
from tirjudge_harness.showing.shortening import MAX_CHARS, MAX_LINES, shortened


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("a\r\nb\tc\x00\x7f\x9b", "a\\r\nb\tc\\x00\\x7f\\x9b"),
        ("\u202eabc\u2066\u200b\u2028", r"\u202eabc\u2066\u200b\u2028"),
        ("\ud800", r"\ud800"),
        ("é 日本 👩\u200d🔬 [bold]x[/bold]", "é 日本 👩\u200d🔬 [bold]x[/bold]"),
    ],
)
def test_control_characters_become_escapes(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_long_texts_are_cut_with_the_length_of_the_rest() -> None:
    assert shortened("x" * MAX_CHARS) == "x" * MAX_CHARS
    assert shortened("x" * 10_000) == "x" * MAX_CHARS + "\n… 8,000 more characters, see --full"
    lines = shortened("ab\n" * (MAX_LINES + 2)).splitlines()
    assert lines == ["ab"] * MAX_LINES + ["… 6 more characters, see --full"]

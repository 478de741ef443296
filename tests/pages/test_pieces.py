"""Texts in pieces: differences of two responses, code by its syntax, and control characters."""

from __future__ import annotations

import random

import pytest

from tirjudge_pages.pieces import MAX_LINE_CHARS, MAX_WORDS, TextPiece, code_pieces, different_pieces
from tirjudge_pages.untrusted import MAX_CHARS, shown_text, shown_time


def text_of(pieces: list[TextPiece]) -> str:
    return "".join(piece.text for piece in pieces)


def same_words(pieces: list[TextPiece]) -> list[str]:
    """The common part of a text whose words are single letters."""
    return [letter for piece in pieces if not piece.style for letter in piece.text]


def longest_common(first: str, second: str) -> int:
    """Length of the longest common subsequence, by the table of the definition."""
    table = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            table[i + 1][j + 1] = table[i][j] + 1 if a == b else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


def test_words_that_only_one_text_has_are_marked() -> None:
    first, second = different_pieces("A big dog barks.", "A dog sings.")
    assert [piece.text for piece in first if piece.style] == ["big ", "barks"]
    assert [piece.text for piece in second if piece.style] == ["sings"]


def test_the_common_part_is_a_longest_one() -> None:
    source = random.Random(0)
    for _ in range(300):
        # Punctuation marks are words of their own.
        texts = ["".join(source.choices("!?.", k=source.randrange(9))) for _ in range(2)]
        first, second = different_pieces(*texts)
        assert [text_of(first), text_of(second)] == texts
        assert same_words(first) == same_words(second)
        assert len(same_words(first)) == longest_common(*texts)


@pytest.mark.parametrize("text", ["x " * MAX_WORDS, "x" * (MAX_CHARS + 1)])
def test_long_texts_are_not_compared(text: str) -> None:
    first, second = different_pieces(text, "y")
    assert [piece.style for piece in first + second] == ["", ""]
    assert text_of(second) == "y"


def test_code_is_in_pieces_by_its_syntax() -> None:
    pieces = code_pieces("def f(x):\n    return 'a' + str(1)  # why\n")
    assert text_of(pieces) == "def f(x):\n    return 'a' + str(1)  # why\n"
    assert {(piece.text.strip(), piece.style) for piece in pieces} >= {
        ("def", "k"), ("f", "n"), ("return", "k"), ("'a'", "s"), ("str", "n"), ("1", "m"), ("# why", "c"),
    }  # fmt: skip


@pytest.mark.parametrize("code", ["", "print('\x1b[31m\u202e')", "'''open", "\t if (", "é = 1\n\n\n", "\\"])
def test_code_that_is_not_valid_is_shown_whole(code: str) -> None:
    assert text_of(code_pieces(code)) == shown_text(code)


@pytest.mark.parametrize("code", ["1\n" * MAX_CHARS, "1" * (MAX_LINE_CHARS + 1)])
def test_long_code_is_one_piece(code: str) -> None:
    assert len(code_pieces(code)) == 1


def test_long_texts_are_cut_with_the_length_of_the_rest() -> None:
    assert shown_text("abc", 3) == "abc"
    assert shown_text("abcdef" * 1000, 3) == "abc\n… 5,997 more characters"


def test_times_are_in_utc() -> None:
    assert shown_time(1_800_000_000_000) == "2027-01-15 08:00:00"
    assert shown_time(10**30) == "unknown"

"""Texts in pieces, each with the class that a template gives it: code by its syntax, responses by their differences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, String, _TokenType

from tirjudge_pages.untrusted import MAX_CHARS, shown_text

MAX_LINE_CHARS = 2_000
"""Maximum length of a line of code that is highlighted, in characters. The patterns of a lexer search within one line."""

MAX_WORDS = 4_000
"""Maximum number of words of a text that is compared."""

_CLASSES = (
    (Comment, "c"),
    (String, "s"),
    (Number, "m"),
    (Keyword, "k"),
    (Name.Builtin, "n"),
    (Name.Function, "n"),
    (Name.Class, "n"),
)
"""Type of a token -> class of the style sheet. The first match counts."""

_WORD = re.compile(r"\s+|[^\W_]+|.", re.DOTALL)


class TextPiece(NamedTuple):
    """A piece of a text."""

    text: str
    """The piece, with visible control characters."""
    style: str
    """Class of the style sheet. Empty: none. `differs`: the other text lacks this piece."""


def code_pieces(code: str, *, max_chars: int = MAX_CHARS) -> list[TextPiece]:
    """Return Python code in pieces by its syntax. Long code and code with long lines is one piece.

    >>> code_pieces("x = 1")[-1]
    TextPiece(text='1', style='m')
    """
    text = shown_text(code, max_chars)
    lines = text.split("\n")
    if len(code) > max_chars or any(len(line) > MAX_LINE_CHARS for line in lines):
        return [TextPiece(text, "")]
    # The lexer takes quadratic time on lines of blanks.
    text = "\n".join(line.rstrip() for line in lines)
    tokens = PythonLexer(ensurenl=False, stripnl=False).get_tokens(text)
    return list(_joined(TextPiece(value, _class_of(kind)) for kind, value in tokens))


def _class_of(kind: _TokenType) -> str:
    return next((style for parent, style in _CLASSES if kind in parent), "")


def different_pieces(first: str, second: str) -> tuple[list[TextPiece], list[TextPiece]]:
    """Return two texts in pieces. A piece that only one of them has has the style `differs`.

    The common pieces are a longest common subsequence of words (Hyyrö 2004: one row of the table is one integer). Time is
    proportional to the product of both numbers of words / 64. Texts of more than `MAX_WORDS` words are not compared.

    >>> different_pieces("a big dog", "a dog")[0]
    [TextPiece(text='a ', style=''), TextPiece(text='big ', style='differs'), TextPiece(text='dog', style='')]
    """
    texts = [shown_text(text) for text in (first, second)]
    words = [_WORD.findall(text) for text in texts]
    if any(len(text) > MAX_CHARS for text in (first, second)) or max(map(len, words)) > MAX_WORDS:
        return [TextPiece(texts[0], "")], [TextPiece(texts[1], "")]
    common = _common(*words)
    return _marked(words[0], common[0]), _marked(words[1], common[1])


def _common(first: Sequence[str], second: Sequence[str]) -> tuple[set[int], set[int]]:
    """Return the indexes in both sequences of a longest common subsequence."""
    places: dict[str, int] = {}
    for index, word in enumerate(first):
        places[word] = places.get(word, 0) | 1 << index
    all_ones = (1 << len(first)) - 1
    row, rows = all_ones, []
    for word in second:
        matches = row & places.get(word, 0)
        row = ((row + matches) | (row - matches)) & all_ones
        rows.append(row)
    found: tuple[set[int], set[int]] = (set(), set())
    i, j = len(first), len(second)
    while i and j:
        if rows[j - 1] >> (i - 1) & 1:
            i -= 1
        elif j > 1 and not rows[j - 2] >> (i - 1) & 1:
            j -= 1
        else:
            i, j = i - 1, j - 1
            found[0].add(i)
            found[1].add(j)
    return found


def _marked(words: Sequence[str], common: set[int]) -> list[TextPiece]:
    return list(_joined(TextPiece(word, "" if index in common else "differs") for index, word in enumerate(words)))


def _joined(pieces: Iterator[TextPiece]) -> Iterator[TextPiece]:
    """Join neighbours of the same style."""
    texts: list[str] = []
    style = ""
    for piece in pieces:
        if piece.style != style and texts:
            yield TextPiece("".join(texts), style)
            texts = []
        style = piece.style
        texts.append(piece.text)
    if texts:
        yield TextPiece("".join(texts), style)

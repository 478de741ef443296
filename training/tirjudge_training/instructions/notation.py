"""The notation of checks, and the line of Python that each check is in a program.

`words >= {n} ; forbid "{w}"` is the notation in the files of sentences: a name, its texts and its comparison. Slots in
braces stand for values that are drawn. `Check.expression` is what the judge learns to write, such as
`words(r) >= 300`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

COUNTS = (
    "words",
    "sentences",
    "paragraphs",
    "lines",
    "characters",
    "bullets",
    "numbered",
    "placeholders",
    "highlights",
    "bold",
    "headings",
    "hashtags",
    "capitals",
    "emojis",
    "links",
    "numbers",
    "codeblocks",
    "tablerows",
    "parentheses",
    "stars",
    "punctuation",
    "quotes",
    "dashes",
    "lettered",
    "columns",
    "json_items",
    "roman",
    "first_line_words",
    "first_line_characters",
    "first_sentence_words",
    "last_line_words",
    "last_sentence_words",
    "italics",
    "blockquotes",
    "inline_code",
    "longest_word",
    "percents",
    "amounts",
    "clock_times",
)
"""Checks that compare one count of the response."""
SYMBOLS = {"questions": "?", "exclamations": "!", "commas": ","}
"""Checks that count one symbol."""
COUNTS_OF = ("symbol", "count", "letter", "sections", "separated", "own_lines", "marked", "beginning", "ending")
"""Checks that count something named by a text."""
LENGTHS = {
    "per_paragraph": "paragraph_sentences",
    "sentence_words": "sentence_words",
    "word_letters": "word_letters",
    "line_words": "line_words",
    "line_characters": "line_characters",
    "bullet_words": "bullet_words",
    "per_list": "list_items",
    "paragraph_words": "paragraph_words",
    "paragraph_lines": "paragraph_lines",
    "bullet_sentences": "bullet_sentences",
    "heading_words": "heading_words",
}
"""Checks that hold for each part of the response -> the function that returns the list of measures."""
TEXTS = {
    "include": "has",
    "forbid": "lacks",
    "include_any": "has_any",
    "start": "starts",
    "end": "ends",
    "first_word": "first_word",
    "last_word": "last_word",
    "first_sentence": "first_sentence",
    "last_sentence": "last_sentence",
    "line_start": "line_start",
    "line_end": "line_end",
    "bullet_start": "bullet_start",
    "options": "options",
    "acrostic": "acrostic",
    "json_keys": "json_keys",
    "postscript": "postscript",
    "language": "language",
    "matches": "matches",
    "no_match": "no_match",
    "not_start": "not starts",
    "not_end": "not ends",
    "bold_text": "has_bold",
    "in_order": "in_order",
    "own_line": "own_line",
    "last_line": "last_line",
    "line_has": "line_has",
    "bullet_has": "bullet_has",
    "bullet_end": "bullet_end",
    "sentence_has": "sentence_has",
    "sentence_start": "sentence_start",
    "paragraph_has": "paragraph_has",
    "word_start": "word_start",
    "alternate": "alternate",
    "exact": "exact",
    "header": "header",
    "bullet_mark": "bullet_mark",
    "tags": "tags",
    "date_format": "date_format",
    "not_sentence_start": "not_sentence_start",
    "sentence_end": "sentence_end",
    "paragraph_start": "paragraph_start",
    "paragraph_end": "paragraph_end",
    "not_bullet_end": "not_bullet_end",
    "first_paragraph": "first_paragraph",
    "last_paragraph": "last_paragraph",
    "json_value": "json_value",
    "enclosed": "enclosed",
    "case_style": "case_style",
}
"""Checks with texts -> their function."""
TWO_TEXTS = ("json_value", "enclosed")
"""Checks with exactly two texts."""
FORMS = {
    "bullets_alike": "bullets_alike(r)",
    "unique_words": "unique_words(r)",
    "alphabetical": "alphabetical(r)",
    "upper": "upper(r)",
    "lower": "lower(r)",
    "title_case": "title_case(r)",
    "is_regex": "is_regex(r)",
    "json": "is_json(r)",
    "json_array": "json_array(r)",
    "table": "table(r)",
    "code": "codeblocks(r) >= 1",
    "code_only": "code_only(r)",
    "no_code": "codeblocks(r) == 0",
    "title": "title(r)",
    "quoted": "quoted(r)",
    "two_answers": "two_answers(r)",
    "repeat": "repeats(r, prompt)",
    "ends_question": "ends_question(r)",
    "ends_period": "ends_period(r)",
    "no_period": "not ends_period(r)",
    "number_only": "number_only(r)",
    "items_bold": "items_bold(r)",
    "items_emoji": "items_emoji(r)",
    "items_upper": "items_upper(r)",
    "starts_emoji": "starts_emoji(r)",
    "ends_emoji": "ends_emoji(r)",
    "ascii": "ascii_only(r)",
    "no_digits": "numbers(r) == 0",
    "has_number": "numbers(r) >= 1",
    "has_email": "has_email(r)",
    "has_url": "links(r) >= 1",
    "iso_date": "iso_date(r)",
    "no_contractions": "contractions(r) == 0",
    "no_bullets": "bullets(r) == 0",
    "one_line": "one_line(r)",
    "no_blank_lines": "blank_lines(r) == 0",
    "numbered_list": "numbered(r) >= 1",
    "bullet_list": "bullets(r) >= 1",
    "no_markdown": "markdown(r) == 0",
    "lines_capital": "all(capitalized(x) for x in split_lines(r))",
    "items_capital": "all(capitalized(x) for x in items(r))",
    "sentences_capital": "all(capitalized(x) for x in split_sentences(r))",
    "reverse_alphabetical": "reverse_alphabetical(r)",
    "ascending": "ascending(r)",
    "descending": "descending(r)",
    "growing": "growing(r)",
    "shrinking": "shrinking(r)",
    "equal_lines": "equal_lines(r)",
    "starts_differ": "starts_differ(r)",
    "items_unique": "items_unique(r)",
    "sentence_lines": "sentence_lines(r)",
    "blank_between": "blank_between(r)",
    "no_nested": "nested(r) == 0",
    "abecedarian": "abecedarian(r)",
    "same_ends": "same_ends(r)",
    "no_first_person": "first_person(r) == 0",
    "no_second_person": "second_person(r) == 0",
    "is_xml": "is_xml(r)",
}
"""Checks without parameters -> their expression."""
PLACED = {"paragraph_first": "paragraph_first", "line_first": "line_first", "csv": "csv"}
"""Checks with a number that is no comparison."""

NAMES = (*COUNTS, *SYMBOLS, *COUNTS_OF, *LENGTHS, *TEXTS, *FORMS, *PLACED)

_NUMBER = r"(\{\w+\}|\d++)"
_CHECK = re.compile(
    rf"""(\w+)                                  # name
    ((?:\s*(?:"[^"]*"|{_NUMBER}(?!\s*\.\.)))*)  # texts and numbers
    \s*(?:(>=|<=|==|<|>)\s*{_NUMBER}|{_NUMBER}\s*\.\.\s*{_NUMBER})?\s*""",
    re.VERBOSE,
)
_SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check. Its numbers and texts may contain slots."""

    name: str
    texts: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    """One number of a comparison or a place; two for a range; none."""
    op: str | None = None
    """Comparison; ".." for a range; None for checks without one."""

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the slots in its texts and numbers, in this order."""
        return tuple(dict.fromkeys(_SLOT.findall(" ".join((*self.texts, *self.numbers)))))

    def filled(self, values: Mapping[str, str | int]) -> Check:
        """Return the check with its slots replaced by values.

        Raises:
            KeyError: a slot has no value.
        """

        def fill(text: str) -> str:
            return _SLOT.sub(lambda match: str(values[match[1]]), text)

        return replace(self, texts=tuple(map(fill, self.texts)), numbers=tuple(map(fill, self.numbers)))

    @property
    def expression(self) -> str:
        """The Python expression over the response `r`."""
        texts = "".join(f", {json.dumps(text, ensure_ascii=False)}" for text in self.texts)
        if self.name in FORMS:
            return FORMS[self.name]
        if self.name in TEXTS:
            return f"{TEXTS[self.name]}(r{texts})"
        if self.name in PLACED:
            return f"{PLACED[self.name]}(r, {self.numbers[0]}{texts})"
        if self.name in LENGTHS:
            return f"all({self._compared('x')} for x in {LENGTHS[self.name]}(r))"
        if self.name in SYMBOLS:
            return self._compared(f'count(r, "{SYMBOLS[self.name]}")')
        name = "count" if self.name == "symbol" else self.name
        return self._compared(f"{name}(r{texts})")

    def _compared(self, value: str) -> str:
        if self.op == "..":
            return f"{self.numbers[0]} <= {value} <= {self.numbers[1]}"
        return f"{value} {self.op} {self.numbers[0]}"


def parse_checks(text: str) -> tuple[Check, ...]:
    """Parse checks joined by `;`. `none` means no check.

    Raises:
        ValueError: the notation is not valid.
    """
    if text.strip() == "none":
        return ()
    found, end = [], 0
    while end < len(text):
        match = _CHECK.match(text, re.compile(r"\s*;?\s*").match(text, end).end())  # type: ignore[union-attr]
        if match is None or not match[0]:
            raise ValueError(f"not a check: {text[end:]!r} in {text!r}")
        found.append(_check(match))
        end = match.end()
        if end < len(text) and text[end] != ";":
            raise ValueError(f"not a check: {text[end:]!r} in {text!r}")
    return tuple(found)


def _check(match: re.Match[str]) -> Check:
    name, given = match[1], match[2]
    texts = tuple(re.findall(r'"([^"]*)"', given))
    numbers = tuple(re.findall(_NUMBER, re.sub(r'"[^"]*"', "", given)))
    op = match[4] or (".." if match[6] else None)
    compared = tuple(number for number in (match[5], match[6], match[7]) if number)
    check = Check(name=name, texts=texts, numbers=numbers + compared, op=op)
    takes_texts = name in TEXTS or name in COUNTS_OF or name in ("paragraph_first", "line_first")
    compares = name in COUNTS or name in SYMBOLS or name in COUNTS_OF or name in LENGTHS
    if (
        name not in NAMES
        or takes_texts != bool(texts)
        or compares != (op is not None)
        or (name in TWO_TEXTS and len(texts) != 2)
        or (numbers and name not in PLACED)
    ):
        raise ValueError(f"not a check: {match[0]!r}")
    if name in PLACED and len(numbers) != 1:
        raise ValueError(f"not a check: {match[0]!r}")
    return check

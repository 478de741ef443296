"""Variations of written instructions: other marks around values, longer lists of words, other values in whole prompts."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

from tirjudge_training.instructions.notation import Check
from tirjudge_training.instructions.number_words import is_in_words
from tirjudge_training.instructions.written import Instruction

MARKS = (
    ('"', '"'),
    ('"', '"'),
    ("'", "'"),
    ("'", "'"),
    ("“", "”"),
    ("‘", "’"),
    ("`", "`"),
    ("{", "}"),
    ("*", "*"),
    ("**", "**"),
    ("<", ">"),
    ("«", "»"),
    ("[", "]"),
    ("", ""),
)
"""Marks that people put around a word or a phrase that they mean literally."""

_MARKED = re.compile(
    r"(?P<left>\*{1,2}|[\"'`“‘<«\[]?)(?<!\w)\{(?P<slot>[wp]\w*)\}(?!\w)(?P<right>\*{1,2}|[\"'`”’>»\]]?)"
)
_LISTS = ("include", "forbid", "include_any")
_COUNTED = re.compile(r"\b(?:both|two|three|either|neither|2|3)\b", re.IGNORECASE)
"""Words that say how many words a list has."""


def with_other_marks(text: str, *, rng: Random) -> str:
    """Return a text with the same drawn marks around each slot of a word or a phrase.

    A phrase is never without marks, because its last character may be the end of the sentence.
    """
    left, right = rng.choice(MARKS)

    def marked(match: re.Match[str]) -> str:
        stays = (match["left"], match["right"]) not in MARKS or (not left and match["slot"].startswith("p"))
        return match[0] if stays else f"{left}{{{match['slot']}}}{right}"

    return _MARKED.sub(marked, text)


def with_more_words(one: Instruction, *, rng: Random) -> Instruction:
    """Return an instruction that asks for more words: up to four take the place of the first, with commas between them."""
    found = _MARKED.search(one.text)
    if found is None or (found["left"], found["right"]) not in MARKS or _COUNTED.search(one.text):
        return one
    slot = found["slot"]
    more = [f"{slot}x{i}" for i in range(rng.randint(1, 3))]

    def longer(check: Check) -> Check:
        if check.name not in _LISTS or f"{{{slot}}}" not in check.texts:
            return check
        at = check.texts.index(f"{{{slot}}}") + 1
        return replace(check, texts=(*check.texts[:at], *(f"{{{name}}}" for name in more), *check.texts[at:]))

    checks = tuple(map(longer, one.checks))
    holders = [check for check in one.checks if slot in check.slots]
    if len(holders) != 1 or checks == one.checks:
        return one
    listed = ", ".join(f"{found['left']}{{{name}}}{found['right']}" for name in (slot, *more))
    return replace(one, checks=checks, text=one.text[: found.start()] + listed + one.text[found.end() :])


_WORDS_OF = (
    "include", "forbid", "include_any", "count", "first_word", "last_word", "first_sentence", "last_sentence", "bold_text",
    "bullet_has", "sentence_has", "sentence_start", "paragraph_has",
    "first_paragraph", "last_paragraph",
)  # fmt: skip
_PHRASES_OF = ("start", "end", "not_start", "line_first", "last_line", "paragraph_start", "paragraph_end")
_LISTED = ("sections", "lettered", "columns", "json_items", "roman", "own_lines")
"""Counts of parts that prompts often list."""


def slotted(one: Instruction) -> Instruction:
    """Return a whole prompt with slots in place of its literal values.

    A value gets a slot if the prompt has it once and only one check has it, so no other part of the prompt depends on it. A
    number that is in the prompt in words as well stays, and so do the numbers of what prompts list, such as sections.
    """
    text, checks = one.text, list(one.checks)
    for place, check in enumerate(one.checks):
        for i, value in enumerate((*check.numbers, *check.texts)):
            is_number = i < len(check.numbers)
            kind = "n" if is_number else "w" if check.name in _WORDS_OF else "p" if check.name in _PHRASES_OF else ""
            asked = sum(value in (*each.numbers, *each.texts) for each in one.checks)
            alone = re.compile(rf"(?<![\w.,:/-]){re.escape(value)}(?![\w:/]|[.,]\d)")
            if not kind or asked != 1 or len(alone.findall(text)) != 1 or text.count(value) != 1:
                continue
            if is_number and (
                int(value) < 2 or check.op == ".." or check.name in _LISTED or is_in_words(int(value), text)
            ):
                continue
            slot = f"{{{kind}x{place}x{i}}}"
            text = alone.sub(lambda _, slot=slot: slot, text)
            check = (
                replace(check, numbers=tuple(slot if each == value else each for each in check.numbers))
                if is_number
                else replace(check, texts=tuple(slot if each == value else each for each in check.texts))
            )
        checks[place] = check
    return Instruction(tuple(checks), text)

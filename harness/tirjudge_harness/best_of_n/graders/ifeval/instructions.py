"""The 25 kinds of IFEval instructions. Each is a check that a program can run on a response.

The checks follow the paper's description (arXiv 2311.07911, Table 1) and agree with the published figures. Where the
description is ambiguous, the docstring of the check states the rule. Keywords are plain text, not patterns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, validate_call

from tirjudge_harness.best_of_n.graders.ifeval.words import (
    count_capital_words,
    count_sentences,
    count_words,
    is_in_language,
)

Relation = Literal["at least", "less than"]
Count = Annotated[int, Field(ge=0)]
Check = Callable[..., bool]
OneText = Annotated[str, Field(min_length=1)]
MAX_KEYWORD_CHARS = 200
"""Maximum length of a keyword. A case-insensitive search takes time proportional to it."""

Keyword = Annotated[str, Field(min_length=1, max_length=MAX_KEYWORD_CHARS)]
Keywords = Annotated[Sequence[Keyword], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)]

_CONSTRAINED_RESPONSES = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_HIGHLIGHT = re.compile(r"\*([^\n*]*)\*")
_BOLD = re.compile(r"\*\*([^\n*]*)\*\*")
_STARRED_ITEM = re.compile(r"^[^\S\n]*\*[^*].*$", re.MULTILINE)
_DASHED_ITEM = re.compile(r"^[^\S\n]*-.*$", re.MULTILINE)
_POSTSCRIPTS = {"P.S.": re.compile(r"p\.\s?s\."), "P.P.S": re.compile(r"p\.\s?p\.\s?s")}
_FENCE = re.compile(r"\A```(?:json|Json|JSON)?")


_CHECKS: dict[str, Check] = {}

CHECKS: Mapping[str, Check] = MappingProxyType(_CHECKS)
"""Kind -> function that checks whether a response follows it. Keyword arguments are the kind's parameters, such as a
number or a word."""


def _check(kind: str) -> Callable[[Check], Check]:
    """Register the decorated function as the check of a kind."""

    def add(check: Check) -> Check:
        _CHECKS[kind] = validate_call(check)
        return check

    return add


def _holds(count: int, relation: Relation, limit: int) -> bool:
    return count >= limit if relation == "at least" else count < limit


# Keywords


@_check("keywords:existence")
def _existence(response: str, *, keywords: Keywords) -> bool:
    """All keywords occur, case-insensitively, including inside longer words."""
    return all(re.search(re.escape(keyword), response, re.IGNORECASE) for keyword in keywords)


@_check("keywords:frequency")
def _frequency(response: str, *, keyword: Keyword, frequency: Count, relation: Relation) -> bool:
    """Count non-overlapping occurrences, case-insensitively, including those inside longer words."""
    return _holds(len(re.findall(re.escape(keyword), response, re.IGNORECASE)), relation, frequency)


@_check("keywords:forbidden_words")
def _forbidden_words(response: str, *, forbidden_words: Keywords) -> bool:
    """No forbidden word occurs as a whole word (case-insensitive)."""
    return not any(re.search(rf"\b{re.escape(word)}\b", response, re.IGNORECASE) for word in forbidden_words)


@_check("keywords:letter_frequency")
def _letter_frequency(
    response: str,
    *,
    letter: Annotated[str, Field(min_length=1, max_length=1)],
    let_frequency: Count,
    let_relation: Relation,
) -> bool:
    """Count occurrences of the character, ignoring case. Some prompts name a character that is not a letter."""
    return _holds(response.lower().count(letter.lower()), let_relation, let_frequency)


# Language and case


@_check("language:response_language")
def _response_language(response: str, *, language: OneText) -> bool:
    return is_in_language(response, language)


@_check("change_case:english_capital")
def _english_capital(response: str) -> bool:
    return response.isupper() and is_in_language(response, "en")


@_check("change_case:english_lowercase")
def _english_lowercase(response: str) -> bool:
    return response.islower() and is_in_language(response, "en")


@_check("change_case:capital_word_frequency")
def _capital_word_frequency(response: str, *, capital_frequency: Count, capital_relation: Relation) -> bool:
    return _holds(count_capital_words(response), capital_relation, capital_frequency)


# Length


@_check("length_constraints:number_sentences")
def _number_sentences(response: str, *, num_sentences: Count, relation: Relation) -> bool:
    return _holds(count_sentences(response), relation, num_sentences)


@_check("length_constraints:number_words")
def _number_words(response: str, *, num_words: Count, relation: Relation) -> bool:
    return _holds(count_words(response), relation, num_words)


@_check("length_constraints:number_paragraphs")
def _number_paragraphs(response: str, *, num_paragraphs: Count) -> bool:
    """Paragraphs are separated by `***`. Only the first and the last may be blank; blank ones are not counted."""
    return _num_parts(response.split("***")) == num_paragraphs


@_check("length_constraints:nth_paragraph_first_word")
def _nth_paragraph_first_word(response: str, *, num_paragraphs: Count, nth_paragraph: int, first_word: OneText) -> bool:
    """Paragraphs are separated by a blank line. Blank ones count for `nth_paragraph` but not for `num_paragraphs`."""
    paragraphs = response.split("\n\n")
    num_filled = sum(bool(paragraph.strip()) for paragraph in paragraphs)
    if num_filled != num_paragraphs or not 1 <= nth_paragraph <= num_filled:
        return False
    words = paragraphs[nth_paragraph - 1].split()
    if not words:
        return False
    opened = words[0].lstrip("'").lstrip('"')
    return re.split(r"[.,?!'\"]", opened, maxsplit=1)[0].lower() == first_word.lower()


# Content and format


@_check("detectable_content:number_placeholders")
def _number_placeholders(response: str, *, num_placeholders: Count) -> bool:
    """At least `num_placeholders` placeholders in square brackets occur. A placeholder cannot span lines."""
    found = sum("[" in part for line in response.split("\n") for part in line.split("]")[:-1])
    return found >= num_placeholders


@_check("detectable_content:postscript")
def _postscript(response: str, *, postscript_marker: OneText) -> bool:
    """The marker occurs (case-insensitive). P.S. and P.P.S may have a space between the letters."""
    pattern = _POSTSCRIPTS.get(postscript_marker.strip())
    if pattern is None:
        return postscript_marker.strip().lower() in response.lower()
    return pattern.search(response.lower()) is not None


@_check("detectable_format:number_bullet_lists")
def _number_bullet_lists(response: str, *, num_bullets: Count) -> bool:
    """Exactly `num_bullets` lines begin with a single `*` or with `-`."""
    return len(_STARRED_ITEM.findall(response)) + len(_DASHED_ITEM.findall(response)) == num_bullets


@_check("detectable_format:constrained_response")
def _constrained_response(response: str) -> bool:
    """One of the three allowed sentences occurs."""
    return any(sentence in response for sentence in _CONSTRAINED_RESPONSES)


@_check("detectable_format:number_highlighted_sections")
def _number_highlighted_sections(response: str, *, num_highlights: Count) -> bool:
    """At least `num_highlights` non-blank passages are enclosed in `*` or `**`. A passage cannot span lines."""
    found = [*_HIGHLIGHT.findall(response), *_BOLD.findall(response)]
    return sum(bool(text.strip()) for text in found) >= num_highlights


@_check("detectable_format:multiple_sections")
def _multiple_sections(response: str, *, section_spliter: OneText, num_sections: Count) -> bool:
    """The section word followed by a number occurs at least `num_sections` times."""
    return len(re.findall(rf"{re.escape(section_spliter.strip())}\s?\d+", response)) >= num_sections


@_check("detectable_format:json_format")
def _json_format(response: str) -> bool:
    """The whole response is JSON, optionally in a code block."""
    text = _FENCE.sub("", response.strip(), count=1).removesuffix("```").strip()
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


@_check("detectable_format:title")
def _title(response: str) -> bool:
    """A line contains `<<title>>` with a title that is not blank."""
    for line in response.split("\n"):
        start, end = line.find("<<"), line.rfind(">>")
        if start >= 0 and end > start + 2 and line[start:end].lstrip("<").rstrip(">").strip():
            return True
    return False


# Combination, start and end


@_check("combination:two_responses")
def _two_responses(response: str) -> bool:
    """Two different texts are separated by `******`. Blank text before the first or after the last one is ignored."""
    parts = response.split("******")
    filled = [part.strip() for part in parts if part.strip()]
    return _num_parts(parts) == 2 and filled[0] != filled[1]


@_check("combination:repeat_prompt")
def _repeat_prompt(response: str, *, prompt_to_repeat: OneText) -> bool:
    """The response begins with the prompt (case-insensitive)."""
    return response.strip().lower().startswith(prompt_to_repeat.strip().lower())


@_check("startend:end_checker")
def _end_checker(response: str, *, end_phrase: OneText) -> bool:
    """The response ends with the phrase (case-insensitive), optionally followed by quotation marks."""
    return response.strip().strip('"').lower().endswith(end_phrase.strip().lower())


@_check("startend:quotation")
def _quotation(response: str) -> bool:
    text = response.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


@_check("punctuation:no_comma")
def _no_comma(response: str) -> bool:
    return "," not in response


def _num_parts(parts: Sequence[str]) -> int:
    """Return the number of parts that are not blank; -1 if a part other than the first and the last is blank."""
    if not all(part.strip() for part in parts[1:-1]):
        return -1
    return sum(bool(part.strip()) for part in parts)

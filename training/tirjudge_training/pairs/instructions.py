"""Verifier functions: check whether an answer follows an instruction, given a function name and arguments.

The functions have the names of RLVR-IFeval (Tulu 3, arXiv 2411.15124) and match its prompts. The additional function
`kinds` checks the generated instructions of `synthetic.instructions` with their ground truth.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tirjudge_training.synthetic.instructions import KINDS, Params

KIND_OF = {kind.name: kind for kind in KINDS}


class NoVerifier(Exception):
    """No verifier function has this name, or the function does not accept the arguments."""


def follows(reference: str, text: str) -> bool:
    """Whether an answer follows the instructions of a problem's reference.

    Args:
        reference: JSON object with `func_name` and arguments.
        text: The answer.

    Raises:
        NoVerifier: the function is unknown, or does not accept the arguments.
    """
    named = json.loads(reference)
    if not isinstance(named, dict) or named.get("func_name") not in FUNCTIONS:
        name = named.get("func_name") if isinstance(named, dict) else named
        raise NoVerifier(f"no verifier function {name!r}")
    arguments = {name: value for name, value in named.items() if name != "func_name"}
    try:
        return FUNCTIONS[named["func_name"]](text, **arguments)
    except (TypeError, KeyError, AttributeError) as error:
        raise NoVerifier(f"{named['func_name']}: {error}") from error


def reference_of(asked: Sequence[tuple[str, Params]], *, request: str) -> str:
    """Return the reference of a problem with generated instructions.

    Args:
        asked: For each instruction, the name of its kind and its parameters.
        request: The task without its instructions.
    """
    kinds = [{"name": name, "number": p.number, "op": p.op, "quotes": list(p.quotes)} for name, p in asked]
    return json.dumps({"func_name": "kinds", "kinds": kinds, "request": request}, ensure_ascii=False)


def _kinds(text: str, *, kinds: Sequence[Mapping[str, Any]], request: str) -> bool:
    return all(
        KIND_OF[one["name"]].holds(
            text, Params(number=one["number"], op=one["op"], quotes=tuple(one["quotes"])), request
        )
        for one in kinds
    )


def _times(word: str, text: str) -> int:
    return len(re.findall(rf"(?<!\w){re.escape(word.lower())}(?!\w)", text.lower()))


def _is(count: int, quantifier: str, number: int) -> bool:
    """Compare a count with a number. `around` allows a difference of 10 %, and always a difference of 1."""
    by_quantifier = {
        "at least": count >= number,
        "at most": count <= number,
        "around": abs(count - number) <= max(1, round(number / 10)),
    }
    return by_quantifier[quantifier]


def _parts(text: str, separator: str) -> list[str]:
    return [part.strip() for part in text.split(separator) if part.strip()]


def _sentences(text: str) -> int:
    return len(re.findall(r"[.!?]+(?=\s|$)", text.strip()))


def _paragraphs(text: str, N: int, first_word: str, i: int) -> bool:
    parts = _parts(text, "\n\n")
    return len(parts) == N and 1 <= i <= N and parts[i - 1].lower().startswith(first_word.lower())


def _two_responses(text: str) -> bool:
    parts = _parts(text, "******")
    return len(parts) == 2 and parts[0] != parts[1]


def _is_json(text: str) -> bool:
    inside = re.fullmatch(r"\s*```(?:json)?\s*\n(.*)\n\s*```\s*", text, re.DOTALL | re.IGNORECASE)
    try:
        json.loads(inside[1] if inside else text)
    except ValueError:
        return False
    return True


def _is_one_of(text: str, options: str | Sequence[str]) -> bool:
    answer = text.strip()
    return bool(answer) and answer in options


def _has_letters(text: str) -> bool:
    return text.upper() != text.lower()


FUNCTIONS: dict[str, Callable[..., bool]] = {
    "kinds": _kinds,
    "verify_keywords": lambda text, keyword_list: all(_times(word, text) for word in keyword_list),
    "verify_keyword_frequency": lambda text, word, N: _times(word, text) == N,
    "validate_forbidden_words": lambda text, forbidden_words: not any(_times(word, text) for word in forbidden_words),
    "verify_letter_frequency": lambda text, letter, N: text.lower().count(letter.lower()) == N,
    "verify_paragraph_count": lambda text, N: len(_parts(text, "***")) == N,
    "validate_word_constraint": lambda text, N, quantifier: _is(len(text.split()), quantifier, N),
    "verify_sentence_constraint": lambda text, N, quantifier: _is(_sentences(text), quantifier, N),
    "validate_paragraphs": _paragraphs,
    "verify_postscript": lambda text, postscript_marker: bool(
        re.search(rf"(?m)^\s*{re.escape(postscript_marker)}\s*\S", text)
    ),
    "validate_placeholders": lambda text, N: len(re.findall(r"\[[^\[\]\n]+\]", text)) >= N,
    "verify_bullet_points": lambda text, N: len(re.findall(r"(?m)^\s*[*-]\s+\S", text)) == N,
    "validate_title": lambda text: bool(re.search(r"<<[^<>\n]+>>", text)),
    "validate_choice": _is_one_of,
    "validate_highlighted_sections": lambda text, N: len(re.findall(r"\*+[^*\n]+\*+", text)) >= N,
    "validate_sections": lambda text, section_splitter, N: (
        len(re.findall(rf"(?m)^\W*{re.escape(section_splitter)}\s+\w", text)) == N
    ),
    "validate_json_format": _is_json,
    "validate_repeat_prompt": lambda text, original_prompt: text.strip().startswith(original_prompt.strip()),
    "validate_two_responses": _two_responses,
    "validate_uppercase": lambda text: _has_letters(text) and text == text.upper(),
    "validate_lowercase": lambda text: _has_letters(text) and text == text.lower(),
    "validate_frequency_capital_words": lambda text, N, quantifier: _is(
        len(re.findall(r"\b[A-Z]{2,}\b", text)), quantifier, N
    ),
    "validate_end": lambda text, end_phrase: text.strip().endswith(end_phrase.strip()),
    "validate_quotation": lambda text: len(text.strip()) > 1 and text.strip()[0] == text.strip()[-1] == '"',
    "validate_no_commas": lambda text: "," not in text,
}
"""Name -> function of the answer and its arguments. RLVR-IFeval's check of the response language is not included."""

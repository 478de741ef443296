"""Requests for a regular expression with examples of texts that it must match or must not match.

A line of a writer's `regexes.txt` is the notation of its checks and the request, with literal values:
`matches "AB-12" ; no_match "ab12" | badge numbers, AB-12 yes, ab12 no`. `none` means that no example can be tried.
`\\n` in a request stands for a line break.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from random import Random

from tirjudge_training.instructions.composing import Composer
from tirjudge_training.instructions.notation import Check, parse_checks
from tirjudge_training.instructions.tool_prompts import PromptWithChecks
from tirjudge_training.instructions.written import WRITERS, Instruction, lines_of

TRAINING_REGEX_WRITERS = ("abby", "abe", "brad", "cody", "lev", "pam", "xan", "zoe")

REGEX_CHECKS = ("is_regex", "matches", "no_match")

_MARKS = (("", ""), ('"', '"'), ("'", "'"), ("`", "`"), ("“", "”"), ("‘", "’"))
"""Marks around examples."""
_PLAIN = re.compile(r"[\w+#-]+(?:[.:/][\w-]+)*")
"""An example that needs no marks."""


@cache
def regex_requests(writers: tuple[str, ...]) -> tuple[Instruction, ...]:
    """Return the requests of some of this package's writers.

    Raises:
        ValueError: a line is not valid.
    """
    return tuple(_request(line) for name in writers for line in lines_of(WRITERS / name / "regexes.txt"))


def _request(line: str) -> Instruction:
    notation, _, text = line.partition(" | ")
    text = text.replace("\\n", "\n")
    checks = parse_checks(notation)
    if not text or not all(value in text for check in checks for value in check.texts):
        raise ValueError(f"writers: {line!r} given; a request is checks, a bar and a text that has all their values")
    if unknown := [check.name for check in checks if check.name not in REGEX_CHECKS]:
        raise ValueError(f"writers: {line!r} given; {unknown[0]} is not one of {', '.join(REGEX_CHECKS)}")
    return Instruction(_as_shown(checks, text), text)


def _as_shown(checks: Sequence[Check], text: str) -> tuple[Check, ...]:
    """Return the checks in the order of their values in the text. Neighbours of the same kind are one check."""
    values = [(check, value) for check in checks for value in check.texts]
    if not values:
        return tuple(checks)
    values.sort(key=lambda each: _place(each[1], text))
    return tuple(
        Check(name=name, texts=tuple(value for _, value in run))
        for name, run in groupby(values, key=lambda each: each[0].name)
    )


def _place(value: str, text: str) -> int:
    """Return where a text has a value: on its own, if it has it so."""
    found = _alone(value).search(text)
    return text.index(value) if found is None else found.start()


def _alone(*values: str) -> re.Pattern[str]:
    longest = sorted(values, key=len, reverse=True)
    return re.compile(rf"(?<![\w.:/-])(?:{'|'.join(map(re.escape, longest))})(?!\w|[.:/-]\w)")


def draw_regex_request(rng: Random, composer: Composer) -> PromptWithChecks:
    """Draw a request for a regular expression, often with other examples than the writer's."""
    if rng.random() < 0.3:
        one = _of_sentences(rng, composer)
    else:
        one = rng.choice(regex_requests(TRAINING_REGEX_WRITERS))
        if rng.random() < 0.65:
            one = with_other_examples(one, rng=rng)
    text = one.text
    if rng.random() < 0.12:
        more = composer.plain(rng)
        text = rng.choice((f"{more} {text}", f"{text}\n\n{more}"))
    return text, tuple(check.expression for check in one.checks)


def _of_sentences(rng: Random, composer: Composer) -> Instruction:
    """Draw one or two sentences about examples."""
    names = rng.choice((("matches",), ("no_match",), ("is_regex",), ("matches", "no_match"), ("is_regex", "matches")))
    parts = [composer.filled(rng.choice(composer.written.by_name[name]), rng=rng) for name in names]
    return Instruction(tuple(check for one in parts for check in one.checks), " ".join(one.text for one in parts))


def with_other_examples(one: Instruction, *, rng: Random) -> Instruction:
    """Return a request with other letters and digits in its examples, and often other marks around them.

    The rest of the request stays, so its examples need not fit its description: what an example is, and whether it must
    match, the words around it tell. A request stays as it is if an example is a part of something else.
    """
    values = [value for check in one.checks for value in check.texts]
    pattern = _alone(*values) if values else None
    if pattern is None or {match[0] for match in pattern.finditer(one.text)} != set(values):
        return one
    other = _others(values, letters=rng.random() < 0.6, rng=rng)
    marks = rng.choice(_MARKS) if rng.random() < 0.5 else None
    if marks == ("", "") and not all(map(_PLAIN.fullmatch, other.values())):
        marks = None

    def shown(match: re.Match[str]) -> str:
        value = other[match["value"]]
        around = (match["left"], match["right"])
        left, right = marks if marks is not None and around in _MARKS else around
        return f"{left}{value}{right}"

    marked = re.compile(rf"(?P<left>[\"'`“‘]?)(?P<value>{pattern.pattern})(?P<right>[\"'`”’]?)")
    checks = tuple(replace(check, texts=tuple(other[value] for value in check.texts)) for check in one.checks)
    return Instruction(checks, marked.sub(shown, one.text))


def _others(values: Sequence[str], *, letters: bool, rng: Random) -> Mapping[str, str]:
    """Return value -> another one of the same shape, all different; the value itself if none was found."""
    other: dict[str, str] = {}
    for value in dict.fromkeys(values):
        drawn = "".join(_similar(character, letters=letters, rng=rng) for character in value)
        other[value] = drawn if drawn not in other.values() and drawn not in values else value
    return other


def _similar(character: str, *, letters: bool, rng: Random) -> str:
    if character in "0123456789":
        return rng.choice("0123456789")
    for alphabet in ("aeiou", "bcdfghjklmnprstvwz", "AEIOU", "BCDFGHJKLMNPRSTVWXZ") if letters else ():
        if character in alphabet:
            return rng.choice(alphabet)
    return character

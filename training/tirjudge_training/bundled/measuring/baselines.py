"""Baselines without a model.

- A checker of plain patterns: it finds the usual phrases of instructions and measures the response. It shows how much of
  a set a few patterns solve.
- The checks that the prompt asks for, run by the functions of programs: what a judge reaches that reads every prompt
  correctly. Where these fail, the functions differ from the rules that made the labels.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from tirjudge_training.bundled.measuring.items import MeasuredItem
from tirjudge_training.instructions.responses import holds

_MAX_PROMPT_CHARS = 20_000
_QUOTED = re.compile(r"([^\"“”\n]{0,60})[\"“]([^\"“”\n]{1,60})[\"”]")
_MEASURES: Mapping[str, Callable[[str], int]] = {
    "word": lambda r: len(re.findall(r"\w+", r)),
    "sentence": lambda r: len(re.findall(r"[.!?](?=\s|$)", r)),
    "paragraph": lambda r: len([part for part in r.split("\n\n") if part.strip()]),
    "bullet": lambda r: len(re.findall(r"(?m)^ {0,8}[-*•] ", r)),
    "line": lambda r: len([line for line in r.splitlines() if line.strip()]),
    "placeholder": lambda r: len(re.findall(r"\[[^\[\]\n]{1,80}\]", r)),
    "highlight": lambda r: len(re.findall(r"\*[^*\n]{1,200}\*", r)),
}
_RELATIONS: Mapping[str, Callable[[int, int], bool]] = {
    "at least": operator.ge, "or more": operator.ge, "more than": operator.gt, "minimum of": operator.ge,
    "at most": operator.le, "no more than": operator.le, "less than": operator.lt, "fewer than": operator.lt,
    "under": operator.lt, "exactly": operator.eq, "": operator.eq,
}  # fmt: skip
_COUNTED = re.compile(
    r"(at least|more than|minimum of|at most|no more than|less than|fewer than|under|exactly|)"
    r" ?(\d{1,5})\+? (or more )?(?:\w+ )?(word|sentence|paragraph|bullet|line|placeholder|highlight)"
)
_FORMS: Mapping[str, Callable[[str], bool]] = {
    r"no commas|any commas|without commas": lambda r: "," not in r,
    r"all lowercase|only lowercase|in lowercase": str.islower,
    r"all capital|all caps|only capital|all uppercase": str.isupper,
    r"json": lambda r: r.strip().strip("`").removeprefix("json").lstrip()[:1] in ("{", "["),
    r"<<title>>|double angular": lambda r: re.search(r"<<[^<>\n]{1,200}>>", r) is not None,
    r"double quotation": lambda r: r.strip().startswith('"') and r.strip().endswith('"'),
    r"p\.s\.": lambda r: "p.s" in r.lower(),
    r"\*{6}": lambda r: r.count("******") == 1,
}


def passed(prompt: str, response: str) -> Iterator[bool]:
    """Yield for each instruction that a pattern finds in a prompt whether a response follows it."""
    text = prompt[:_MAX_PROMPT_CHARS].lower()
    for relation, number, more, noun in _COUNTED.findall(text):
        yield _RELATIONS["or more" if more else relation](_MEASURES[noun](response), int(number))
    for pattern, is_met in _FORMS.items():
        if re.search(pattern, text):
            yield is_met(response)
    for before, word in _QUOTED.findall(text):
        is_forbidden = re.search(r"not |avoid|without|never|don't|forbidden", before) is not None
        if is_forbidden or re.search(r"include|word|mention|contain|use|say", before):
            yield (word in response.lower()) is not is_forbidden


def pattern_credit(item: MeasuredItem) -> float:
    """Return the credit of the patterns on an item."""
    return _credit(item, [list(passed(item.prompt, response)) for response in item.responses])


def asked_credit(item: MeasuredItem) -> float | None:
    """Return the credit of the checks that the prompt asks for; None if they are not known."""
    if item.asked is None:
        return None
    expressions = [check.expression for check in item.asked]
    return _credit(item, [[holds(one, text, prompt=item.prompt) for one in expressions] for text in item.responses])


def _credit(item: MeasuredItem, found: Sequence[Sequence[bool]]) -> float:
    """Return the credit for the checks that each response passes: the one that passes most is best; equal ones share."""
    if len(found) == 1:
        return float(all(found[0]) is bool(item.right))
    sums = [sum(one) for one in found]
    top = {place for place, value in enumerate(sums) if value == max(sums)}
    return len(top & item.right) / len(top)

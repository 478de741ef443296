"""Word problems, for prompts without a check.

A judge of this size does not solve them: in an attempt with the formulas as checks, most of its programs for a held-out
writer's problems were wrong, and their probability did not tell which. So it learns to write none.

A line of a writer's `problems.txt` is `FORMULA ; RANGES | TEXT`, such as
`n * m + k ; n=3..12, m=6..30, k=0.5..4/0.5 | {A} stacks {n} crates ...`, or `none | TEXT` for a problem without a formula.
The formula decides which numbers are drawn: its result is above zero and short. Slots of one small letter are numbers,
except `{x}` and `{y}`, which are things in the plural. `{A}` to `{C}` are first names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from random import Random

from tirjudge_training.instructions.number_words import number_word
from tirjudge_training.instructions.written import WRITERS, lines_of, normalized

TRAINING_PROBLEM_WRITERS = ("rex", "sol", "tia", "wim")
HELD_OUT_PROBLEM_WRITERS = ("uli",)
"""Writer whose problems are for evaluation only."""

_SLOT = re.compile(r"\{(\w)\}")
_RANGE = re.compile(r"(\w)=(\d+(?:\.\d+)?)\.\.(\d+(?:\.\d+)?)(?:/(\d+(?:\.\d+)?))?")
_LETTER = re.compile(r"\b[a-z]\b")
_FORMULA = re.compile(r"(?:\b[a-z]\b|\d+(?:\.\d+)?|[-+*/() ])+")

MAX_DRAWS = 400
"""Draws of the numbers of a problem, at most this many for a whole result."""

CLOSINGS = (
    "Give the number only.",
    "Do not skip a step.",
    "Explain how you got there and write the result on the last line.",
    "Put the final number in \\boxed{}.",
    "End with #### and the number.",
    "Show your work, please.",
    "Just the result, no explanation.",
    "Finish with: The answer is ...",
)
"""Sentences after a problem."""

_NAMES = (
    "Abel", "Bianca", "Cyrus", "Dora", "Emil", "Fatima", "Gina", "Harun", "Ilse", "Jonah", "Keiko", "Lars", "Mona", "Nils",
    "Olga", "Pablo", "Quentin", "Rania", "Stefan", "Thea", "Umar", "Viola", "Wendell", "Xenia", "Yara", "Zoltan", "Amy",
    "Brian", "Carlos", "Denise", "Eric", "Fiona", "George", "Hannah", "Isaac", "Julia", "Kevin", "Laura", "Marcus", "Nora",
    "Oscar", "Paula", "Ralph", "Susan", "Tony", "Victor", "Wanda", "Mr. Brandt", "Mrs. Okafor", "Dr. Lindqvist", "Grandpa",
)  # fmt: skip
_THINGS = (
    "apples", "badges", "beads", "bolts", "books", "bottles", "boxes", "bricks", "brushes", "buttons", "candles", "cards",
    "chairs", "coins", "cookies", "cups", "cushions", "doughnuts", "eggs", "envelopes", "feathers", "flags", "folders",
    "forks", "hats", "jars", "keys", "kites", "lamps", "leaflets", "lemons", "magnets", "marbles", "mugs", "mushrooms",
    "napkins", "needles", "oranges", "pebbles", "pencils", "photos", "pins", "plates", "postcards", "potatoes", "ribbons",
    "rolls", "roses", "sandwiches", "screws", "seeds", "shells", "shirts", "socks", "spoons", "stamps", "stickers", "stones",
    "tickets", "tiles", "tomatoes", "toys", "trees", "tulips", "umbrellas", "walnuts",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class WordProblem:
    """One line of a writer."""

    formula: str | None
    """Python expression over the number slots for the answer; None: the text has none."""
    numbers: Mapping[str, Sequence[Fraction]]
    """Number slot -> its values."""
    text: str


@cache
def word_problems(writers: tuple[str, ...]) -> tuple[WordProblem, ...]:
    """Return the problems of some of this package's writers. Held-out problems that a training writer also wrote are left
    out.

    Raises:
        ValueError: a line is not valid.
    """
    lines = (line for name in writers for line in lines_of(WRITERS / name / "problems.txt"))
    problems = tuple(map(_problem, lines))
    if not set(writers) <= set(HELD_OUT_PROBLEM_WRITERS):
        return problems
    known = {normalized(one.text) for one in word_problems(TRAINING_PROBLEM_WRITERS)}
    return tuple(one for one in problems if normalized(one.text) not in known)


def _problem(line: str) -> WordProblem:
    head, _, text = line.partition(" | ")
    text = text.replace("\\n", "\n")
    shown = {slot for slot in _SLOT.findall(text) if slot.islower() and slot not in "xy"}
    if head == "none" and text:
        values = [Fraction(each) for each in range(2, 61)]
        return WordProblem(formula=None, numbers=dict.fromkeys(sorted(shown), values), text=text)
    formula, _, ranges = head.partition(" ; ")
    numbers: dict[str, Sequence[Fraction]] = {}
    for part in ranges.split(","):
        found = _RANGE.fullmatch(part.strip())
        if found is None:
            raise ValueError(f"writers: {part.strip()!r} given in {line!r}; a range is n=2..30 or n=0.5..4/0.25")
        low, high, step = Fraction(found[2]), Fraction(found[3]), Fraction(found[4] or 1)
        numbers[found[1]] = [low + step * each for each in range(int((high - low) / step) + 1)]
    if (
        not text
        or _FORMULA.fullmatch(formula) is None
        or not set(_LETTER.findall(formula)) <= shown
        or shown != set(numbers)
    ):
        raise ValueError(
            f"writers: {line!r} given; each number slot has a range, and the formula has slots of the text"
        )
    return WordProblem(formula=formula.strip(), numbers=numbers, text=text)


def draw_word_problem(rng: Random) -> str:
    """Draw a problem for training, sometimes with a sentence about the form of its answer."""
    text = filled_problem(rng.choice(word_problems(TRAINING_PROBLEM_WRITERS)), rng=rng)
    if rng.random() < 0.2:
        text = f"{text}{rng.choice((' ', chr(10), chr(10) * 2))}{rng.choice(CLOSINGS)}"
    return text


def filled_problem(problem: WordProblem, *, rng: Random) -> str:
    """Return a problem with drawn numbers, names and things.

    Raises:
        ValueError: no numbers of its ranges have a result above zero with at most two decimals.
    """
    values = _numbers(problem, rng=rng)
    texts = dict(zip("ABC", rng.sample(_NAMES, 3), strict=True)) | dict(zip("xy", rng.sample(_THINGS, 2), strict=True))

    def shown(found: re.Match[str]) -> str:
        slot, around = found[1], (problem.text[: found.start()][-1:], problem.text[found.end() :][:1])
        if slot in texts:
            return texts[slot]
        is_word = around[0] in ("", " ") and around[1] in ("", " ", ".", ",", "?", "-")
        return _shown(values[slot], is_word=is_word, rng=rng)

    return _SLOT.sub(shown, problem.text)


def _numbers(problem: WordProblem, *, rng: Random) -> dict[str, Fraction]:
    """Draw the numbers of a problem. The result is whole if the numbers are and such a result is found."""
    for draw in range(MAX_DRAWS):
        values = {slot: rng.choice(choices) for slot, choices in problem.numbers.items()}
        if problem.formula is None:
            return values
        answer = result(problem.formula, values)
        decimals = 1 if draw < MAX_DRAWS / 2 and all(each.denominator == 1 for each in values.values()) else 100
        if answer is not None and answer > 0 and (answer * decimals).denominator == 1:
            return values
    raise ValueError(f"writers: {problem.formula} has no result above zero with at most two decimals")


def result(formula: str, values: Mapping[str, Fraction]) -> Fraction | None:
    """Return the value of a formula; None if it divides by zero."""
    exact = re.sub(r"\d+(?:\.\d+)?", lambda found: f"Fraction('{found[0]}')", formula)
    try:
        return Fraction(eval(exact, {"Fraction": Fraction}, dict(values)))  # noqa: S307 (own formula)
    except ZeroDivisionError:
        return None


def _shown(value: Fraction, *, is_word: bool, rng: Random) -> str:
    """Return a number as a text has it: in words, with a separator of thousands, or with two decimals."""
    if value.denominator != 1:
        return f"{float(value):.2f}"
    whole = value.numerator
    if is_word and 1 < whole <= 20 and rng.random() < 0.25:
        return number_word(whole)
    return f"{whole:,}" if whole >= 1000 and rng.random() < 0.5 else str(whole)

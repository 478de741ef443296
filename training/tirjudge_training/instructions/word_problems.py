"""Everyday calculations, with their calculation as the check, and word problems of several steps, without a check.

A judge of this size does not solve problems of several steps: in an attempt with the formulas as checks, most of its programs
for a held-out writer's problems were wrong, and their probability did not tell which. So it learns to write none.

A line of a writer's `calculations.txt` or `problems.txt` is `FORMULA ; RANGES | TEXT`, such as
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
from tirjudge_training.instructions.tool_prompts import PromptWithChecks
from tirjudge_training.instructions.written import WRITERS, lines_of, normalized

TRAINING_PROBLEM_WRITERS = (
    "amy", "ana", "bea", "ben", "bix", "cal", "cid", "cora", "dan", "dina", "eli", "eva", "flo", "gil", "gro", "hal",
    "ida", "jude", "kai", "kate", "moe", "nia", "noa", "ola", "rex", "sol", "tia", "tom", "wim",
)  # fmt: skip
HELD_OUT_PROBLEM_WRITERS = ("uli",)
"""Writer whose calculations and problems are for evaluation only."""
ANSWERED_CALCULATION_WRITER = "emil"
"""Writer of calculations with a right and a wrong answer, for evaluation only."""
CALCULATIONS, PROBLEMS = "calculations.txt", "problems.txt"

_SLOT = re.compile(r"\{(\w)\}")
_RANGE = re.compile(r"(\w)=(\d+(?:\.\d+)?)\.\.(\d+(?:\.\d+)?)(?:/(\d+(?:\.\d+)?))?")
_LETTER = re.compile(r"\b[a-z]\b")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_FORMULA = re.compile(r"(?:\b[a-z]\b|\d+(?:\.\d+)?|[-+*/%() ])+")

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
def word_problems(writers: tuple[str, ...], file: str = PROBLEMS) -> tuple[WordProblem, ...]:
    """Return the calculations or the problems of some of this package's writers. Held-out ones that a training writer also
    wrote are left out.

    Raises:
        ValueError: a line is not valid.
    """
    lines = (line for name in writers for line in lines_of(WRITERS / name / file))
    problems = tuple(map(_problem, lines))
    if not set(writers) <= set(HELD_OUT_PROBLEM_WRITERS):
        return problems
    known = {normalized(one.text) for one in word_problems(TRAINING_PROBLEM_WRITERS, file)}
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
    return _closed(filled_problem(rng.choice(word_problems(TRAINING_PROBLEM_WRITERS)), rng=rng)[0], rng=rng)


def draw_calculation(rng: Random) -> PromptWithChecks:
    """Draw a calculation for training, sometimes with a sentence about the form of its answer, and its check."""
    kind = rng.random()
    if kind < 0.2:
        text, calculation = _bare_calculation(rng)
    else:
        problem = rng.choice(word_problems(TRAINING_PROBLEM_WRITERS, CALCULATIONS))
        text, calculation = filled_problem(problem, rng=rng)
    return _closed(with_noise(text, rng=rng), rng=rng), (f'answer(r, "{calculation}")',)


def _closed(text: str, *, rng: Random) -> str:
    return f"{text}{rng.choice((' ', chr(10), chr(10) * 2))}{rng.choice(CLOSINGS)}" if rng.random() < 0.2 else text


def filled_problem(problem: WordProblem, *, rng: Random) -> tuple[str, str | None]:
    """Return a problem with drawn numbers, names and things, and its formula with the numbers.

    Raises:
        ValueError: no numbers of its ranges have a result above zero with at most two decimals.
    """
    values = _numbers(problem, rng=rng)
    cents = "$" in problem.text or "€" in problem.text or "£" in problem.text or rng.random() < 0.3
    literals = {slot: _literal(value, cents=cents) for slot, value in values.items()}
    texts = dict(zip("ABC", rng.sample(_NAMES, 3), strict=True)) | dict(zip("xy", rng.sample(_THINGS, 2), strict=True))

    def shown(found: re.Match[str]) -> str:
        slot, around = found[1], (problem.text[: found.start()][-1:], problem.text[found.end() :][:1])
        if slot in texts:
            return texts[slot]
        is_word = around[0] in ("", " ") and around[1] in ("", " ", ".", ",", "?", "-")
        return _shown(literals[slot], is_word=is_word, rng=rng)

    formula = problem.formula and _LETTER.sub(lambda found: literals[found[0]], problem.formula)
    return _SLOT.sub(shown, problem.text), formula


_OPERATIONS = {
    "+": (" + ", "+", " plus ", " and then add "),
    "-": (" - ", "-", " minus ", " − "),
    "*": (" * ", "*", "x", " x ", " × ", "×", " times ", " multiplied by ", "·"),
    "/": (" / ", "/", " ÷ ", "÷", ":", " divided by ", " over "),
}
"""Operator -> how people write it."""
QUESTIONS = (
    "{}", "{}", "{} = ?", "{}=", "{} = ", "{}?", "what is {}?", "what's {}", "Whats {} ?", "calc {}", "{} equals?",
    "how much is {}", "how much is {}?", "Please calculate {}", "solve {}", "Can you tell me what {} is?", "result of {}",
    "{} pls", "{} = ??", "Evaluate {}", "Hi, what does {} come to?", "I need {}.", "Compute {}.", "what does {} make",
    "{} gives what?",
)  # fmt: skip
"""Questions about a bare calculation."""


def _bare_calculation(rng: Random) -> tuple[str, str]:
    """Draw an expression of two or three numbers in a usual notation. Return the question and the calculation."""
    while True:
        operators = [rng.choice("++--***//") for _ in range(1 if rng.random() < 0.75 else 2)]
        parts = [str(rng.randint(2, rng.choice((12, 100, 1000, 10_000)))) for _ in (*operators, "")]
        if rng.random() < 0.15:
            parts[0] = f"{rng.randint(0, 99)}.{rng.randint(1, 99)}"
        pieces = [parts[0], *(each for pair in zip(operators, parts[1:], strict=True) for each in pair)]
        if len(operators) == 2 and rng.random() < 0.5:
            place = rng.choice((0, 2))
            pieces[place], pieces[place + 2] = f"({pieces[place]}", f"{pieces[place + 2]})"
        value = result(" ".join(pieces), {})
        if value is not None and value > 0 and (value * 100).denominator == 1:
            break
    signs = {each: rng.choice(_OPERATIONS[each]) for each in operators}
    shown = "".join(
        signs[piece] if piece in signs else _NUMBER.sub(lambda found: _shown(found[0], is_word=False, rng=rng), piece)
        for piece in pieces
    )
    return rng.choice(QUESTIONS).format(shown), " ".join(pieces)


def with_noise(text: str, *, rng: Random) -> str:
    """Return a text with the small letters, missing marks and mistakes in typing of hasty people, sometimes."""
    if rng.random() < 0.15:
        text = text.lower()
    if rng.random() < 0.15:
        text = text.rstrip("?.! ")
    words = text.split(" ")
    numbers = set(map(number_word, range(21)))
    plain = [
        place for place, word in enumerate(words) if len(word) > 4 and word.isalpha() and word.lower() not in numbers
    ]
    if plain and rng.random() < 0.12:
        place = rng.choice(plain)
        word, at = words[place], rng.randrange(1, len(words[place]) - 1)
        words[place] = word[:at] + rng.choice((word[at + 1] + word[at] + word[at + 2 :], word[at + 1 :]))
    return " ".join(words)


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
    exact = _NUMBER.sub(lambda found: f"Fraction('{found[0]}')", formula)
    try:
        return Fraction(eval(exact, {"Fraction": Fraction}, dict(values)))  # noqa: S307 (own formula)
    except ZeroDivisionError:
        return None


def _literal(value: Fraction, *, cents: bool) -> str:
    """Return a number as digits, if it is not whole with two decimals or as few as it has."""
    if value.denominator == 1:
        return str(value.numerator)
    return f"{float(value):.2f}" if cents else str(float(value))


def _shown(literal: str, *, is_word: bool, rng: Random) -> str:
    """Return a number as a text has it: in words, with a separator of thousands, or with a decimal comma."""
    if "." in literal:
        return literal.replace(".", ",") if rng.random() < 0.12 else literal
    whole = int(literal)
    if is_word and 1 < whole <= 20 and rng.random() < 0.25:
        return number_word(whole)
    return f"{whole:,}".replace(",", rng.choice(("", "", "", ",", ",", " ")))

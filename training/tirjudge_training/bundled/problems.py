"""Problems of mathematics, contests, puzzles and exams.

The samples of contests are tests of a response with code. No program of the judge can check an answer to the others, so the
judge learns from them to write none. Their sentences are in `problems.toml`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from random import Random

from tirjudge_training.instructions.passages import draw_passage

_CHOICE = re.compile(r"\(([^()|]*(?:\|[^()|]*)+)\)")
_SLOT = re.compile(r"\{(n|big|x|poly|matrix|frac|set|name|thing|place|say|clue)\}")


@cache
def problem_texts() -> Mapping[str, Sequence[str]]:
    """Return the sentences of all problems by part, as they are written."""
    text = resources.files("tirjudge_training.bundled").joinpath("problems.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@dataclass(frozen=True, slots=True)
class DrawnProblem:
    """A drawn problem."""

    text: str
    shows_samples: bool
    """Whether it is one of a contest, which shows samples of input and output."""


def draw_problem(rng: Random) -> DrawnProblem:
    """Draw a problem of one of the four kinds, with its closing sentence."""
    kind = rng.choice(("mathematics", "contest", "puzzle", "exam", "exam"))
    texts = problem_texts()
    parts = [_filled(rng.choice(texts[kind]), rng=rng)]
    if kind in {"exam", "mathematics"} and rng.random() < 0.15:
        parts.insert(0, draw_passage(rng)[:900])
    if kind == "exam" or rng.random() < 0.1:
        parts.append(_options(rng))
    if kind == "contest":
        parts += _samples(rng)
    parts.append(_filled(rng.choice(texts[f"{kind}_closing"]), rng=rng))
    if kind == "contest" and rng.random() < 0.3:
        parts.reverse()
    text = rng.choice(("\n", "\n\n", " ")).join(part for part in parts if part).strip()
    return DrawnProblem(text, kind == "contest")


def _filled(text: str, *, rng: Random) -> str:
    """Fill the choices and slots of a text."""
    while _CHOICE.search(text):
        text = _CHOICE.sub(lambda match: rng.choice(match[1].split("|")), text)
    variable = rng.choice("xyztnk")

    def value(match: re.Match[str]) -> str:
        slot = match[1]
        if slot in {"name", "thing", "place", "say", "clue"}:
            return _filled(rng.choice(problem_texts()[slot]), rng=rng)
        return variable if slot == "x" else _NUMBERS[slot](rng, variable)

    return _SLOT.sub(value, text)


def _number(rng: Random, _: str) -> str:
    return str(rng.randint(2, 40))


def _big(rng: Random, _: str) -> str:
    return str(rng.randint(100, 9999))


def _polynomial(rng: Random, variable: str) -> str:
    terms = [
        f"{rng.randint(2, 12)}{variable}^{rng.randint(2, 5)}",
        f"{rng.randint(2, 30)}{variable}",
        str(rng.randint(1, 99)),
    ]
    return rng.choice((" + ", " - ")).join(terms[rng.randint(0, 1) :])


def _matrix(rng: Random, _: str) -> str:
    size = rng.randint(2, 4)
    rows = (" & ".join(str(rng.randint(-9, 9)) for _ in range(size)) for _ in range(size))
    end = rng.choice((r" \\ ", "\\\\\n"))
    return rf"$M = \begin{{pmatrix}} {end.join(rows)} \end{{pmatrix}}$"


def _fraction(rng: Random, _: str) -> str:
    top, bottom = rng.randint(1, 30), rng.randint(2, 60)
    return rng.choice((f"{top}/{bottom}", rf"\frac{{{top}}}{{{bottom}}}", f"0.{top}"))


def _set(rng: Random, _: str) -> str:
    return rf"\{{{', '.join(str(rng.randint(1, 99)) for _ in range(rng.randint(3, 9)))}\}}"


_NUMBERS = {"n": _number, "big": _big, "poly": _polynomial, "matrix": _matrix, "frac": _fraction, "set": _set}


def _options(rng: Random) -> str:
    """Draw lettered options, each on its own line or all on one line."""
    mark = rng.choice(("({})", "{})", "{}.", "{}:"))
    letters = "ABCDEFGHIJ"[: rng.choice((3, 4, 4, 5, 10, 10))]
    texts = problem_texts()["options"]
    same = rng.choice([text for text in texts if "{" in text]) if rng.random() < 0.5 else None
    lines = [f"{mark.format(letter)} {_filled(same or rng.choice(texts), rng=rng)}" for letter in letters]
    return rng.choice(("\n", "\n", " ")).join(lines)


def _samples(rng: Random) -> list[str]:
    """Draw samples of input and output, and the limits of a contest."""
    named = rng.random() < 0.4
    parts = []
    for number in range(1, rng.randint(2, 4)):
        if named:
            values = [rng.randint(0, 99) for _ in range(rng.randint(3, 12))]
            parts.append(f"Example {number}:\nInput: nums = {values}\nOutput: {rng.randint(0, 99)}")
            continue
        rows = "\n".join(
            " ".join(str(rng.randint(0, 10 ** rng.randint(1, 9))) for _ in range(rng.randint(1, 6)))
            for _ in range(rng.randint(1, 6))
        )
        parts.append(f"Sample Input {number}\n\n{rows}\n\nSample Output {number}\n\n{rng.randint(0, 10**6)}")
    limit = rng.choice(
        (r"1 \leq N \leq 10^5", "1 <= nums.length <= 1000", "2 ≤ n ≤ 200000", "All values are integers.")
    )
    if rng.random() < 0.6:
        parts.insert(rng.choice((0, len(parts))), f"{rng.choice(('Constraints', 'Limits'))}:\n{limit}")
    return parts

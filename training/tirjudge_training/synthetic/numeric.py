"""Questions with one numeric answer that a Python expression computes from the numbers in the question."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from tirjudge_training.synthetic import phrasings
from tirjudge_training.synthetic.phrasings import Phrasings
from tirjudge_training.synthetic.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class NumericKind:
    """One kind of question."""

    name: str
    code: str
    """Expression for the answer. `n0`, `n1`, ... are the numbers of the question in order; `N` is the list of all
    numbers."""
    answer: Callable[[Sequence[int]], float]
    draw: Callable[[Random], tuple[int, ...]]

    @property
    def questions(self) -> Phrasings:
        """Question templates: {0}, {1}, ... are the numbers, {name} is a person, {noun} a thing."""
        return phrasings.NUMERIC[self.name]


def _ints(*spans: tuple[int, int]) -> Callable[[Random], tuple[int, ...]]:
    return lambda rng: tuple(rng.randint(low, high) for low, high in spans)


NUMERIC: tuple[NumericKind, ...] = (
    NumericKind("sum", "n0 + n1", lambda n: n[0] + n[1], _ints((13, 999), (13, 999))),
    NumericKind("difference", "n0 - n1", lambda n: n[0] - n[1], lambda rng: (lambda a, b: (a + b, b))(rng.randint(13, 600), rng.randint(13, 400))),
    NumericKind("product", "n0 * n1", lambda n: n[0] * n[1], _ints((13, 99), (3, 99))),
    NumericKind("expression", "n0 * n1 + n2", lambda n: n[0] * n[1] + n[2], _ints((3, 40), (3, 40), (13, 200))),
    NumericKind("remainder", "n0 % n1", lambda n: n[0] % n[1], _ints((50, 999), (13, 49))),
    NumericKind("percentage", "n0 * n1 / 100", lambda n: n[0] * n[1] / 100, lambda rng: (rng.choice((5, 15, 20, 25, 30, 40, 60, 75)), rng.randint(2, 60) * 20)),
    NumericKind("largest", "max(N)", max, _ints((13, 999), (13, 999), (13, 999), (13, 999))),
    NumericKind("list sum", "sum(N)", sum, _ints((13, 200), (13, 200), (13, 200), (13, 200))),
    NumericKind("average", "sum(N) / len(N)", lambda n: sum(n) / len(n), lambda rng: (lambda n: (*n, (-sum(n)) % 4 + 4 * rng.randint(4, 40)))(tuple(rng.randint(13, 160) for _ in range(3)))),
    NumericKind("gcd", "math.gcd(n0, n1)", lambda n: math.gcd(*map(int, n)), lambda rng: (lambda g: (g * rng.randint(2, 12), g * rng.randint(2, 12)))(rng.randint(7, 30))),
)  # fmt: skip


def shown_number(value: float) -> str:
    """Return the number as text: an integer without decimals, otherwise at most two decimals."""
    return str(int(value)) if float(value).is_integer() else f"{value:.2f}".rstrip("0")


def wrong_answer(right: float, *, rng: Random) -> float:
    """Return a wrong answer close to the correct one."""
    slip = rng.choice((1, -1, 2, -2, 10, -10, 5, 100, 0.5)) if right > 20 else rng.choice((1, 2, 3, 0.5))
    return right + slip


def explained(value: float, *, rng: Random, vocabulary: Vocabulary) -> str:
    """Return a response to a numeric question. Its last number is `value`."""
    number = shown_number(value)
    return rng.choice(
        (
            f"The answer is {number}.", f"{number}", f"It comes to {number}.", f"We work it out step by step and get {number}.",
            f"Adding it all together carefully gives us a result. The final answer is {number}.", f"Answer: {number}",
            f"Let us see: first we write down what is given and then we compute. That makes {number}.", f"I get {number}.",
        )
    )  # fmt: skip

"""Questions with one numeric answer that a line of Python computes from the numbers in the question."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from tirjudge_training.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class NumericKind:
    """One kind of question."""

    name: str
    questions: tuple[str, ...]
    """With {0}, {1}, ... for the numbers, {name} for a person, {noun} for things."""
    held_out: tuple[str, ...]
    code: str
    """An expression for the answer over `n0`, `n1`, ...: the question's first, second, ... number. `N` is all of them."""
    answer: Callable[[Sequence[int]], float]
    draw: Callable[[Random], tuple[int, ...]]


def _ints(*spans: tuple[int, int]) -> Callable[[Random], tuple[int, ...]]:
    return lambda rng: tuple(rng.randint(low, high) for low, high in spans)


NUMERIC: tuple[NumericKind, ...] = (
    NumericKind(
        name="sum",
        questions=("What is {0} + {1}?", "Add {0} and {1}.", "Calculate {0} plus {1}.", "What is the sum of {0} and {1}?", "How much is {0} + {1}?",
                   "{name} has {0} {noun}s and buys {1} more. How many {noun}s does {name} have now?", "There are {0} {noun}s on the left and {1} on the right. How many are there in all?",
                   "{name} found {0} {noun}s on Monday and {1} on Tuesday. What is the total?", "Compute the total of {0} and {1}.", "A shop sold {0} {noun}s, then {1} more. How many were sold altogether?"),
        held_out=("What do you get when you add {0} and {1}?", "{name} owns {0} {noun}s and gets {1} more. How many in total?", "Find the sum of {0} and {1}."),
        code="n0 + n1", answer=lambda n: n[0] + n[1], draw=_ints((13, 999), (13, 999)),
    ),
    NumericKind(
        name="difference",
        questions=("What is {0} - {1}?", "Subtract: {0} minus {1}.", "Calculate {0} minus {1}.", "What is the difference between {0} and {1}?", "How much is {0} - {1}?",
                   "{name} has {0} {noun}s and gives away {1}. How many {noun}s are left?", "There were {0} {noun}s and {1} were lost. How many remain?",
                   "A box held {0} {noun}s. {name} took out {1}. How many are still there?", "From {0} take away {1}.", "{name} had {0} {noun}s but sold {1} of them. How many are left over?"),
        held_out=("What is left of {0} after {1} is taken away?", "{name} owned {0} {noun}s and lost {1}. How many remain?", "Compute {0} minus {1}."),
        code="n0 - n1", answer=lambda n: n[0] - n[1], draw=lambda rng: (lambda a, b: (a + b, b))(rng.randint(13, 600), rng.randint(13, 400)),
    ),
    NumericKind(
        name="product",
        questions=("What is {0} * {1}?", "Multiply {0} by {1}.", "Calculate {0} times {1}.", "What is the product of {0} and {1}?", "How much is {0} x {1}?",
                   "{name} buys {0} boxes with {1} {noun}s each. How many {noun}s are there?", "There are {0} rows of {1} {noun}s. How many {noun}s in all?",
                   "Each of {0} people has {1} {noun}s. How many {noun}s do they have together?", "A {noun} costs {0} dollars. How much do {1} of them cost?", "What is the area of a rectangle of {0} by {1} meters?"),
        held_out=("What do you get when you multiply {0} by {1}?", "{name} fills {0} bags with {1} {noun}s each. How many {noun}s is that?", "Find the product of {0} and {1}."),
        code="n0 * n1", answer=lambda n: n[0] * n[1], draw=_ints((13, 99), (3, 99)),
    ),
    NumericKind(
        name="expression",
        questions=("What is {0} * {1} + {2}?", "Calculate {0} times {1} plus {2}.", "Compute {0} x {1} + {2}.", "{name} buys {0} boxes with {1} {noun}s each and finds {2} more. How many {noun}s in all?",
                   "Multiply {0} by {1} and add {2}.", "There are {0} rows of {1} {noun}s and {2} single ones. How many are there?", "A ticket costs {0} dollars. {name} buys {1} and pays a fee of {2}. What is the total?",
                   "Evaluate {0} * {1} + {2}.", "How much is {0} times {1}, plus {2}?", "Work out {0} * {1} + {2}."),
        held_out=("What do you get for {0} * {1} + {2}?", "{name} fills {0} bags with {1} {noun}s and has {2} more. How many {noun}s in total?", "Multiply {0} by {1}, then add {2}."),
        code="n0 * n1 + n2", answer=lambda n: n[0] * n[1] + n[2], draw=_ints((3, 40), (3, 40), (13, 200)),
    ),
    NumericKind(
        name="remainder",
        questions=("What is the remainder when {0} is divided by {1}?", "What is {0} mod {1}?", "Divide {0} by {1}. What remainder is left?", "Compute {0} modulo {1}.",
                   "{name} puts {0} {noun}s into bags of {1}. How many {noun}s are left over?", "What is left over when {0} is split into groups of {1}?", "Find {0} mod {1}.", "Calculate the remainder of {0} divided by {1}.",
                   "What remains after dividing {0} by {1}?", "Give the remainder of {0} / {1}."),
        held_out=("Find the remainder when {0} is divided by {1}.", "What remainder does {0} leave when divided by {1}?", "Calculate {0} modulo {1}."),
        code="n0 % n1", answer=lambda n: n[0] % n[1], draw=_ints((50, 999), (13, 49)),
    ),
    NumericKind(
        name="percentage",
        questions=("What is {0}% of {1}?", "Calculate {0} percent of {1}.", "How much is {0}% of {1}?", "Find {0} percent of {1}.", "{0}% of the {1} {noun}s are red. How many are red?",
                   "Out of a sum of money, {name} pays {0}% tax on {1} dollars. How much is the tax?", "Compute {0}% of {1}.", "{name} saves {0} percent of {1} dollars. How much is saved?",
                   "A class ate {0} percent of {1} {noun}s. How many were eaten?", "Give me {0} percent of {1}."),
        held_out=("Work out {0}% of {1}.", "What number is {0} percent of {1}?", "{name} spends {0}% of {1} dollars. How much is that?"),
        code="n0 * n1 / 100", answer=lambda n: n[0] * n[1] / 100, draw=lambda rng: (rng.choice((5, 15, 20, 25, 30, 40, 60, 75)), rng.randint(2, 60) * 20),
    ),
    NumericKind(
        name="largest",
        questions=("What is the largest of {0}, {1}, {2} and {3}?", "Which number is the biggest: {0}, {1}, {2}, {3}?", "Find the maximum of {0}, {1}, {2}, {3}.", "Give the greatest of these numbers: {0}, {1}, {2}, {3}.",
                   "What is the maximum of {0}, {1}, {2} and {3}?", "Name the largest number among {0}, {1}, {2}, {3}.", "Which is the greatest: {0}, {1}, {2} or {3}?", "Pick the highest value from {0}, {1}, {2}, {3}.",
                   "Of {0}, {1}, {2} and {3}, which is the largest?", "Tell me the biggest of {0}, {1}, {2}, {3}."),
        held_out=("Which of {0}, {1}, {2} and {3} is the largest number?", "Find the biggest of these: {0}, {1}, {2}, {3}.", "What is the greatest among {0}, {1}, {2}, {3}?"),
        code="max(N)", answer=max, draw=_ints((13, 999), (13, 999), (13, 999), (13, 999)),
    ),
    NumericKind(
        name="list sum",
        questions=("What is the sum of {0}, {1}, {2} and {3}?", "Add up {0}, {1}, {2}, {3}.", "Sum these numbers: {0}, {1}, {2}, {3}.", "Compute the total of {0}, {1}, {2} and {3}.", "What do {0}, {1}, {2} and {3} add up to?",
                   "{name} spent {0}, {1}, {2} and {3} dollars. How much is that altogether?", "Give the sum of {0}, {1}, {2}, {3}.", "Calculate {0} + {1} + {2} + {3}.", "The rooms hold {0}, {1}, {2} and {3} {noun}s. How many are there in all?",
                   "Find the total: {0}, {1}, {2}, {3}."),
        held_out=("Please add up the numbers {0}, {1}, {2} and {3}.", "What is the total of {0}, {1}, {2}, {3}?", "Find {0} + {1} + {2} + {3}."),
        code="sum(N)", answer=sum, draw=_ints((13, 200), (13, 200), (13, 200), (13, 200)),
    ),
    NumericKind(
        name="average",
        questions=("What is the average of {0}, {1}, {2} and {3}?", "Find the mean of {0}, {1}, {2}, {3}.", "Compute the average of these numbers: {0}, {1}, {2}, {3}.", "Calculate the mean of {0}, {1}, {2} and {3}.",
                   "{name} scored {0}, {1}, {2} and {3}. What is the average score?", "What is the mean of {0}, {1}, {2}, {3}?", "Give the average of {0}, {1}, {2}, {3}.", "The days had {0}, {1}, {2} and {3} visitors. How many on average?",
                   "On average, how much is {0}, {1}, {2} and {3}?", "Tell me the mean value of {0}, {1}, {2}, {3}."),
        held_out=("Work out the average of {0}, {1}, {2} and {3}.", "What mean do {0}, {1}, {2} and {3} have?", "Calculate the average of {0}, {1}, {2}, {3}."),
        code="sum(N) / len(N)", answer=lambda n: sum(n) / len(n),
        draw=lambda rng: (lambda n: (*n, (-sum(n)) % 4 + 4 * rng.randint(4, 40)))(tuple(rng.randint(13, 160) for _ in range(3))),
    ),
    NumericKind(
        name="gcd",
        questions=("What is the greatest common divisor of {0} and {1}?", "Find the gcd of {0} and {1}.", "Compute the greatest common divisor of {0} and {1}.", "What is gcd({0}, {1})?", "Which is the largest number that divides both {0} and {1}?",
                   "Calculate the gcd of {0} and {1}.", "Give the greatest common factor of {0} and {1}.", "What is the highest common factor of {0} and {1}?", "Find the largest common divisor of {0} and {1}.",
                   "{name} wants equal groups of {0} and {1} {noun}s. What is their greatest common divisor?"),
        held_out=("Work out the gcd of {0} and {1}.", "What is the greatest common factor of {0} and {1}?", "Find the highest common divisor of {0} and {1}."),
        code="math.gcd(n0, n1)", answer=lambda n: math.gcd(*map(int, n)), draw=lambda rng: (lambda g: (g * rng.randint(2, 12), g * rng.randint(2, 12)))(rng.randint(7, 30)),
    ),
)  # fmt: skip


def shown_number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else f"{value:.2f}".rstrip("0")


def wrong_answer(right: float, *, rng: Random) -> float:
    """Near the right one, as mistakes are."""
    slip = rng.choice((1, -1, 2, -2, 10, -10, 5, 100, 0.5)) if right > 20 else rng.choice((1, 2, 3, 0.5))
    return right + slip


def explained(value: float, *, rng: Random, vocabulary: Vocabulary) -> str:
    """An answer that ends on its number."""
    number = shown_number(value)
    return rng.choice(
        (
            f"The answer is {number}.", f"{number}", f"It comes to {number}.", f"We work it out step by step and get {number}.",
            f"Adding it all together carefully gives us a result. The final answer is {number}.", f"Answer: {number}",
            f"Let us see: first we write down what is given and then we compute. That makes {number}.", f"I get {number}.",
        )
    )  # fmt: skip

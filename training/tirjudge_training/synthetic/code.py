"""Tasks of code: a function to write, correct and wrong implementations, and the program that tests them.

The prompt shows examples such as `double(3) -> 6`. The judge's program reads them from the prompt and runs each response with
`tests`, in a process of its own. Held-out tasks are other functions than those of training.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tirjudge_training.synthetic.vocabulary import HELD_OUT, Vocabulary

CHECK = "tests(r, t).all_passed"
"""The check of a program: every example of the prompt passes."""

NUM_EXAMPLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeTask:
    """A function to write."""

    does: str
    """What it returns, in words."""
    parameters: str
    """Parameters, such as `a, b`."""
    right: tuple[str, ...]
    """Expressions or bodies that are correct."""
    wrong: tuple[str, ...]
    """Expressions that look correct and are not."""
    draw: Callable[[Random], tuple[Any, ...]]
    """Draws arguments."""
    answer: Callable[..., Any]
    """The correct result."""
    is_held_out: bool = False
    """Whether training never sees the task."""


def _one(low: int, high: int) -> Callable[[Random], tuple[Any, ...]]:
    return lambda rng: (rng.randint(low, high),)


def _two(low: int, high: int) -> Callable[[Random], tuple[Any, ...]]:
    return lambda rng: (rng.randint(low, high), rng.randint(low, high))


def _numbers(rng: Random) -> tuple[Any, ...]:
    return ([rng.randint(-9, 30) for _ in range(rng.randint(3, 6))],)


def _word(rng: Random) -> tuple[Any, ...]:
    return ("".join(rng.choice("abcdeiorstu") for _ in range(rng.randint(4, 8))),)


def _task(
    does: str,
    parameters: str,
    right: Sequence[str],
    wrong: Sequence[str],
    draw: Callable[[Random], tuple[Any, ...]],
    answer: Callable[..., Any],
    *,
    is_held_out: bool = False,
) -> CodeTask:
    return CodeTask(
        does=does,
        parameters=parameters,
        right=tuple(right),
        wrong=tuple(wrong),
        draw=draw,
        answer=answer,
        is_held_out=is_held_out,
    )


TASKS = (
    _task("twice a number", "n", ["2 * n", "n + n"], ["n * n", "n + 2", "n"], _one(3, 40), lambda n: 2 * n),
    _task("the square of a number", "n", ["n * n", "n ** 2"], ["2 * n", "n ** 3", "n"], _one(3, 20), lambda n: n * n),
    _task("the sum of two numbers", "a, b", ["a + b", "sum([a, b])"], ["a - b", "a * b", "a"], _two(3, 50),
          lambda a, b: a + b),
    _task("the larger of two numbers", "a, b", ["max(a, b)", "a if a > b else b"], ["min(a, b)", "a", "a + b"],
          lambda rng: (rng.randint(1, 9), rng.randint(10, 60)), max),
    _task("the sum of a list", "x", ["sum(x)"], ["len(x)", "max(x)", "sum(x[1:])"], _numbers, sum),
    _task("the smallest number of a list", "x", ["min(x)", "sorted(x)[0]"], ["max(x)", "x[0] + 1", "sorted(x)[-1]"],
          _numbers, min),
    _task("a list in rising order", "x", ["sorted(x)"], ["sorted(x)[::-1]", "list(set(x))[:1]", "x + x"], _numbers, sorted),
    _task("a word spelled backwards", "s", ["s[::-1]", '"".join(reversed(s))'], ["s", "s[1:]", "s.upper()"],
          lambda rng: (_word(rng)[0] + "xy",), lambda s: s[::-1]),
    _task("a word in capitals", "s", ["s.upper()"], ["s.lower()", "s.title()", "s"], _word, str.upper),
    _task("how many letters a word has", "s", ["len(s)", "sum(1 for c in s)"], ["len(s) + 1", "len(s) - 1", "1"], _word, len),
    _task("the last digit of a number", "n", ["n % 10", "int(str(n)[-1])"], ["n // 10", "n % 2 + 11", "int(str(n)[0]) + 10"],
          _one(20, 999), lambda n: n % 10),
    _task("whether a number is even", "n", ["n % 2 == 0", "not n % 2"], ["n % 2 == 1", "n > 0 and n % 2 == 1", "n % 2"],
          _one(2, 99), lambda n: n % 2 == 0),
    _task("the remainder of a divided by b", "a, b", ["a % b", "divmod(a, b)[1]"], ["a // b + 50", "a - b - 70", "b + a"],
          lambda rng: (rng.randint(20, 60), rng.randint(3, 9)), lambda a, b: a % b),
    _task("the first three letters of a word", "s", ["s[:3]", "s[0:3]"], ["s[3:] + s", "s[:2]", "s[-3:] + s"], _word,
          lambda s: s[:3]),
    _task("three times a number", "n", ["3 * n", "n + n + n"], ["n ** 3", "n + 3", "2 * n"], _one(3, 40), lambda n: 3 * n,
          is_held_out=True),
    _task("the difference of two numbers", "a, b", ["a - b"], ["b - a", "a + b", "a * b"],
          lambda rng: (rng.randint(30, 60), rng.randint(1, 20)), lambda a, b: a - b, is_held_out=True),
    _task("the largest number of a list", "x", ["max(x)", "sorted(x)[-1]"], ["min(x)", "len(x) - 40", "sum(x) + 99"],
          _numbers, max, is_held_out=True),
    _task("the last letter of a word", "s", ["s[-1]", "s[len(s) - 1]"], ["s[0] + s", "s[-2:]", "s"], _word,
          lambda s: s[-1], is_held_out=True),
    _task("a list without its first number", "x", ["x[1:]", "list(x)[1:]"], ["x[:-1] + x", "x[2:]", "x"], _numbers,
          lambda x: x[1:], is_held_out=True),
    _task("how many vowels a word has", "s", ['sum(c in "aeiou" for c in s)'],
          ["len(s) + 1", 's.count("q") - 1', "0 - len(s)"], _word, lambda s: sum(c in "aeiou" for c in s), is_held_out=True),
)  # fmt: skip

_ASKS = ("Write a Python function {f}({p}) that returns {d}.", "Please write {f}({p}) in Python. It returns {d}.")
_HELD_OUT_ASKS = ("I need a Python function {f}({p}). It should return {d}.",)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedCode:
    """A prompt for code and what is needed to write responses."""

    task: CodeTask
    name: str
    """Name of the function."""
    prompt: str


def ask_code(*, rng: Random, vocabulary: Vocabulary) -> AskedCode:
    """Draw a task and its prompt, with examples that tell correct from wrong implementations."""
    held_out = vocabulary is HELD_OUT
    task = rng.choice([each for each in TASKS if each.is_held_out is held_out])
    name = rng.choice([word for word in vocabulary.nouns if word.isalpha() and word.isascii()]).lower() + "_of"
    while True:
        drawn = [task.draw(rng) for _ in range(NUM_EXAMPLES)]
        if all(_is_told(task, wrong, drawn) for wrong in task.wrong):
            break
    lines = [f"{name}({json.dumps(list(args))[1:-1]}) -> {json.dumps(task.answer(*args))}" for args in drawn]
    asked = rng.choice(_HELD_OUT_ASKS if held_out else _ASKS).format(f=name, p=task.parameters, d=task.does)
    return AskedCode(task=task, name=name, prompt="\n".join([asked, *lines]))


def _is_told(task: CodeTask, wrong: str, drawn: Sequence[tuple[Any, ...]]) -> bool:
    """Whether an example shows that an implementation is wrong."""
    call = eval(f"lambda {task.parameters}: {wrong}")  # noqa: S307 (our own expression)
    return any(type(got := call(*args)) is not type(task.answer(*args)) or got != task.answer(*args) for args in drawn)


def implementation(asked: AskedCode, *, is_right: bool, rng: Random) -> str:
    """Return a response with an implementation: code alone, or in a fenced block with a sentence."""
    body = rng.choice(asked.task.right if is_right else asked.task.wrong)
    code = f"def {asked.name}({asked.task.parameters}):\n    return {body}\n"
    if rng.random() < 0.5:
        return code
    return f"{rng.choice(('Here it is:', 'This function returns it.', 'Code:'))}\n```python\n{code}```"

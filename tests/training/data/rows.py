"""Small made-up rows with the columns of each data set, written as Parquet."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Rows = list[dict[str, Any]]

ANIMALS = ("otter", "heron", "badger", "newt", "stoat", "vole", "lynx", "ibis", "tapir", "gecko")
PLACES = ("harbour", "orchard", "quarry", "library", "meadow", "station", "bakery", "lighthouse", "market", "attic")


def phrase(number: int) -> str:
    """Return a phrase that is different for each number."""
    return f"the {ANIMALS[number % 10]} number {number} near the {PLACES[number // 10 % 10]}"


def helpsteer3(count: int) -> Rows:
    """Return rows of HelpSteer3, whose preferences are -3, -2, -1, 0, 1, 2, 3, repeated."""
    return [
        {
            "domain": "general",
            "language": "english",
            "context": [{"role": "user", "content": f"Tell me about {phrase(n)}."}],
            "response1": f"First words on {phrase(n)}.",
            "response2": f"Second words on {phrase(n)}.",
            "overall_preference": n % 7 - 3,
        }
        for n in range(count)
    ]


def ultrainteract(count: int) -> Rows:
    """Return rows of UltraInteract. Every third row is mathematics."""
    return [
        {
            "task": "Math_CoT" if n % 3 == 2 else "Coding",
            "dataset": "ours",
            "trajectory": [
                {"from": "user", "value": f"Write a function that greets {phrase(n)}."},
                *(
                    [
                        {"from": "assistant", "value": "def greet(): ..."},
                        {"from": "user", "value": "It prints nothing."},
                    ]
                    if n % 2
                    else []
                ),
            ],
            "chosen": f"def greet(): print('hello {n}')",
            "rejected": f"def greet(): pass  # {n}",
            "id": str(n),
            "parent_id": "",
        }
        for n in range(count)
    ]


def s1(count: int) -> Rows:
    return [
        {
            "question": f"How many legs have {n + 3} of {phrase(n)}, four each?",
            "solution": rf"Each has four, so \boxed{{{4 * (n + 3)}}}.",
            "cot_type": "crossword" if n % 5 == 4 else "math",
        }
        for n in range(count)
    ]


TEST = """
class TestAdd(unittest.TestCase):
    def test_it(self):
        self.assertEqual(add({n}, 1), {n} + 1)
"""
WRONG_TEST = """
class TestWrong(unittest.TestCase):
    def test_it(self):
        self.assertEqual(add(1, 1), 3)
"""


def coderm(count: int) -> Rows:
    """Return rows of CodeRM. One of three tests is wrong, so the reference program fails it. One of six generated programs
    is right."""
    rows = []
    for n in range(count):
        tests = [{"ut_id": 0, "code": "import unittest\n" + TEST.format(n=n), "FAR": 0.0, "FRR": 0.0}]
        tests.append({"ut_id": 1, "code": "import unittest\n" + TEST.format(n=n + 5), "FAR": 0.0, "FRR": 0.0})
        tests.append({"ut_id": 2, "code": "import unittest\n" + WRONG_TEST, "FAR": 0.0, "FRR": 1.0})
        programs = [f"def add(a, b):\n    return a + b - {wrong}" for wrong in range(1, 5)]
        programs += [f"def add(a, b):\n    return b + a  # {n}", "def add(a, b):\n    raise SystemExit(0)"]
        rows.append(
            {
                "task_id": n,
                "question": f"Write add(a, b), which sums what {phrase(n)} counts.",
                "code_ground_truth": "def add(a, b):\n    return a + b",
                "code_generate": repr([{"sol_id": number, "code": code} for number, code in enumerate(programs)]),
                "unit_tests": repr(tests),
            }
        )
    return rows


def tulu_pairs(count: int) -> Rows:
    return [
        {
            "id": f"p{n}",
            "prompt": f"Describe {phrase(n)} in capital letters.",
            "constraints": ["change_case:capital"],
            "chosen": [{"role": "user", "content": "x"}, {"role": "assistant", "content": f"A FINE ANIMAL {n}"}],
            "rejected": [{"role": "user", "content": "x"}, {"role": "assistant", "content": f"a fine animal {n}"}],
            "chonsen_model": "model-a",
            "rejected_model": "model-b",
        }
        for n in range(count)
    ]


def tulu_prompts(count: int) -> Rows:
    return [
        {
            "messages": [{"role": "user", "content": f"Write of {phrase(n)} in lowercase letters alone."}],
            "ground_truth": json.dumps({"func_name": "validate_lowercase", "N": None}),
            "dataset": "ifeval",
            "constraint_type": "All Lowercase",
            "constraint": "lowercase alone",
        }
        for n in range(count)
    ]


def math(count: int) -> Rows:
    return [
        {
            "problem": f"Half of {2 * n + 1} fish go to {phrase(n)}. How many?",
            "level": "Level 1",
            "type": "Algebra",
            "solution": rf"Dividing, $\boxed{{\frac{{{2 * n + 1}}}{{2}}}}$.",
        }
        for n in range(count)
    ]


def dapo(count: int) -> Rows:
    return [
        {"prompt": f"Square the {n + 2} pebbles of {phrase(n)}.", "solution": str((n + 2) ** 2)} for n in range(count)
    ]


def webinstruct(count: int) -> Rows:
    """Return rows of WebInstruct: physics questions with a number, a choice or a matrix as answer, and mathematics."""
    kinds = [("Physics", "Float", "2.5"), ("History", "Multiple Choice", "(B)"), ("Physics", "Matrix", "[[1]]")]
    kinds.append(("Mathematics", "Integer", "4"))
    return [
        {
            "id": n,
            "question": f"What is known of {phrase(n)}, as a number or letter?",
            "answer": kinds[n % 4][2],
            "answer_type": kinds[n % 4][1],
            "category": kinds[n % 4][0],
            "difficulty": "Senior High School",
        }
        for n in range(count)
    ]


def loong(count: int) -> Rows:
    return [
        {"question": f"Weigh {phrase(n)} {n} times.", "final_answer": str(n), "rationale": "", "metadata": "{}"}
        for n in range(count)
    ]


def saferlhf(count: int) -> Rows:
    return [
        {
            "prompt": f"May I feed {phrase(n)}?",
            "response_0": f"Ask its keeper first, visitor {n}.",
            "response_1": f"Throw it what you like, visitor {n}.",
            "is_response_0_safe": True,
            "is_response_1_safe": False,
            "safer_response_id": 0,
            "better_response_id": 0,
        }
        for n in range(count)
    ]


FILES = {
    "helpsteer3": helpsteer3,
    "ultrainteract": ultrainteract,
    "s1": s1,
    "coderm": coderm,
    "tulu3-if/pairs": tulu_pairs,
    "tulu3-if/prompts": tulu_prompts,
    "math": math,
    "dapo-bigmath": dapo,
    "webinstruct": webinstruct,
    "loong": loong,
    "saferlhf": saferlhf,
}


def write_rows(folder: Path, *, count: int, but: Mapping[str, int] | None = None) -> Path:
    """Write a Parquet file for each data set, for `--local`. `but`: name of a data set -> count, if it is not `count`."""
    for name, make in FILES.items():
        write_parquet(make((but or {}).get(name, count)), folder / f"{name}.parquet")
    return folder


def write_parquet(rows: Sequence[Mapping[str, Any]], path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), path)
    return path

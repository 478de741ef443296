"""Proofs: the meaning of expressions, what is refused, and limits."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.evidence.conftest import OpenStores, RunProgram
from tirjudge_evidence.inside import prover

INT, REAL, BOOL = "Int", "Real", "Bool"


@pytest.mark.parametrize(
    ("goal", "given", "variables"),
    [
        ("x + y > 0", ["x > 0", "y >= 0"], {"x": INT, "y": REAL}),
        ("0 < x < 10", ["1 <= x <= 9"], {"x": INT}),
        ("implies(p and q, q) and (p or not p)", [], {"p": BOOL, "q": BOOL}),
        ("min(x, y) <= max(x, y, 3) and abs(x) >= 0", [], {"x": INT, "y": REAL}),
        ("(x if p else y) >= 0", ["x >= 0", "y >= 0"], {"x": INT, "y": REAL, "p": BOOL}),
        ("x * x != 2", [], {"x": INT}),
        ("0.1 + 0.2 == 0.3 and 1e3 == 1000 and 0x10 == 16 and 1_0 == 10", [], {}),
        ("-7 // 2 == -4 and -7 % 2 == 1 and 7 // -2 == -4 and 7 % -2 == -1", [], {}),
        ("7.5 // 2 == 3 and -7.5 % 2 == 0.5 and 7 / 2 == 3.5", [], {}),
        ("x // y * y + x % y == x", ["y != 0"], {"x": INT, "y": INT}),
        ("y == 0 or x / y * y == x", [], {"x": INT, "y": INT}),
        ("y != 0", ["x / y > 1"], {"x": INT, "y": INT}),
        ("x ** 0 == 1 and x ** 3 == x * x * x", [], {"x": REAL}),
        ("rate <= 0.05", ["rate == 0.045 if term < 10 else rate == 0.05"], {"rate": REAL, "term": INT}),
    ],
)
def test_what_follows_is_proved(goal: str, given: list[str], variables: dict[str, str]) -> None:
    assert prover.prove(goal, given, variables) == {"proved": True, "counterexample": None}


@pytest.mark.parametrize(
    ("goal", "given", "variables", "counterexample"),
    [
        ("x > 1", ["x > 0"], {"x": INT}, {"x": 1}),
        ("x < 1/3", ["x <= 1/3"], {"x": REAL}, {"x": "1/3"}),
        ("x != 0.1", [], {"x": REAL}, {"x": 0.1}),
        ("p or q", ["not p"], {"p": BOOL, "q": BOOL}, {"p": False, "q": False}),
        ("x / y == x / y", ["x == 2"], {"x": INT, "y": INT}, {"x": 2, "y": 0}),
        ("x * x != 2", ["x > 0"], {"x": REAL}, {"x": "1.414213562373?"}),
        ("1 == 2", [], {}, {}),
    ],
)
def test_what_does_not_follow_has_a_counterexample(
    goal: str, given: list[str], variables: dict[str, str], counterexample: dict[str, Any]
) -> None:
    assert prover.prove(goal, given, variables) == {"proved": False, "counterexample": counterexample}


def test_contradictory_premises_are_an_error() -> None:
    with pytest.raises(ValueError, match="given: contradictory"):
        prover.prove("x > 0", ["x > 1", "x < 1"], {"x": INT})
    with pytest.raises(ValueError, match="given: contradictory"):
        prover.prove("x > 0", ["x / 0 == 1"], {"x": INT})


@pytest.mark.parametrize(
    ("goal", "problem"),
    [
        ("__import__('os').system('ls')", "this call is not allowed; functions: implies, abs, min, max"),
        ("exec('1')", "this call is not allowed"),
        ("x.real", "Attribute is not allowed"),
        ("[1]", "List is not allowed"),
        ("lambda: 1", "Lambda is not allowed"),
        ("f'{x}'", "JoinedStr is not allowed"),
        ("(x := 1) > 0", "NamedExpr is not allowed"),
        ("x in (1, 2)", "is not allowed"),
        ("x is 1", "the comparison Is is not allowed"),
        ("'a' == 'b'", "'a': expected a number, True or False"),
        ("1j == 1", "1j: expected a number"),
        ("x & 1 == 0", "the operator BitAnd is not allowed"),
        ("~x == 0", "~ is not allowed; write not"),
        ("x", "the expression: expected True or False, not a number"),
        ("x and p", "x: expected True or False"),
        ("p + 1 > 0", "numbers, not True or False"),
        ("p < p", "numbers, not True or False"),
        ("x if p else p", "expected two numbers, or two truth values"),
        ("y > 0", "y is not declared; variables: x, p"),
        ("x ** x > 0", "expected an integer of 0 to 16 as the exponent"),
        ("x ** 17 > 0", "expected an integer of 0 to 16"),
        ("(9 ** 9) ** 9 > 0", "product of exponents above 16"),
        ("1e101 > 0", "exponent of at most 100"),
        ("9" * 101 + " > 0", "more than 100 digits"),
        ("abs(x, x) > 0", "abs: expected 1 to 1 arguments, got 2"),
        ("min(x) > 0", "min: expected 2 to 100 arguments, got 1"),
        ("abs(x=1) > 0", "this call is not allowed"),
        ("min(*x, 1) > 0", "Starred is not allowed"),
        ("", "not an expression of Python"),
        ("x > 0; x", "not an expression of Python"),
        ("(" * 300 + "1" + ")" * 300, "not an expression of Python"),
        ("-" * 3000 + "x > 0", "nested"),
        ("+".join(["x"] * 1000) + " > 0", "nested more than 150 deep"),
        ("x > 0 " + " " * 4000, "4,006 characters, the limit is 4,000"),
    ],
)
def test_only_the_listed_expressions_are_allowed(goal: str, problem: str) -> None:
    with pytest.raises(ValueError, match=r"^goal: ") as error:
        prover.prove(goal, [], {"x": INT, "p": BOOL})
    assert problem in str(error.value)


@pytest.mark.parametrize(
    ("given", "variables", "problem"),
    [
        (["x > 0"] * 101, {"x": INT}, "given: 101 expressions, the limit is 100"),
        (["x > 0", "y"], {"x": INT}, r"given\[1\]: y is not declared"),
        ([], {"x": "String"}, "variables: x: 'String' given, expected Int, Real, Bool"),
        ([], {"for": INT}, "'for' is not a name for a variable"),
        ([], {"abs": INT}, "'abs' is not a name for a variable"),
        ([], {f"x{number}": INT for number in range(101)}, "variables: 101 given, the limit is 100"),
    ],
)
def test_wrong_premises_and_variables_are_named(given: list[str], variables: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        prover.prove("1 == 1", given, variables)


def test_a_question_that_is_too_hard_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prover, "EFFORT", 200_000)
    given = ["x > 0", "y > 0", "z > 0"]
    found = prover.prove("x ** 3 + y ** 3 != z ** 3", given, {"x": INT, "y": INT, "z": INT})
    assert found == {"proved": None, "counterexample": None}


def test_opening_leaves_no_thread() -> None:
    before = len(os.listdir("/proc/self/task"))
    prover.open_store([], {})
    assert len(os.listdir("/proc/self/task")) == before


@pytest.mark.slow
async def test_a_program_proves_without_a_store(opened: OpenStores, run_program: RunProgram) -> None:
    code = (
        "print(prove('x + 1 > x', variables={'x': 'Int'}))\n"
        "print(prove('x > 1', ['x > 0'], {'x': 'Int'})['counterexample'])\n"
        "try: prove('x > y', variables={'x': 'Int'})\n"
        "except ToolError as error: print(error)"
    )
    result = await run_program(code, await opened())
    assert result.stdout.splitlines() == [
        "{'proved': True, 'counterexample': None}",
        "{'x': 1}",
        "prove: goal: y is not declared; variables: x",
    ], result
    assert [call.sources for call in result.calls] == [{}, {}, {}]

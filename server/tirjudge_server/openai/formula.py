"""`calculate_output` of a multi grader: arithmetic over the rewards of its parts, and nothing else.

The expression is parsed by Python and compiled by us; a node that is not arithmetic is refused, so that nothing is ever
evaluated by Python itself. Libraries for this (simpleeval) find an unknown name only when they evaluate it, so a formula
cannot be checked before it has rewards, and they let `9**3999999` run for seconds.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

MAX_CHARS = 2000
MAX_POWER = 1000.0
"""Largest exponent: floats overflow long before, and it takes no time."""

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "abs": abs,
    "ceil": math.ceil,
    "exp": math.exp,
    "floor": math.floor,
    "log": math.log,
    "max": lambda *values: max(values),
    "min": lambda *values: min(values),
    "sqrt": math.sqrt,
}


def _power(base: float, power: float) -> float:
    if abs(power) > MAX_POWER:
        raise FormulaError(f"a power of {power}")
    result = base**power
    if isinstance(result, complex):
        raise FormulaError(f"{base} to the power of {power} is no real number")
    return result


_OPERATORS: Mapping[type[ast.operator | ast.unaryop], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


class FormulaError(ValueError):
    """An expression that is no arithmetic, or has no value."""


class Formula:
    """A parsed expression. `^` is a power, as in OpenAI's formulas.

    Args:
        text: the expression.
        names: what it may speak of.

    Raises:
        FormulaError: it is no arithmetic, or names something else.
    """

    def __init__(self, text: str, *, names: frozenset[str]) -> None:
        if len(text) > MAX_CHARS:
            raise FormulaError(f"more than {MAX_CHARS} characters")
        try:
            self._value = _compiled(ast.parse(text.replace("^", "**").strip(), mode="eval").body, names)
        except (SyntaxError, RecursionError, MemoryError, ArithmeticError, ValueError) as error:
            raise error if isinstance(error, FormulaError) else FormulaError(f"no arithmetic: {error}") from None

    def value(self, rewards: Mapping[str, float]) -> float:
        """Its value.

        Raises:
            FormulaError: there is none, as of 1 / 0.
        """
        try:
            value = self._value(rewards)
        except (ArithmeticError, ValueError, TypeError, RecursionError) as error:
            raise FormulaError(f"no value: {error}") from None
        if not math.isfinite(value):
            raise FormulaError(f"no finite value: {value}")
        return value


def _compiled(node: ast.expr, names: frozenset[str]) -> Callable[[Mapping[str, float]], float]:
    """The function that a node is; whatever is no arithmetic is refused."""
    match node:
        case ast.Constant(value=bool()):
            raise FormulaError(f"{node.value} is no number")
        case ast.Constant(value=int() | float() as number):
            value = float(number)  # an integer that is too large for one is refused here
            return lambda rewards: value
        case ast.Name(id=name):
            if name not in names:
                raise FormulaError(f"{name}: no such grader; there are {', '.join(sorted(names)) or 'none'}")
            return operator.itemgetter(name)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            function, arguments = _OPERATORS[type(op)], [operand]
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _OPERATORS:
            function, arguments = _OPERATORS[type(op)], [left, right]
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in FUNCTIONS and arguments:
            function = FUNCTIONS[name]
        case _:
            raise FormulaError(f"{type(node).__name__}: only numbers, graders, + - * / % ^ and {', '.join(FUNCTIONS)}")
    parts = [_compiled(argument, names) for argument in arguments]
    return lambda rewards: float(function(*[part(rewards) for part in parts]))

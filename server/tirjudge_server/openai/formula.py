"""`calculate_output` of a multi grader: arithmetic over the rewards of its parts.

Python's `ast` parses the expression, and this module compiles it. A node that is not arithmetic is refused, and Python never
evaluates the expression. The simpleeval library is not used: it reports an unknown name only during evaluation, so that a
formula cannot be checked in advance, and it runs `9**3999999` for seconds.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

MAX_CHARS = 2000
"""Maximum length of a formula."""
MAX_POWER = 1000.0
"""Maximum absolute exponent, so that a power is computed fast. Most powers overflow a float at smaller exponents."""

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
        raise FormulaError(f"exponent {power} given; the limit is {MAX_POWER}")
    result = base**power
    if isinstance(result, complex):
        raise FormulaError(f"{base} to the power of {power} is not a real number")
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
    """The expression is not arithmetic, or has no finite value."""


class Formula:
    """A parsed expression. `^` means power, as in OpenAI's formulas.

    Args:
        text: The expression.
        names: Names of graders that may occur in it.

    Raises:
        FormulaError: The expression is not arithmetic, or contains an unknown name.
    """

    def __init__(self, text: str, *, names: frozenset[str]) -> None:
        if len(text) > MAX_CHARS:
            raise FormulaError(f"more than {MAX_CHARS} characters")
        try:
            self._value = _compiled(ast.parse(text.replace("^", "**").strip(), mode="eval").body, names)
        except (SyntaxError, RecursionError, MemoryError, ArithmeticError, ValueError) as error:
            raise error if isinstance(error, FormulaError) else FormulaError(f"not arithmetic: {error}") from None

    def value(self, rewards: Mapping[str, float]) -> float:
        """Evaluate the formula.

        Args:
            rewards: Name of a grader -> its reward.

        Raises:
            FormulaError: The value is not finite, or is undefined, for example because of a division by 0.
        """
        try:
            value = self._value(rewards)
        except (ArithmeticError, ValueError, TypeError, RecursionError) as error:
            raise FormulaError(f"no value: {error}") from None
        if not math.isfinite(value):
            raise FormulaError(f"no finite value: {value}")
        return value


def _compiled(node: ast.expr, names: frozenset[str]) -> Callable[[Mapping[str, float]], float]:
    """Compile a node to a function of the rewards. A node that is not arithmetic is refused."""
    match node:
        case ast.Constant(value=bool()):
            raise FormulaError(f"{node.value} is not a number")
        case ast.Constant(value=int() | float() as number):
            value = float(number)  # raises OverflowError for an integer that is too large for a float
            return lambda rewards: value
        case ast.Name(id=name):
            if name not in names:
                raise FormulaError(f"{name}: no such grader; known graders: {', '.join(sorted(names)) or 'none'}")
            return operator.itemgetter(name)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            function, arguments = _OPERATORS[type(op)], [operand]
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _OPERATORS:
            function, arguments = _OPERATORS[type(op)], [left, right]
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in FUNCTIONS and arguments:
            function = FUNCTIONS[name]
        case _:
            allowed = f"numbers, graders, + - * / % ^ and {', '.join(FUNCTIONS)}"
            raise FormulaError(f"{type(node).__name__} is not allowed; expected: {allowed}")
    parts = [_compiled(argument, names) for argument in arguments]
    return lambda rewards: float(function(*[part(rewards) for part in parts]))

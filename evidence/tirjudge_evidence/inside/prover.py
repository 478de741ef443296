"""Proofs with z3: whether a statement follows from others, for all values of its variables.

Statements are expressions in the syntax of Python. They are parsed, never executed. An expression is translated into its
value and the condition under which it is defined: a division by zero makes a goal false, and `a and b` does not evaluate `b`
where `a` is false.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any

import z3

MAX_CHARS = 4000
"""Maximum length of an expression."""

MAX_GIVEN = 100
"""Maximum number of given expressions."""

MAX_VARIABLES = 100
"""Maximum number of variables."""

MAX_DEPTH = 150
"""Maximum depth of an expression."""

MAX_EXPONENT = 16
"""Maximum exponent of a power, and maximum product of the exponents of nested powers."""

MAX_DIGITS = 100
"""Maximum number of digits of a number."""

EFFORT = 10_000_000
"""Maximum effort of one check, in units of z3 (`rlimit`). Unlike a time limit, it gives the same answer each time."""

_SORTS: Mapping[str, Callable[[str], Any]] = {"Int": z3.Int, "Real": z3.Real, "Bool": z3.Bool}
_FUNCTIONS = ("implies", "abs", "min", "max")
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
}


@dataclass(frozen=True, slots=True)
class _Term:
    value: Any
    """The expression of z3."""
    defined: Any
    """Condition under which Python gives it a value, as an expression of z3."""


class Prover:
    """Proves statements. It holds no data."""

    def __init__(self) -> None:
        self.operations = {"describe": self.describe, "prove": prove}

    def describe(self) -> dict[str, Any]:
        """Return no contents."""
        return {"lines": [], "size": {}}


def open_store(files: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> Prover:
    """Return a prover, after a first proof that leaves z3 ready."""
    prove("x > 0 or not p", ["x / 2 > y"], {"x": "Int", "y": "Real", "p": "Bool"})
    return Prover()


def prove(goal: str, given: Sequence[str] = (), variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return whether the goal is true for all values of the variables for which everything given is true.

    Args:
        goal: expression with a truth value.
        given: expressions with truth values.
        variables: name -> `Int`, `Real` or `Bool`.

    Returns:
        `proved`: True, False, or None if z3 does not know. `counterexample`: name -> value of each variable, if the goal is
        not proved; a real number that is not a decimal fraction is a text, such as "1/3". Otherwise None.

    Raises:
        ValueError: an expression is not allowed, or no values make everything given true.
    """
    symbols = _symbols(variables or {})
    if len(given) > MAX_GIVEN:
        raise ValueError(f"given: {len(given)} expressions, the limit is {MAX_GIVEN}")
    wanted = _statement(goal, symbols=symbols, where="goal")
    solver = z3.Solver()
    solver.set("rlimit", EFFORT)
    for number, text in enumerate(given):
        premise = _statement(text, symbols=symbols, where=f"given[{number}]")
        solver.add(premise.defined, premise.value)
    if given and solver.check() == z3.unsat:
        raise ValueError("given: contradictory, because no values of the variables make all of it true")
    solver.add(z3.Not(z3.And(wanted.defined, wanted.value)))
    found = solver.check()
    if found == z3.unsat:
        return {"proved": True, "counterexample": None}
    if found == z3.unknown:
        return {"proved": None, "counterexample": None}
    model = solver.model()
    values = {name: _value(model.eval(symbol, model_completion=True)) for name, symbol in symbols.items()}
    return {"proved": False, "counterexample": values}


def _symbols(variables: Mapping[str, str]) -> dict[str, Any]:
    if len(variables) > MAX_VARIABLES:
        raise ValueError(f"variables: {len(variables)} given, the limit is {MAX_VARIABLES}")
    for name, sort in variables.items():
        if not name.isidentifier() or keyword.iskeyword(name) or name in _FUNCTIONS or len(name) > 100:
            raise ValueError(f"variables: {name[:100]!r} is not a name for a variable")
        if sort not in _SORTS:
            raise ValueError(f"variables: {name}: {sort[:100]!r} given, expected {', '.join(_SORTS)}")
    return {name: _SORTS[sort](name) for name, sort in variables.items()}


def _statement(text: str, *, symbols: Mapping[str, Any], where: str) -> _Term:
    """Translate an expression with a truth value."""
    if len(text) > MAX_CHARS:
        raise ValueError(f"{where}: {len(text):,} characters, the limit is {MAX_CHARS:,}")
    source = " ".join(text.split())
    try:
        tree = ast.parse(source, mode="eval")
    except SyntaxError as error:
        raise ValueError(f"{where}: not an expression of Python: {error.msg}") from None
    except (RecursionError, MemoryError, ValueError):
        raise ValueError(f"{where}: not an expression of Python, or nested too deeply") from None
    try:
        term = _Translation(symbols=symbols, source=source.encode()).term(tree.body)
        _expect_bool(term, what="the expression")
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return term


class _Translation:
    """Translates one expression into z3."""

    def __init__(self, *, symbols: Mapping[str, Any], source: bytes) -> None:
        self._symbols, self._source = symbols, source
        self._depth = 0
        self._exponent = 1

    def term(self, node: ast.expr) -> _Term:
        """Translate an expression. Raises ValueError for one that is not allowed."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ValueError(f"nested more than {MAX_DEPTH} deep")
        match node:
            case ast.Constant():
                term = self._constant(node)
            case ast.Name(id=name):
                term = self._variable(name)
            case ast.UnaryOp(op=op, operand=operand):
                term = self._unary(op, self.term(operand))
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                term = self._power(left, right)
            case ast.BinOp(left=left, op=op, right=right):
                term = _arithmetic(op, self.term(left), self.term(right))
            case ast.BoolOp(op=op, values=values):
                term = reduce(_and if isinstance(op, ast.And) else _or, [self._bool(each) for each in values])
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                term = self._comparison([left, *comparators], ops)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                term = _choice(self._bool(test), self.term(body), self.term(orelse))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
                term = self._call(name, args)
            case ast.Call():
                raise ValueError(f"this call is not allowed; functions: {', '.join(_FUNCTIONS)}")
            case _:
                raise ValueError(f"{type(node).__name__} is not allowed")
        self._depth -= 1
        return term

    def _bool(self, node: ast.expr) -> _Term:
        term = self.term(node)
        _expect_bool(term, what=self._shown(node))
        return term

    def _shown(self, node: ast.expr) -> str:
        return self._literal(node)[:100]

    def _literal(self, node: ast.expr) -> str:
        return self._source[node.col_offset : node.end_col_offset].decode()

    def _constant(self, node: ast.Constant) -> _Term:
        value = node.value
        if isinstance(value, bool):
            return _always(z3.BoolVal(value))
        if not isinstance(value, int | float):
            raise ValueError(f"{self._shown(node)}: expected a number, True or False")
        literal = self._literal(node).replace("_", "")
        if len(literal) > MAX_DIGITS:
            raise ValueError(f"{literal[:20]}...: a number of more than {MAX_DIGITS} digits")
        if isinstance(value, int):
            return _always(z3.IntVal(value))
        mantissa, _, exponent = literal.lower().partition("e")
        if abs(int(exponent or 0)) > MAX_DIGITS:
            raise ValueError(f"{literal}: expected an exponent of at most {MAX_DIGITS}")
        return _always(_real(Fraction(mantissa) * Fraction(10) ** int(exponent or 0)))

    def _variable(self, name: str) -> _Term:
        if name not in self._symbols:
            known = ", ".join(self._symbols) or "none"
            raise ValueError(f"{name[:100]} is not declared; variables: {known[:300]}")
        return _always(self._symbols[name])

    def _unary(self, op: ast.unaryop, term: _Term) -> _Term:
        if isinstance(op, ast.Not):
            _expect_bool(term, what="the operand of not")
            return _Term(z3.Not(term.value), term.defined)
        if isinstance(op, ast.Invert):
            raise ValueError("~ is not allowed; write not")
        _expect_numbers(term)
        return _Term(-term.value, term.defined) if isinstance(op, ast.USub) else term

    def _power(self, base: ast.expr, exponent: ast.expr) -> _Term:
        number = exponent.value if isinstance(exponent, ast.Constant) else None
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= MAX_EXPONENT:
            raise ValueError(f"**: expected an integer of 0 to {MAX_EXPONENT} as the exponent")
        self._exponent *= max(number, 1)
        if self._exponent > MAX_EXPONENT:
            raise ValueError(f"**: nested powers with a product of exponents above {MAX_EXPONENT}")
        term = self.term(base)
        self._exponent //= max(number, 1)
        _expect_numbers(term)
        one = z3.IntVal(1) if term.value.is_int() else z3.RealVal(1)
        return _Term(reduce(lambda product, _: product * term.value, range(number), one), term.defined)

    def _comparison(self, nodes: Sequence[ast.expr], ops: Sequence[ast.cmpop]) -> _Term:
        """Translate a chain such as `a < b < c`. As in Python, `c` only counts where `a < b`."""
        terms = [self.term(node) for node in nodes]
        links = [_compared(op, left, right) for op, left, right in zip(ops, terms, terms[1:], strict=False)]
        return reduce(_and, links)

    def _call(self, name: str, args: Sequence[ast.expr]) -> _Term:
        fewest, most = {"implies": (2, 2), "abs": (1, 1)}.get(name, (2, 100))
        if not fewest <= len(args) <= most:
            raise ValueError(f"{name}: expected {fewest} to {most} arguments, got {len(args)}")
        if name == "implies":
            premise, conclusion = (self._bool(each) for each in args)
            return _or(_Term(z3.Not(premise.value), premise.defined), conclusion)
        terms = [self.term(each) for each in args]
        _expect_numbers(*terms)
        if name == "abs":
            (term,) = terms
            return _Term(z3.If(term.value < 0, -term.value, term.value), term.defined)
        return reduce(_least if name == "min" else _greatest, terms)


def _always(value: Any) -> _Term:
    return _Term(value, z3.BoolVal(True))


def _real(value: Fraction) -> Any:
    return z3.RealVal(f"{value.numerator}/{value.denominator}")


def _expect_bool(term: _Term, *, what: str) -> None:
    if not z3.is_bool(term.value):
        raise ValueError(f"{what}: expected True or False, not a number")


def _expect_numbers(*terms: _Term) -> None:
    if any(z3.is_bool(term.value) for term in terms):
        raise ValueError("arithmetic and order need numbers, not True or False")


def _same_type(left: _Term, right: _Term) -> tuple[Any, Any]:
    """Return the values of two numbers, both real if one of them is."""
    _expect_numbers(left, right)
    if left.value.is_int() == right.value.is_int():
        return left.value, right.value
    return _as_real(left.value), _as_real(right.value)


def _as_real(value: Any) -> Any:
    return z3.ToReal(value) if value.is_int() else value


def _both(left: _Term, right: _Term) -> Any:
    return z3.And(left.defined, right.defined)


def _and(left: _Term, right: _Term) -> _Term:
    return _Term(z3.And(left.value, right.value), z3.And(left.defined, z3.Implies(left.value, right.defined)))


def _or(left: _Term, right: _Term) -> _Term:
    return _Term(z3.Or(left.value, right.value), z3.And(left.defined, z3.Or(left.value, right.defined)))


def _choice(test: _Term, yes: _Term, no: _Term) -> _Term:
    if z3.is_bool(yes.value) != z3.is_bool(no.value):
        raise ValueError("if and else: expected two numbers, or two truth values")
    values = (yes.value, no.value) if z3.is_bool(yes.value) else _same_type(yes, no)
    defined = z3.And(test.defined, z3.If(test.value, yes.defined, no.defined))
    return _Term(z3.If(test.value, *values), defined)


def _compared(op: ast.cmpop, left: _Term, right: _Term) -> _Term:
    if type(op) not in _COMPARISONS:
        raise ValueError(f"the comparison {type(op).__name__} is not allowed")
    if isinstance(op, ast.Eq | ast.NotEq) and z3.is_bool(left.value) and z3.is_bool(right.value):
        values = left.value, right.value
    else:
        values = _same_type(left, right)
    return _Term(_COMPARISONS[type(op)](*values), _both(left, right))


def _least(left: _Term, right: _Term) -> _Term:
    a, b = _same_type(left, right)
    return _Term(z3.If(a <= b, a, b), _both(left, right))


def _greatest(left: _Term, right: _Term) -> _Term:
    a, b = _same_type(left, right)
    return _Term(z3.If(a >= b, a, b), _both(left, right))


def _arithmetic(op: ast.operator, left: _Term, right: _Term) -> _Term:
    a, b = _same_type(left, right)
    both = _both(left, right)
    match op:
        case ast.Add():
            return _Term(a + b, both)
        case ast.Sub():
            return _Term(a - b, both)
        case ast.Mult():
            return _Term(a * b, both)
        case ast.Div():
            return _Term(_as_real(a) / _as_real(b), z3.And(both, b != 0))
        case ast.FloorDiv():
            return _Term(_floor(a, b), z3.And(both, b != 0))
        case ast.Mod():
            return _Term(a - b * _floor(a, b), z3.And(both, b != 0))
    raise ValueError(f"the operator {type(op).__name__} is not allowed")


def _floor(a: Any, b: Any) -> Any:
    """Return a / b rounded down. z3 rounds a division of integers towards a remainder that is not negative."""
    if not a.is_int():
        return z3.ToReal(z3.ToInt(a / b))
    if z3.is_int_value(b):
        return a / b if b.as_long() > 0 else -a / -b
    return z3.If(b > 0, a / b, -a / -b)


def _value(value: Any) -> Any:
    """Return a value of a model as JSON."""
    if z3.is_bool(value):
        return z3.is_true(value)
    if z3.is_int_value(value):
        return value.as_long()
    if z3.is_rational_value(value):
        exact = value.as_fraction()
        near = (
            exact.numerator / exact.denominator
            if exact.denominator < 10**15 and abs(exact.numerator) < 10**15
            else None
        )
        return near if near is not None and Fraction(repr(near)) == exact else str(exact)
    return value.as_decimal(12)

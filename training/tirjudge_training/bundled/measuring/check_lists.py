"""Compares the checks that a program has with those that the prompt asks for.

Checks are compared as Python expressions. The *form* of a check is its expression without numbers and texts:
`words(r) >= 300` and `words(r) >= 30` have the same form. A check with the right form whose numbers or texts differ has a
wrong parameter.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tirjudge_training.instructions.notation import Check
from tirjudge_training.instructions.number_words import number_word

MAX_CODE_CHARS = 20_000
"""Maximum length of a program that is parsed. The rest of a longer one is its helper functions."""

Constant = int | float | str


@dataclass(frozen=True, slots=True)
class FormedCheck:
    """A check, taken apart."""

    form: str
    """The expression with `_` for each number and text."""
    values: tuple[Constant, ...]
    """Its numbers and texts, in order."""
    text: str
    """The whole expression."""

    @property
    def function(self) -> str:
        """Name of the first function of the expression, such as `words`."""
        found = re.search(r"(?:in |^|\W)(\w+)\(", self.form)
        return found[1] if found else self.form


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedValue:
    """A value of a check with the right form."""

    kind: str
    """`number`, `number word` or `text`: how the prompt has the value. `implied`: the prompt does not have it."""
    is_right: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ListComparison:
    """How the checks of a program differ from those that the prompt asks for."""

    is_exact: bool
    """Whether both are the same, in any order."""
    missing: tuple[str, ...] = ()
    """Checks that the prompt asks for, without a check of the same function."""
    spurious: tuple[str, ...] = ()
    """Checks of the program whose function the prompt does not ask for."""
    wrong_form: tuple[tuple[str, str], ...] = ()
    """Asked and written checks of the same function and another form, such as another comparison."""
    wrong_values: tuple[tuple[str, str], ...] = ()
    """Asked and written checks of the same form with other values."""
    copied: tuple[CopiedValue, ...] = field(default=())
    """Values of all checks with the right form."""


def written_checks(code: str) -> tuple[str, ...] | None:
    """Return the expressions of the list that `checks(r)` of a program returns; None if the program has no such list."""
    start = code.find("def checks(")
    if start < 0:
        return None
    body = code[start : start + MAX_CODE_CHARS]
    end = re.search(r"(?m)^ {0,4}\]\s*$", body)
    try:
        tree = ast.parse(body[: end.end()] if end else body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.List):
            return tuple(map(ast.unparse, node.value.elts))
    return None


def compared(asked: Sequence[Check], written: Sequence[str], *, prompt: str) -> ListComparison:
    """Compare the checks of a program with those of the prompt.

    Args:
        asked: checks that the prompt asks for.
        written: expressions of the program.
        prompt: the prompt, which shows how it has a value.
    """
    rest = _distinct(formed for check in asked for formed in _formed(check.expression))
    others = _distinct(formed for text in written for formed in _formed(text))
    same = (Counter(rest) & Counter(others)).elements()
    pairs = [(one, one) for one in same]
    for one, _ in pairs:
        rest.remove(one)
        others.remove(one)
    is_exact = not rest and not others
    wrong_values = _matched(rest, others, key=lambda one: one.form)
    wrong_form = _matched(rest, others, key=lambda one: one.function)
    copied = [
        CopiedValue(kind=_shown_as(value, prompt), is_right=value == other)
        for one, two in (*pairs, *wrong_values)
        for value, other in zip(one.values, two.values, strict=True)
    ]
    return ListComparison(
        is_exact=is_exact,
        missing=tuple(one.text for one in rest),
        spurious=tuple(one.text for one in others),
        wrong_form=tuple((one.text, two.text) for one, two in wrong_form),
        wrong_values=tuple((one.text, two.text) for one, two in wrong_values),
        copied=tuple(copied),
    )


def _distinct(checks: Iterable[FormedCheck]) -> list[FormedCheck]:
    return list(dict.fromkeys(checks))


def _matched(rest: list[FormedCheck], others: list[FormedCheck], *, key) -> list[tuple[FormedCheck, FormedCheck]]:
    """Return pairs with an equal key, and remove them from both lists."""
    pairs = []
    for one in list(rest):
        two = next((two for two in others if key(two) == key(one)), None)
        if two is not None:
            pairs.append((one, two))
            rest.remove(one)
            others.remove(two)
    return pairs


def _formed(expression: str) -> list[FormedCheck]:
    """Return the parts of an expression: one for each text of `has(r, "a", "b")` and `lacks(r, "a", "b")`, else one."""
    try:
        tree = ast.parse(expression, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return [FormedCheck(expression, (), expression)]
    match tree.body:
        case ast.Call(func=ast.Name(id="has" | "lacks" as name), args=[shown, *texts]) if len(texts) > 1:
            calls = [ast.Call(func=ast.Name(id=name), args=[shown, text], keywords=[]) for text in texts]
            return [one for call in calls for one in _formed(ast.unparse(call))]
    values: list[Constant] = []

    class Blanked(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> ast.AST:
            value = node.value
            values.append(value.casefold() if isinstance(value, str) else value)  # type: ignore[arg-type]
            return ast.Name(id="_")

    return [FormedCheck(ast.unparse(Blanked().visit(tree)), tuple(values), ast.unparse(ast.parse(expression)))]


def _shown_as(value: Constant, prompt: str) -> str:
    """Say how a prompt has a value."""
    text = prompt.casefold()
    if isinstance(value, str):
        return "text" if value in text else "implied"
    if re.search(rf"(?<!\d)(?:{value}|{int(value):,})(?!\d)", text):
        return "number"
    return "number word" if 0 <= value <= 100 and number_word(int(value)).removeprefix("a ") in text else "implied"

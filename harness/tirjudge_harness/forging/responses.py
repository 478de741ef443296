"""Put forging code into a response of any kind."""

from __future__ import annotations

import ast

from tirjudge_harness.forging.techniques import ForgingTechnique
from tirjudge_sandbox.candidate import code_in

_NO_FUNCTION = "solve"


def forged(response: str, technique: ForgingTechnique) -> str:
    """Return a response with forging code in its code. If it has no code, a block with the forging code follows it."""
    code = code_in(response)
    if code == response and not _is_code(response):
        return f"{response}\n\n```python\n{technique.candidate('', function=_NO_FUNCTION)}```\n"
    return response.replace(code, technique.candidate(code, function=_function_in(code)), 1)


def _is_code(text: str) -> bool:
    """Whether a text is a Python program with more than expressions."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(not isinstance(statement, ast.Expr) or isinstance(statement.value, ast.Call) for statement in body)


def _function_in(code: str) -> str:
    """Return the name of the last function at the top level of some code."""
    names = [line[4:].partition("(")[0].strip() for line in code.splitlines() if line.startswith("def ")]
    return next((name for name in reversed(names) if name.isidentifier()), _NO_FUNCTION)

"""What the model is shown of a program's output. This text is part of the model: changing it needs a retrained judge."""

from __future__ import annotations

from tirjudge.control_tokens import FAMILIES, ControlTokens
from tirjudge.render import neutralise
from tirjudge.types import ExecResult

TRUNCATED = "[output cut]"
"""Stands where output was cut away."""


def cut(text: str, *, limit: int) -> str:
    """The first three quarters and the last quarter of the characters allowed, with the marker between them."""
    if len(text) <= limit:
        return text
    tail = limit // 4
    return f"{text[: limit - tail]}\n{TRUNCATED}\n{text[len(text) - tail :]}"


def shown_output(result: ExecResult, *, limit: int, control_tokens: ControlTokens = FAMILIES) -> str:
    """What a program printed; if it failed, the last line of its error alone. Fences, tags and control tokens in it are
    broken, since a program may print the texts that are judged."""
    text = result.stdout.rstrip("\n") if result.error is None else result.error
    return neutralise(cut(text, limit=limit), control_tokens=control_tokens)


def observation_text(output: str) -> str:
    """What follows the model's "```output": the output and the closing fence."""
    return f"\n{output}\n```\n"

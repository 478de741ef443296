"""What the model wrote becomes a program or a verdict. Only the model's own text is ever parsed, never an observation."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from tirjudge.types import Mode

OUTPUT_FENCE = "```output"
"""The model opens its output block with this; generation stops there and the program runs."""

_PYTHON_BLOCK = re.compile(r"^[ \t]*```python[ \t]*\n(.*?)^[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE)


def verdict_tag(mode: Mode) -> str:
    """The name of the tag around the verdict: `score` for pointwise, `preference` for the others."""
    return "score" if mode is Mode.POINTWISE else "preference"


def stop_strings(mode: Mode, *, tools: bool) -> tuple[str, ...]:
    """What ends a turn: the closed verdict tag (nothing useful comes after it) and, with tools, the output fence."""
    closed = f"</{verdict_tag(mode)}>"
    return (closed, OUTPUT_FENCE) if tools else (closed,)


def parse_code(text: str) -> str | None:
    """The last closed ```python block of one turn; None if there is none.

    A block ends at the first line that is nothing but a closing fence, so a fence inside a line of the program, such as
    `print("```")`, ends nothing.
    """
    blocks = _PYTHON_BLOCK.findall(text)
    return blocks[-1] if blocks else None


def asks_for_run(text: str) -> bool:
    """Whether a turn that simply ended did so right after a closed ```python block: such a program is run too."""
    blocks = list(_PYTHON_BLOCK.finditer(text))
    return bool(blocks) and not text[blocks[-1].end() :].strip()


def parse_verdict(texts: Sequence[str], *, mode: Mode, labels: Collection[str]) -> str | None:
    """The label in the last well-formed verdict; None if there is none, or if it was not offered.

    Args:
        texts: what the model wrote, one text a turn. A tag cannot span turns.
        mode: decides the tag.
        labels: what was offered.
    """
    tag = verdict_tag(mode)
    found = re.findall(rf"<{tag}>\s*([A-Za-z0-9]+)\s*</{tag}>", "\0".join(texts))
    return found[-1] if found and found[-1] in labels else None

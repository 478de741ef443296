"""What the model wrote becomes a program or a verdict. Only the model's own text is ever parsed, never an observation."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tirjudge.types import Mode

OUTPUT_FENCE = "```output"
"""The model opens its output block with this; generation stops there and the program runs."""

_PYTHON_BLOCK = re.compile(
    r"^[ \t]*```python[ \t]*\r?\n((?:(?![ \t]*```).*\n)*)[ \t]*```[ \t]*\r?$", re.MULTILINE | re.IGNORECASE
)


def verdict_tag(mode: Mode) -> str:
    """The name of the tag around the verdict: `score` for pointwise, `preference` for the others."""
    return "score" if mode is Mode.POINTWISE else "preference"


def stop_strings(mode: Mode, *, tools: bool) -> tuple[str, ...]:
    """What ends a turn: the closed verdict tag (nothing useful comes after it) and, with tools, the output fence."""
    closed = f"</{verdict_tag(mode)}>"
    return (closed, OUTPUT_FENCE) if tools else (closed,)


def parse_code(text: str) -> str | None:
    """The last closed ```python block of one turn; None if there is none.

    A block ends at the first line that begins with a fence, so a fence inside a line of the program, such as
    `print("```")`, ends nothing; one that was never closed is no block.
    """
    blocks = _PYTHON_BLOCK.findall(text)
    return blocks[-1] if blocks else None


def asks_for_run(text: str) -> bool:
    """Whether a turn that simply ended did so right after a closed ```python block: such a program is run too."""
    blocks = list(_PYTHON_BLOCK.finditer(text))
    return bool(blocks) and not text[blocks[-1].end() :].strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundVerdict:
    """Where the model gave its verdict."""

    label: str
    turn: int
    """Index of the turn."""
    start: int
    """Where in the turn's text the label begins."""


def find_verdict(texts: Sequence[str], *, mode: Mode, labels: Collection[str]) -> FoundVerdict | None:
    """The last well-formed verdict; None if there is none, or if it names what was not offered.

    A tag that stands in a program counts as well: it is the model's own text, and generation stopped there.

    Args:
        texts: what the model wrote, one text a turn. A tag cannot span turns.
        mode: decides the tag.
        labels: what was offered.
    """
    tag = verdict_tag(mode)
    pattern = re.compile(rf"<{tag}>\s*([A-Za-z0-9]+)\s*</{tag}>")
    for turn in reversed(range(len(texts))):
        matches = list(pattern.finditer(texts[turn]))
        if matches:
            label = matches[-1][1]
            return FoundVerdict(label=label, turn=turn, start=matches[-1].start(1)) if label in labels else None
    return None


def parse_verdict(texts: Sequence[str], *, mode: Mode, labels: Collection[str]) -> str | None:
    """The label of `find_verdict` alone."""
    found = find_verdict(texts, mode=mode, labels=labels)
    return None if found is None else found.label

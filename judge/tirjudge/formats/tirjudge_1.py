"""The format `tirjudge/1`, on which the first generation of the bundled judge was trained.

All prompt and observation texts are frozen byte for byte, because trained judges depend on them. A change requires a
new format version in a new module. In the shown texts, all fences, all tags of the format and the control tokens of all
known model families are broken (`texts.neutralise`).
"""

from __future__ import annotations

import re
from functools import cache

from tirjudge.control_tokens import ControlTokens
from tirjudge.formats.blocks import Block, BlockFormat, verdict_tag
from tirjudge.formats.texts import neutralise
from tirjudge.types import Mode

_GUIDANCE = re.compile(r"<(?=/?(?:reference|criteria|rubric)>)", re.IGNORECASE)
"""Tags of the optional sections. They are broken only in prompts with such a section, because judges were trained on
prompts without them."""


class Tirjudge1(BlockFormat):
    """The format `tirjudge/1`."""

    name = "tirjudge/1"
    folder = "tirjudge_1"

    def shown(self, text: str, *, guided: bool, control_tokens: ControlTokens) -> str:
        safe = neutralise(text, control_tokens=control_tokens)
        return _GUIDANCE.sub("< ", safe) if guided else safe

    def blocks(self, text: str, *, names: tuple[str, ...]) -> list[Block]:
        return [Block(name=found[1], source=found[2], end=found.end()) for found in _block(names).finditer(text)]

    def verdict_pattern(self, mode: Mode) -> re.Pattern[str]:
        return _verdict(verdict_tag(mode))


@cache
def _block(names: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern of a closed block of one of the tools. The block ends at the first line that begins with a
    fence. A fence inside a line, such as `print("```")`, does not end it."""
    name = "|".join(map(re.escape, names))
    return re.compile(
        rf"^[ \t]*```({name})[ \t]*\r?\n((?:(?![ \t]*```).*\n)*)[ \t]*```[ \t]*\r?$", re.MULTILINE | re.IGNORECASE
    )


@cache
def _verdict(tag: str) -> re.Pattern[str]:
    return re.compile(rf"<{tag}>\s*([A-Za-z0-9]+)\s*</{tag}>")


FORMAT = Tirjudge1()

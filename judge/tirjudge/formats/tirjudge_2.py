"""The format `tirjudge/2`, for models that were not trained on any format. It shows texts as they are.

A shown text equals the original but for one space after the first character of each tag of the prompt and of each
control token of the served model. Fences, blanks, line endings and HTML are unchanged. If something was broken, the
prompt says so. Blocks and verdicts are read in the variants that instruction-tuned models write.

All prompt and observation texts are frozen byte for byte once a model was trained on them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache

from tirjudge.control_tokens import FAMILIES, ControlTokens
from tirjudge.formats.blocks import (
    FUNCTIONS,
    MORE_TOOLS,
    OUTPUT_FENCE,
    Block,
    BlockFormat,
    observation_text,
    verdict_tag,
)
from tirjudge.formats.texts import as_served, cut
from tirjudge.types import MODEL_MODES, PYTHON, Criterion, Mode, ToolResult

BROKEN = """\
In the texts below, one space was inserted after the first character of every tag of this prompt and of every control token, \
such as `< think>`. The texts themselves do not have this space."""
"""Section before the question if something was broken."""

_PYTHON_NAMES = frozenset({PYTHON, "py", "python3", "py3"})
"""Names after an opening fence that mean Python."""

_FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})(.*)")
"""A line that begins with a fence: its indentation, the fence, and the rest of the line."""

_BEFORE = r"[\s*_`\"'(\[{:#]*"
_AFTER = r"[\s*_`\"')\]}.]*"
_NOUN = r"(?i:final|response|answer|assistant|option|candidate|verdict|preference|score|rating)(?![A-Za-z0-9])"
_NOUNS = rf"(?:{_NOUN}{_BEFORE}){{0,2}}"
_OUT_OF_TEN = rf"(?:\.00?)?{_AFTER}(?:(?:/|(?i:out\s+of))\s*10(?:\.00?)?{_AFTER})?"


class Tirjudge2(BlockFormat):
    """The format `tirjudge/2`."""

    name = "tirjudge/2"
    folder = "tirjudge_2"

    @property
    def sha256(self) -> str:
        """SHA-256 over the six prompts with all optional sections, and over the texts that follow the model's."""
        return _sha256()

    def shown(self, text: str, *, guided: bool, control_tokens: ControlTokens) -> str:
        return as_served(text, control_tokens=control_tokens)

    def notes(self, *, is_broken: bool) -> Sequence[str]:
        return (BROKEN,) if is_broken else ()

    def shown_output(self, result: ToolResult, *, limit: int, control_tokens: ControlTokens = FAMILIES) -> str:
        """Return the output of a program without its last line break, or only the last line of its error if it failed.

        A fence in the output is unchanged, although the output stands in a block: the model opened this block with
        three backticks, and nothing is parsed from it.
        """
        text = result.stdout.removesuffix("\n") if result.error is None else result.error
        return as_served(cut(text, limit=limit), control_tokens=control_tokens)

    def blocks(self, text: str, *, names: tuple[str, ...]) -> list[Block]:
        """Return the programs and calls in the text of one turn.

        A block begins at a fence with the name of a tool, in upper or lower case; `py`, `python3` and `py3` also mean
        Python. It ends at the next line that has only a fence of the same kind and at least the same length, at an
        output fence, or at the end of a turn that ended without an output fence. If the opening fence is indented, the
        lines lose up to this indentation.
        """
        known = {name.lower() for name in names} | (_PYTHON_NAMES if PYTHON in names else set[str]())
        found: list[Block] = []
        block: _OpenBlock | None = None
        end = 0
        for line in text.split("\n"):
            end += len(line) + 1
            fence = _FENCE.match(line)
            if fence is not None and (name := _name_of(fence)) in known:
                block = _OpenBlock(name=name, fence=fence[2], indent=len(fence[1]), lines=[])
            elif block is not None and fence is not None and block.is_closed_by(fence):
                found.append(block.closed(end=end - 1))
                block = None
            elif block is not None:
                block.lines.append(line)
        if block is not None and not text.endswith(OUTPUT_FENCE) and any(map(str.strip, block.lines)):
            if not block.lines[-1]:  # the text after the last line break
                block.lines.pop()
            found.append(block.closed(end=len(text)))
        return found

    def tool_of(self, name: str, *, names: Collection[str]) -> str:
        if name in _PYTHON_NAMES and name not in names:
            return PYTHON
        return next(each for each in names if each.lower() == name)

    def verdict_pattern(self, mode: Mode) -> re.Pattern[str]:
        """Return the pattern of a verdict: the label, exactly as offered, alone in its tag.

        Allowed around it: blanks, emphasis, quotes, brackets, a noun before it (`Response A`) and, for scores, `.0` and
        `/10`. Other words, ranges, fractions and comparisons are not a verdict.
        """
        return _verdict(mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenBlock:
    """A block that is not closed yet."""

    name: str
    fence: str
    indent: int
    """Number of blanks before the opening fence."""
    lines: list[str]

    def is_closed_by(self, fence: re.Match[str]) -> bool:
        if fence[2].startswith(self.fence) and not fence[3].strip():
            return True
        return fence[2] + fence[3] == OUTPUT_FENCE

    def closed(self, *, end: int) -> Block:
        lines = [_dedented(line, indent=self.indent) for line in self.lines] if self.indent else self.lines
        return Block(name=self.name, source="".join(f"{line}\n" for line in lines), end=end)


def _name_of(fence: re.Match[str]) -> str:
    """Return the name after an opening fence, in lower case; "" if it has none, or if the block ends in this line."""
    rest = fence[3].strip()
    if not rest or "`" in rest:
        return ""
    return rest.split(maxsplit=1)[0].strip("{}.,:").lower()


def _dedented(line: str, *, indent: int) -> str:
    """Return a line without its first blanks, at most `indent`."""
    return line[:indent].lstrip(" \t") + line[indent:]


@cache
def _verdict(mode: Mode) -> re.Pattern[str]:
    tag = verdict_tag(mode)
    after = _OUT_OF_TEN if mode is Mode.POINTWISE else _AFTER
    return re.compile(rf"<{tag}>{_BEFORE}{_NOUNS}([A-Za-z0-9]+){after}</{tag}>")


@cache
def _sha256() -> str:
    digest = hashlib.sha256()
    for mode in MODEL_MODES:
        for tools in (True, False):
            text = FORMAT.render_prompt(
                mode,
                prompt="<prompt>",  # broken, so that the note is there
                responses=[""] * (1 if mode is Mode.POINTWISE else 2),
                reference="",
                criteria=[Criterion(name="name", text="text")],
                rubric="",
                tools=tools,
                max_tool_calls=1,
                prompt_chars=100,
                response_chars=100,
            )
            digest.update(text.encode())
        forcing = FORMAT.forcing(mode, labels=("1",))
        digest.update((forcing.opening + forcing.closing + forcing.question).encode())
    digest.update((MORE_TOOLS + FUNCTIONS + OUTPUT_FENCE + observation_text("")).encode())
    return digest.hexdigest()


FORMAT = Tirjudge2()

"""A candidate's code in its own process: find it in a text, and call one of its functions.

This module imports only the standard library, because the isolated interpreter imports it too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

MAX_VALUE_CHARS = 1 << 20
"""Maximum length of the value that a candidate's function returns, as JSON."""

_PYTHON = frozenset({"python", "py", "python3", "py3"})


def code_in(text: str) -> str:
    """Return the code of a candidate: the longest block fenced as Python; else the longest fenced block; else the whole text.

    A block that is still open at the end of the text counts. Linear time.
    """
    blocks: list[tuple[bool, str]] = []
    lines: list[str] = []
    fence, is_python = "", False
    for line in text.split("\n"):
        bare = line.strip()
        mark = bare[: len(bare) - len(bare.lstrip(bare[0]))] if bare[:3] in ("```", "~~~") else ""
        if fence:
            if mark.startswith(fence) and bare == mark:
                blocks.append((is_python, "\n".join([*lines, ""])))
                fence = ""
            else:
                lines.append(line)
        elif mark and mark[0] not in bare[len(mark) :]:
            words = bare[len(mark) :].strip().split(maxsplit=1)
            fence, lines, is_python = mark, [], bool(words) and words[0].strip("{}.,:").lower() in _PYTHON
    if fence:
        blocks.append((is_python, "\n".join(lines)))
    filled = [block for block in blocks if block[1].strip()]
    return max(filled, key=lambda block: (block[0], len(block[1])))[1] if filled else text


def call_in(namespace: Mapping[str, Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Call a function of a candidate and return its value as JSON.

    Args:
        namespace: globals of the candidate's code.
        name: name of the function. `Solution.solve` calls the method of a new `Solution()`.

    Raises:
        NameError, AttributeError: the function does not exist.
        TypeError, ValueError: the value is not JSON, or too large.
    """
    first, *rest = name.split(".")
    if first not in namespace:
        raise NameError(f"name {first!r} is not defined")
    target = namespace[first]
    for part in rest:
        target = getattr(target() if isinstance(target, type) else target, part)
    text = json.dumps(target(*args, **kwargs))
    if len(text) > MAX_VALUE_CHARS:
        raise ValueError(f"the value has {len(text):,} characters as JSON, the limit is {MAX_VALUE_CHARS:,}")
    return text

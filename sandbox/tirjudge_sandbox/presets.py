"""Presets: choose the warm interpreter of a program, the smallest one that has already imported the program's packages.

A preset only changes what is imported before the program starts, never what the program can import. The choice is based
on a search of the program's text. A program that hides its imports still works, but more slowly. This module imports
only the standard library, because the isolated interpreter imports it too.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import StrEnum


class Preset(StrEnum):
    """Kinds of warm interpreter, in increasing cost of a fork."""

    STDLIB = "stdlib"
    NUMPY = "numpy"
    SYMPY = "sympy"
    SCI = "sci"

    @property
    def packages(self) -> tuple[str, ...]:
        """Import names of the packages that the interpreter has imported, if they are installed."""
        return _PACKAGES[self]


_PACKAGES = {
    Preset.STDLIB: (),
    Preset.NUMPY: ("numpy",),
    Preset.SYMPY: ("mpmath", "sympy"),
    Preset.SCI: ("mpmath", "numpy", "pandas", "scipy", "sympy"),
}
_WARM_SOMEWHERE = frozenset(_PACKAGES[Preset.SCI])

_MENTION = re.compile("|".join(sorted(_WARM_SOMEWHERE)))
_IMPORT = re.compile(r"(?:^|[;:])[ \t]*(?:from|import)[ \t]+([^;:\n#]+)", re.MULTILINE)
"""The rest of a statement after `import` or `from`. Matches do not overlap, so a search takes linear time on any
text."""
_WORD = re.compile(r"[A-Za-z_]+")


def imported(code: str) -> frozenset[str]:
    """Return the packages of any preset that a program seems to import. A wrong guess only costs time."""
    if not _MENTION.search(code):
        return frozenset()
    words = {word for match in _IMPORT.finditer(code) for word in _WORD.findall(match[1])}
    return _WARM_SOMEWHERE & words


def preset_for(code: str, *, offered: Collection[str]) -> Preset:
    """Return the smallest preset that has imported all packages that a program imports.

    Args:
        code: Python source. It is searched, not parsed.
        offered: import names of the packages that programs can import.
    """
    wanted = imported(code).intersection(offered)
    return next(preset for preset in Preset if wanted.issubset(preset.packages))

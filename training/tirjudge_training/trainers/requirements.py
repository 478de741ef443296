"""An option of a library that must have a certain value, and why: else the library computes something other than Eq. 2."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Requirement:
    """What one option has to be."""

    option: str
    needed: Any
    why: str
    default: Any = None
    """The library's own; only named where the option is given to a process that we do not see into."""
    at_least: bool = False
    """Whether more than `needed` is as good."""

    def accepts(self, found: Any) -> bool:
        as_numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (found, self.needed))
        if not as_numbers:
            return found == self.needed and isinstance(found, bool) == isinstance(self.needed, bool)
        return found >= self.needed if self.at_least else math.isclose(found, self.needed)

    def check(self, found: Any, *, key: str) -> None:
        """Raises ValueError for another value."""
        if not self.accepts(found):
            raise ValueError(f"{key}: {found!r} found, {self.needed!r} needed: {self.why}")

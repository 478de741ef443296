"""Options of a training library that must have a certain value. With a different value, the library does not compute
equation 2 of the paper."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Requirement:
    """The required value of one option."""

    option: str
    """Name of the option in the library."""
    needed: Any
    """Required value."""
    why: str
    """Reason, for the error message."""
    default: Any = None
    """Default of the library. Set only if the library runs in a separate process whose configuration cannot be read."""
    at_least: bool = False
    """Whether values above `needed` are accepted too."""

    def accepts(self, found: Any) -> bool:
        """Whether a value fulfills the requirement."""
        as_numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (found, self.needed))
        if not as_numbers:
            return found == self.needed and isinstance(found, bool) == isinstance(self.needed, bool)
        return found >= self.needed if self.at_least else math.isclose(found, self.needed)

    def check(self, found: Any, *, key: str) -> None:
        """Check a value; `key` is the key of the recipe that sets the option.

        Raises:
            ValueError: the value does not fulfill the requirement.
        """
        if not self.accepts(found):
            raise ValueError(f"{key}: expected {self.needed!r}, got {found!r}: {self.why}")

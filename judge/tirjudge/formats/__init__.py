"""Prompt formats, one per module. Other packages register formats under the entry point group `tirjudge.formats`."""

from __future__ import annotations

from functools import cache

from tirjudge.formats.base import Format
from tirjudge.kinds import Kinds

FORMATS: Kinds[Format] = Kinds("tirjudge.formats", what="format")
"""Installed formats, by name and version, such as `tirjudge/1`."""

DEFAULT_FORMAT = "tirjudge/1"


@cache
def format_named(name: str | None) -> Format:
    """Return the format with that name. None: the default format.

    Raises:
        ValueError: unknown name. The message lists the installed formats.
    """
    if name in (None, DEFAULT_FORMAT):  # fast path: does not scan the entry points of installed packages
        from tirjudge.formats.tirjudge_1 import FORMAT

        return FORMAT
    return FORMATS.named(name)

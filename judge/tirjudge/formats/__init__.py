"""Prompt formats, one a file; other packages add theirs under the entry point group `tirjudge.formats`."""

from __future__ import annotations

from functools import cache

from tirjudge.formats.base import Format
from tirjudge.kinds import Kinds

FORMATS: Kinds[Format] = Kinds("tirjudge.formats", what="format")
"""By name and version, such as `tirjudge/1`."""

DEFAULT_FORMAT = "tirjudge/1"


@cache
def format_named(name: str | None) -> Format:
    """The format of that name; None: the default one.

    Raises:
        ValueError: there is none. The message lists the names that are known.
    """
    if name in (None, DEFAULT_FORMAT):  # without a look at all that is installed
        from tirjudge.formats.tirjudge_1 import FORMAT

        return FORMAT
    return FORMATS.named(name)

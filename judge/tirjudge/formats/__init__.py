"""Prompt formats, one per module. Other packages register formats under the entry point group `tirjudge.formats`."""

from __future__ import annotations

from functools import cache

from tirjudge.formats.base import Format
from tirjudge.kinds import Kinds

FORMATS: Kinds[Format] = Kinds("tirjudge.formats", what="format")
"""Installed formats, by name and version, such as `tirjudge/1`."""

FIRST_FORMAT = "tirjudge/1"
"""Format of the bundled judge, and of all checkpoints, records and runs that were made before formats had names."""

DEFAULT_FORMAT = "tirjudge/2"
"""Format of a model whose checkpoint names none."""


@cache
def format_named(name: str | None) -> Format:
    """Return the format with that name. None: the default format.

    Raises:
        ValueError: unknown name. The message lists the installed formats.
    """
    # Formats of this package: do not scan the entry points of installed packages, which takes long.
    if name == FIRST_FORMAT:
        from tirjudge.formats.tirjudge_1 import FORMAT

        return FORMAT
    if name in (None, DEFAULT_FORMAT):
        from tirjudge.formats.tirjudge_2 import FORMAT

        return FORMAT
    return FORMATS.named(name)

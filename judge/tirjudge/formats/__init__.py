"""Prompt formats: one per module, and those of other judges, one file each in `others`. Other packages register formats
under the entry point group `tirjudge.formats`."""

from __future__ import annotations

from functools import cache

from tirjudge.formats.base import Format
from tirjudge.kinds import Kinds

FORMATS: Kinds[Format] = Kinds("tirjudge.formats", what="format")
"""Installed formats, by name and version, such as `tirjudge/1`."""

FIRST_FORMAT = "tirjudge/1"
"""Format of the first generation of the bundled judge, and of all checkpoints, records and runs from before formats had
names."""

DEFAULT_FORMAT = "tirjudge/2"
"""Format of a model whose checkpoint names none."""


SUFFIX = ".toml"
"""Suffix of format files."""


def is_file(name: str) -> bool:
    """Whether a name of a format is that of a user's file: `PATH.toml`, or `PATH.toml#HASH`."""
    return name.endswith(SUFFIX) or f"{SUFFIX}#" in name


def shown_name(name: str) -> str:
    """Return the name of a format for clients. A user's file is shown without its folder.

    >>> shown_name("/home/me/mine.toml#801f"), shown_name("tirjudge/2")
    ('mine.toml#801f', 'tirjudge/2')
    """
    return name.rpartition("/")[2] if is_file(name) else name


@cache
def format_named(name: str | None) -> Format:
    """Return the format with that name. None: the default format.

    Args:
        name: name of an installed format or of a format of another judge, or the path of a format file (`*.toml`).

    Raises:
        ValueError: unknown name, or the file is not a format. The message lists the formats.
    """
    # Formats of this package: do not scan the entry points of installed packages, which takes long.
    if name == FIRST_FORMAT:
        from tirjudge.formats.tirjudge_1 import FORMAT

        return FORMAT
    if name in (None, DEFAULT_FORMAT):
        from tirjudge.formats.tirjudge_2 import FORMAT

        return FORMAT
    from tirjudge.formats.declared import format_of_file, shipped_format, shipped_names

    if is_file(name):
        return format_of_file(name)
    declared = shipped_format(name)
    if declared is not None:
        return declared
    if name not in FORMATS:
        raise ValueError(
            f"unknown format {name!r}; installed: {', '.join(FORMATS)}; of other judges: {', '.join(shipped_names())}; "
            "or give the path of a format file (docs/formats.md), or install a package with an entry point in the group "
            f"{FORMATS.group} (docs/adding-kinds.md)"
        )
    return FORMATS[name]

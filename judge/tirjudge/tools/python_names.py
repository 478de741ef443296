"""Python names for the names of other systems, such as `brave-search` or `from`."""

from __future__ import annotations

import builtins
import keyword
import sys

OF_PROGRAMS = frozenset(
    {
        "run",
        "run_many",
        "tests",
        "prompt",
        "response",
        "responses",
        "reference",
        *dir(builtins),
        *sys.stdlib_module_names,
    }
)
"""Global names that programs use for other things: functions, bindings, builtins and modules."""

MAX_CHARS = 80
"""Length in characters to which a name is cut."""


def python_name(name: str, *, taken: frozenset[str] = frozenset()) -> str:
    """Return an identifier for a name: other characters become `_`; a keyword or a taken name gets `_` at its end.

    Raises:
        ValueError: the name has no letter or digit.

    >>> python_name("brave-search"), python_name("from"), python_name("2d"), python_name("time", taken=OF_PROGRAMS)
    ('brave_search', 'from_', '_2d', 'time_')
    """
    made = "".join(character if character.isascii() and character.isalnum() else "_" for character in name[:MAX_CHARS])
    if not made.strip("_"):
        raise ValueError(f"{name!r}: no name of Python can be made of it")
    if made[0].isdigit():
        made = f"_{made}"
    return f"{made}_" if keyword.iskeyword(made) or made in taken else made

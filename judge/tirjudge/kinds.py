"""Registries of named plug-ins (kinds), found through entry points of installed packages and loaded on first use.

A plug-in is one module and one line of its package's `pyproject.toml`:

    [project.entry-points."tirjudge.tools"]
    python = "tirjudge.tools.python:TOOL"

Formats, tools, engines, strategies, dialects, trainers and benchmarks are registered this way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

K = TypeVar("K")


class Kinds(Mapping[str, K], Generic[K]):
    """Mapping of all installed kinds of one group, sorted by name. A lookup imports the object of that name.

    Args:
        group: entry point group, such as `tirjudge.tools`.
        what: singular noun for error messages, such as `tool`.
    """

    def __init__(self, group: str, *, what: str) -> None:
        self.group = group
        self.what = what

    @cached_property
    def _points(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in sorted(entry_points(group=self.group), key=lambda point: point.name)}

    def __getitem__(self, name: str) -> K:
        return self._points[name].load()

    def __iter__(self) -> Iterator[str]:
        return iter(self._points)

    def __len__(self) -> int:
        return len(self._points)

    def __contains__(self, name: Any) -> bool:
        return name in self._points

    def named(self, name: str) -> K:
        """Return the object registered under a name.

        Raises:
            ValueError: the name is not registered. The message lists the registered names and says how to add one.
        """
        if name not in self._points:
            raise ValueError(
                f"unknown {self.what} {name!r}; installed: {', '.join(self._points) or 'none'}; "
                f"to add one, install a package with an entry point in the group {self.group} (docs/adding-kinds.md)"
            )
        return self[name]

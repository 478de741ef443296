"""Kinds of a thing, by name: ours and those of other packages, found through entry points and loaded when one is used.

A kind is one file and one line of `pyproject.toml`:

    [project.entry-points."tirjudge.tools"]
    python = "tirjudge.tools.python:TOOL"

Formats, tools, engines, strategies, dialects, trainers and benchmarks are found this way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

K = TypeVar("K")


class Kinds(Mapping[str, K], Generic[K]):
    """All kinds that are installed, sorted by name; the object of a name is loaded when it is looked up.

    Args:
        group: of the entry points, such as `tirjudge.tools`.
        what: one of them in words, for messages, such as `tool`.
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
        """The kind of that name.

        Raises:
            ValueError: there is none. The message lists the names that are known.
        """
        if name not in self._points:
            raise ValueError(f"{self.what}: {name!r} given; known are {', '.join(self._points)}")
        return self[name]

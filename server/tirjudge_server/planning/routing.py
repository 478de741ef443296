"""Which engine a turn goes to, as one server sees its engines."""

from __future__ import annotations

from enum import StrEnum


class Routing(StrEnum):
    AFFINITY = "affinity"
    """A rollout stays where it began, the least loaded engine then."""
    LEAST_LOADED = "least_loaded"
    """Every turn goes to the engine that is least loaded."""


class Loads:
    """The turns under way at each engine, and who has the fewest. Of equals, the one that was passed over longest."""

    def __init__(self, num_engines: int) -> None:
        self._loads = [0] * num_engines
        self._levels: list[dict[int, None]] = [dict.fromkeys(range(num_engines))]
        """Load -> those that have it, in the order in which they came to it."""
        self._down: set[int] = set()

    def least(self) -> int | None:
        """None: all are down."""
        return next((next(iter(level)) for level in self._levels if level), None)

    def add(self, engine: int, change: int) -> None:
        """So many more turns, 1 or -1."""
        before = self._loads[engine]
        self._loads[engine] = after = before + change
        if engine in self._down:
            return
        del self._levels[before][engine]
        self._put(engine, after)

    def take_down(self, engine: int) -> None:
        """Send it nothing more."""
        self._down.add(engine)
        del self._levels[self._loads[engine]][engine]

    def bring_up(self, engine: int) -> None:
        self._down.remove(engine)
        self._put(engine, self._loads[engine])

    def is_up(self, engine: int) -> bool:
        return engine not in self._down

    def _put(self, engine: int, load: int) -> None:
        while len(self._levels) <= load:
            self._levels.append({})
        self._levels[load][engine] = None

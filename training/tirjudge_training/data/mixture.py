"""How many items of which source and mode make the mixture, and which mode a problem is used in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tirjudge.types import Mode
from tirjudge_training.data.sources import SOURCES, Source, find_source

PAPER_COUNTS: Mapping[Mode, int] = {Mode.POINTWISE: 12_450, Mode.PAIRWISE: 12_450, Mode.LISTWISE: 1_461}
"""Of the whole mixture; 26,361 in sum (TIR-Judge, Table 6)."""


def chosen_sources(names: Sequence[str] = (), *, only: Sequence[str] = (), commercial: bool = False) -> list[Source]:
    """The sources of a mixture, in the order of Table 6.

    Args:
        names: those that are wanted; empty: all.
        only: tasks, for a mixture of a single domain or of some; empty: all.
        commercial: leave out those whose licence forbids commercial use.

    Raises:
        ValueError: a name or a task that there is not, or nothing is left.
    """
    wanted = {find_source(name).name for name in names} or set(SOURCES)
    tasks = {source.task for source in SOURCES.values()}
    for task in only:
        if task not in tasks:
            raise ValueError(f"only: {task!r} given; tasks are {', '.join(sorted(tasks))}")
    left = [
        source
        for source in SOURCES.values()
        if source.name in wanted and (not only or source.task in only) and (source.commercial or not commercial)
    ]
    if not left:
        raise ValueError("no source is left; sources, only and commercial exclude one another")
    return left


def wanted_of(source: Source, *, scale: float) -> dict[Mode, int]:
    """Items of each mode that a source gives at a scale; of what it gives at all, at least one.

    Raises:
        ValueError: a scale that is not greater than 0 and at most 1.
    """
    if not 0 < scale <= 1:
        raise ValueError(f"scale: {scale} given, it is greater than 0 and at most 1")
    return {mode: max(1, round(count * scale)) for mode, count in source.wanted.items() if count}


class MixtureQuota:
    """What a source has still to give. Each problem is used once, in the mode that lags behind most."""

    def __init__(self, wanted: Mapping[Mode, int]) -> None:
        self._wanted = dict(wanted)
        self._made = dict.fromkeys(wanted, 0)

    @property
    def made(self) -> dict[Mode, int]:
        return dict(self._made)

    @property
    def is_filled(self) -> bool:
        return all(self._made[mode] >= count for mode, count in self._wanted.items())

    def mode_for(self, possible: Sequence[Mode]) -> Mode | None:
        """The mode to use a problem in; None: none of the possible ones is needed any more."""
        needed = [mode for mode in self._wanted if mode in possible and self._made[mode] < self._wanted[mode]]
        return min(needed, key=lambda mode: self._made[mode] / self._wanted[mode], default=None)

    def count(self, mode: Mode) -> None:
        self._made[mode] += 1

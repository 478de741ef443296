"""Composition of the mixture: the number of items per source and mode, and the mode in which a problem is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tirjudge.types import Mode
from tirjudge_training.data.sources import SOURCES, Source, find_source

PAPER_COUNTS: Mapping[Mode, int] = {Mode.POINTWISE: 12_450, Mode.PAIRWISE: 12_450, Mode.LISTWISE: 1_461}
"""Numbers of items in the complete mixture, 26,361 in total (TIR-Judge, Table 6)."""


def chosen_sources(names: Sequence[str] = (), *, only: Sequence[str] = (), commercial: bool = False) -> list[Source]:
    """Return the sources of a mixture, in the order of Table 6.

    Args:
        names: Names of sources. Empty: all.
        only: Tasks to include. Empty: all.
        commercial: Whether to exclude sources whose license forbids commercial use.

    Raises:
        ValueError: a name or a task is unknown, or no source is left.
    """
    wanted = {find_source(name).name for name in names} or set(SOURCES)
    tasks = {source.task for source in SOURCES.values()}
    for task in only:
        if task not in tasks:
            raise ValueError(f"only: unknown task {task!r}; the tasks are {', '.join(sorted(tasks))}")
    left = [
        source
        for source in SOURCES.values()
        if source.name in wanted and (not only or source.task in only) and (source.commercial or not commercial)
    ]
    if not left:
        raise ValueError("no source is left; relax sources, only or commercial")
    return left


def wanted_of(source: Source, *, scale: float) -> dict[Mode, int]:
    """Return the number of items of each mode to take from a source, at least 1 for each mode that it provides.

    Args:
        source: The source.
        scale: Share of the paper's counts.

    Raises:
        ValueError: `scale` is not greater than 0 and at most 1.
    """
    if not 0 < scale <= 1:
        raise ValueError(f"scale: expected a number greater than 0 and at most 1, got {scale}")
    return {mode: max(1, round(count * scale)) for mode, count in source.wanted.items() if count}


class MixtureQuota:
    """Remaining number of items of each mode for one source. Each problem is used once, in the mode with the lowest share
    of collected items."""

    def __init__(self, wanted: Mapping[Mode, int]) -> None:
        self._wanted = dict(wanted)
        self._made = dict.fromkeys(wanted, 0)

    @property
    def made(self) -> dict[Mode, int]:
        """Number of collected items so far, by mode."""
        return dict(self._made)

    @property
    def is_filled(self) -> bool:
        """Whether all counts are reached."""
        return all(self._made[mode] >= count for mode, count in self._wanted.items())

    def mode_for(self, possible: Sequence[Mode]) -> Mode | None:
        """Return the mode to use a problem in; None if the counts of all possible modes are reached."""
        needed = [mode for mode in self._wanted if mode in possible and self._made[mode] < self._wanted[mode]]
        return min(needed, key=lambda mode: self._made[mode] / self._wanted[mode], default=None)

    def count(self, mode: Mode) -> None:
        """Count one more item of a mode."""
        self._made[mode] += 1

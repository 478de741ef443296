"""Coverage and selective accuracy: how often a judge gives a verdict, and how often such a verdict is right.

    coverage   share of the items with a verdict; a tie is a verdict, an abstention is not
    accuracy   mean credit of the items with a verdict
    by basis   of the verdicts with one basis: their share of all items, and their mean credit

The shares of all bases add up to the coverage. Benchmarks, `tirjudge judge`, validation and the model card share this
definition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tirjudge.statistics import ratio, wilson_interval
from tirjudge.types import Basis, Judgment

UNKNOWN = "unknown"
"""Name of the basis of a verdict from before the basis was recorded, or of another program."""

BASES = ("checked", "reasoned", "guessed", UNKNOWN)
"""Names of all bases, best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradedItem:
    """An item with a label that was judged."""

    credit: float
    """0: wrong, 1: right, or the credit of a tie. Ignored without a verdict."""
    has_verdict: bool
    """Whether the judge gave a verdict."""
    basis: Basis | None
    """Basis of the verdict. None: no verdict, or not known."""

    @classmethod
    def of(cls, judgment: Judgment, *, credit: float) -> GradedItem:
        """Return the item of a whole judgment."""
        verdict = judgment.verdict
        return cls(credit=credit, has_verdict=verdict.status != "abstained", basis=verdict.basis)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictGroup:
    """Some of the verdicts on all items."""

    num: int
    """Number of verdicts."""
    num_items: int
    """Number of all items, those without a verdict included."""
    credit: float
    """Sum of their credits."""

    @property
    def share(self) -> float | None:
        """Share of all items. None: no items."""
        return ratio(self.num, of=self.num_items)

    @property
    def accuracy(self) -> float | None:
        """Mean credit. None: no verdicts."""
        return ratio(self.credit, of=self.num)

    @property
    def interval(self) -> list[float] | None:
        """Wilson's 95 % interval of the accuracy: lower and upper end. None: no verdicts."""
        return list(wilson_interval(self.credit, num_trials=self.num)) if self.num else None

    def as_json(self) -> dict[str, Any]:
        """Return all figures; rates are from 0 to 1."""
        return {"num": self.num, "share": self.share, "accuracy": self.accuracy, "interval": self.interval}


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectiveAccuracy:
    """Coverage and accuracy over the items with a verdict."""

    verdicts: VerdictGroup
    """All verdicts. Their share is the coverage."""
    by_basis: dict[str, VerdictGroup]
    """Name of a basis -> its verdicts. `unknown` only if there are such verdicts."""

    @property
    def coverage(self) -> float | None:
        """Share of the items with a verdict. None: no items."""
        return self.verdicts.share

    @property
    def accuracy(self) -> float | None:
        """Accuracy over the items with a verdict. None: no verdicts."""
        return self.verdicts.accuracy

    def as_json(self) -> dict[str, Any]:
        """Return all figures; rates are from 0 to 1."""
        return {
            "num_items": self.verdicts.num_items,
            "coverage": self.coverage,
            "accuracy": self.accuracy,
            "interval": self.verdicts.interval,
            "by_basis": {name: group.as_json() for name, group in self.by_basis.items()},
        }


def basis_name(item: GradedItem) -> str | None:
    """Return the name of the basis of an item's verdict; None without a verdict."""
    return (item.basis or UNKNOWN) if item.has_verdict else None


def selective_accuracy(items: Iterable[GradedItem]) -> SelectiveAccuracy:
    """Return coverage and accuracy over items with a label."""
    named = [(basis_name(item), item.credit) for item in items]

    def group(*names: str) -> VerdictGroup:
        credits = [credit for name, credit in named if name in names]
        return VerdictGroup(num=len(credits), num_items=len(named), credit=sum(credits))

    found = {name: group(name) for name in BASES}
    if not found[UNKNOWN].num:
        del found[UNKNOWN]
    return SelectiveAccuracy(verdicts=group(*BASES), by_basis=found)

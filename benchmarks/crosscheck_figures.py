"""One figure held against the one that is published, and figures of a sheet computed from what is given for its parts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tirjudge_harness.benchmark import Benchmark
from tirjudge_harness.examples import ExampleMetadata
from tirjudge_harness.metric_tree import ComparisonScore, Mean, MeanMetric, Node
from tirjudge_harness.statistics.intervals import value_of

Verdict = Literal["same", "cut", "explained", "differs"]

EVERYTHING = MeanMetric(name="all", holds=lambda mark: True)

_EXACT = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One figure."""

    case: str
    figure: str
    published: float
    ours: float
    difference: float
    """Ours less what is published."""
    verdict: Verdict
    why: str = ""
    """Why they differ, where they do."""


def compared(
    case: str,
    figure: str,
    *,
    published: float,
    ours: float,
    digits: int | None = None,
    slack: float = 0.0,
    reason: str = "",
) -> Check:
    """Hold a figure against the one that is published.

    Args:
        case, figure: names.
        published: as printed.
        ours: unrounded.
        digits: decimals that were printed; None: all.
        slack: how far it may be off besides.
        reason: why it differs; empty: no reason is known.
    """
    step = _EXACT if digits is None else 10.0**-digits
    difference = ours - published
    if abs(difference) <= max(step / 2, slack) + _EXACT:
        verdict, why = "same", ""
    elif digits is not None and math.isclose(math.floor(ours / step + _EXACT) * step, published, abs_tol=_EXACT):
        verdict, why = "cut", "printed without rounding"
    else:
        verdict, why = ("explained" if reason else "differs"), reason
    return Check(
        case=case,
        figure=figure,
        published=published,
        ours=round(ours, 12),
        difference=round(difference, 12),
        verdict=verdict,
        why=why,
    )


def marks_with(shares: Mapping[str, float], *, nums: Mapping[str, int] | None = None) -> list[ComparisonScore]:
    """Marks whose mean credit in each subset is what is given.

    Args:
        shares: by subset.
        nums: how many marks each subset has; None: one.
    """
    marks: list[ComparisonScore] = []
    for subset, share in shares.items():
        outline = ExampleMetadata(id=subset, subset=subset, num_responses=2, correct=(0,), cluster=subset)
        mark = ComparisonScore(outline=outline, compared=(0, 1), credit=share, result="right")
        marks += [mark] * (nums[subset] if nums else 1)
    return marks


def figure_of(benchmark: Benchmark, name: str) -> Node:
    """A figure of a benchmark's sheet."""
    return next(node for node in _walk(benchmark.sheet) if node.name == name)


def _walk(nodes: Sequence[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        if isinstance(node, Mean):
            yield from _walk(node.parts)


def value(node: Node, marks: Sequence[ComparisonScore]) -> float:
    """The value of a figure.

    Raises:
        ValueError: it has none.
    """
    found = value_of(node, marks, [])
    if found is None:
        raise ValueError(f"{node.name}: has no value")
    return found

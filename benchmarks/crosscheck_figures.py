"""Compare a figure with a published one, and compute figures of a metric tree from given figures of its parts."""

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
"""Metric: the mean credit (0 to 1) of all scored comparisons."""

_EXACT = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A published figure and ours."""

    case: str
    figure: str
    published: float
    ours: float
    difference: float
    """`ours` minus `published`."""
    verdict: Verdict
    why: str = ""
    """Reason for the difference. Empty: there is no difference, or the reason is not known."""


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
    """Compare a figure with a published one.

    Args:
        case: name of the case.
        figure: name of the figure.
        published: as printed.
        ours: our figure, unrounded.
        digits: number of printed decimals. None: not rounded.
        slack: maximum difference that counts as rounding of the parts.
        reason: why our figure may differ from the published one. Empty: no known reason.
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
    """Return scored comparisons such that each subset has the given mean credit.

    Args:
        shares: subset -> mean credit.
        nums: subset -> number of comparisons. None: one per subset.
    """
    marks: list[ComparisonScore] = []
    for subset, share in shares.items():
        outline = ExampleMetadata(id=subset, subset=subset, num_responses=2, correct=(0,), cluster=subset)
        mark = ComparisonScore(outline=outline, compared=(0, 1), credit=share, result="right")
        marks += [mark] * (nums[subset] if nums else 1)
    return marks


def figure_of(benchmark: Benchmark, name: str) -> Node:
    """Return the node of a benchmark's metric tree with this name."""
    return next(node for node in _walk(benchmark.sheet) if node.name == name)


def _walk(nodes: Sequence[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        if isinstance(node, Mean):
            yield from _walk(node.parts)


def value(node: Node, marks: Sequence[ComparisonScore]) -> float:
    """Return the value of a figure.

    Raises:
        ValueError: the figure has no value, because no comparison belongs to it.
    """
    found = value_of(node, marks, [])
    if found is None:
        raise ValueError(f"{node.name}: has no value")
    return found

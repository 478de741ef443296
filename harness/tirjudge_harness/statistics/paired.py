"""Two runs over the same comparisons: what is between them, and whether that could be chance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.metric_tree import ComparisonScore, MeanMetric, Node
from tirjudge_harness.statistics.binomial import binomial_test
from tirjudge_harness.statistics.intervals import (
    NUM_RESAMPLES,
    Basis,
    Interval,
    basis_of,
    middle_of,
    number,
    resampled,
    walk,
)

EVERYTHING = MeanMetric(name="all comparisons", holds=lambda mark: True)

Spoken = TypeVar("Spoken", ComparisonScore, JudgedExample)


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What two runs share, in one order, and how much they do not."""

    first: list[ComparisonScore]
    second: list[ComparisonScore]
    only_first: int
    """Comparisons that the second run has not."""
    only_second: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One figure of two runs."""

    name: str
    depth: int
    num_common: int
    """Comparisons of both runs that it rests on; a formula rests on examples, and counts those."""
    first: float | None
    second: float | None
    difference: float | None
    """Second less first; None where either is missing."""
    interval: Interval | None
    """95 %, from resamples of the prompts, the same ones for both runs; None of one prompt."""
    num_better: int
    """Comparisons of which the second run earned more."""
    num_worse: int
    p_value: float | None
    """McNemar's exact test of better against worse, which counts each comparison alike and as if they were
    independent; None where there is no comparison, as for formulas."""


def common_of(first: Sequence[ComparisonScore], second: Sequence[ComparisonScore]) -> Common:
    """The comparisons that two runs have in common.

    Raises:
        ValueError: there is none, or a run has one twice with different marks.
    """
    firsts, seconds = _by_comparison(first), _by_comparison(second)
    keys = sorted(firsts.keys() & seconds.keys())
    if not keys:
        raise ValueError(
            f"runs: {len(firsts)} and {len(seconds)} comparisons given, none of which both have;"
            " give two runs of one benchmark, in modes that compare the same responses"
        )
    return Common(
        first=[firsts[key] for key in keys],
        second=[seconds[key] for key in keys],
        only_first=len(firsts) - len(keys),
        only_second=len(seconds) - len(keys),
    )


def differences_of(
    sheet: Sequence[Node],
    common: Common,
    *,
    judged: tuple[Sequence[JudgedExample], Sequence[JudgedExample]] = ((), ()),
    num_resamples: int = NUM_RESAMPLES,
    seed: int = 0,
) -> list[Difference]:
    """Each figure of a sheet in both runs, over what they have in common.

    Args:
        sheet: what is computed; `[EVERYTHING]` for the mean over all comparisons alone.
        common: their marks.
        judged: what formulas are computed from, of each run; examples of one run alone are left out.
        num_resamples: for intervals.
        seed: of the draws.
    """
    both = {one.outline.id for one in judged[0]} & {one.outline.id for one in judged[1]}
    clusters = {one.outline.id: one.outline.cluster for one in (*common.first, *judged[0])}
    first, second = (
        basis_of(
            sheet,
            [_clustered(mark, clusters) for mark in marks],
            [
                _clustered(one, clusters)
                for one in sorted(of_it, key=lambda one: one.outline.id)
                if one.outline.id in both
            ],
        )
        for marks, of_it in zip((common.first, common.second), judged, strict=True)
    )
    firsts = resampled(first, num_resamples=num_resamples, seed=seed)
    seconds = resampled(second, num_resamples=num_resamples, seed=seed)
    gains = np.sign([b.credit - a.credit for a, b in zip(common.first, common.second, strict=True)])
    return [
        _difference(node, depth=depth, basis=first, values=(firsts[node], seconds[node]), gains=gains)
        for node, depth in walk(sheet)
    ]


def mcnemar(*, num_better: int, num_worse: int) -> float:
    """The exact two-sided p-value of so many changes each way, if each way were equally likely."""
    return binomial_test(num_better, num_trials=num_better + num_worse)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values corrected for their number, by Holm's step-down rule, in the order given.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        highest = max(highest, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = highest
    return adjusted


def _by_comparison(marks: Sequence[ComparisonScore]) -> dict[tuple[str, tuple[int, ...], int], ComparisonScore]:
    """By example, responses and number: a benchmark may count a comparison several times, each with the same mark."""
    found: dict[tuple[str, tuple[int, ...], int], ComparisonScore] = {}
    times: Counter[tuple[str, tuple[int, ...]]] = Counter()
    for mark in marks:
        about = (mark.outline.id, mark.compared)
        if times[about] and found[*about, 0] != mark:
            raise ValueError(f"marks: {mark.outline.id!r} has two for the comparison of {mark.compared}")
        found[*about, times[about]] = mark
        times[about] += 1
    return found


def _clustered(one: Spoken, clusters: Mapping[str, str]) -> Spoken:
    """Under the first run's name for its cluster: it hangs on what else was loaded, and draws go by names."""
    return replace(one, outline=replace(one.outline, cluster=clusters[one.outline.id]))


def _difference(
    node: Node,
    *,
    depth: int,
    basis: Basis,
    values: tuple[np.ndarray, np.ndarray],
    gains: np.ndarray,
) -> Difference:
    first, second = values
    held = gains[basis.holds[node]]
    num_better, num_worse = int((held > 0).sum()), int((held < 0).sum())
    return Difference(
        name=node.name,
        depth=depth,
        num_common=len(held) + len(basis.judged[node]),
        first=number(first[0]),
        second=number(second[0]),
        difference=number(second[0] - first[0]),
        interval=middle_of(second - first, num_clusters=len(basis.clusters(node))),
        num_better=num_better,
        num_worse=num_worse,
        p_value=mcnemar(num_better=num_better, num_worse=num_worse) if len(held) else None,
    )

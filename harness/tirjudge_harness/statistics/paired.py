"""Paired comparison of two runs: differences over their common comparisons, with intervals and p-values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.metric_tree import ComparisonScore, MeanMetric, Node
from tirjudge_harness.statistics.binomial import binomial_test
from tirjudge_harness.statistics.clustered import clustered_mean, difference_interval
from tirjudge_harness.statistics.intervals import (
    NUM_RESAMPLES,
    ClusterSums,
    Interval,
    MetricInputs,
    codes_of,
    has_formula,
    metric_inputs,
    middle_of,
    number,
    resampled,
    walk,
)

EVERYTHING = MeanMetric(name="all comparisons", holds=lambda mark: True)
"""The mean over all comparisons."""

Scored = TypeVar("Scored", ComparisonScore, JudgedExample)


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """The common comparisons of two runs."""

    first: list[ComparisonScore]
    """Scores of the first run."""
    second: list[ComparisonScore]
    """Scores of the second run on the same comparisons, in the same order."""
    only_first: int
    """Number of comparisons that only the first run has."""
    only_second: int
    """Number of comparisons that only the second run has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The difference of two runs in one figure."""

    name: str
    """Name of the figure."""
    depth: int
    """Depth in the metric tree; 0 is a root."""
    num_common: int
    """Number of common comparisons of the figure; for a formula, of common examples."""
    first: float | None
    """Value in the first run. None: no value."""
    second: float | None
    """Value in the second run. None: no value."""
    difference: float | None
    """Second minus first. None: one of them has no value."""
    interval: Interval | None
    """95 % interval over prompts, of paired differences. None: fewer than two prompts, or the same difference in all
    resamples."""
    num_better: int | None
    """Number of comparisons on which the second run scores higher. None: no difference."""
    num_worse: int | None
    """Number of comparisons on which the second run scores lower. None: no difference."""
    p_value: float | None
    """McNemar's exact test of better against worse. Several comparisons of one prompt are one trial: whether more of them
    are better or worse. None: the figure has no comparisons, such as a formula, or no difference."""


NO_COMPARISONS = Common(first=[], second=[], only_first=0, only_second=0)
"""The common comparisons of runs whose figures are formulas, such as agreement with ratings."""


def common_of(first: Sequence[ComparisonScore], second: Sequence[ComparisonScore]) -> Common:
    """Return the common comparisons of two runs.

    Raises:
        ValueError: the runs have no common comparison, or a run has two different scores for one comparison.
    """
    firsts, seconds = _by_comparison(first), _by_comparison(second)
    keys = sorted(firsts.keys() & seconds.keys())
    if not keys:
        raise ValueError(
            f"runs: no common comparisons among {len(firsts)} and {len(seconds)};"
            " give two runs of one benchmark in modes that compare the same responses"
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
    """Return the difference in each figure of a metric tree, over the common comparisons of two runs.

    Args:
        sheet: roots of the metric tree; `[EVERYTHING]` for the mean over all comparisons.
        common: common comparisons of the runs.
        judged: examples of each run, for formulas. Examples that a formula takes from only one run are left out.
        num_resamples: number of bootstrap resamples, if the sheet has a formula.
        seed: seed of the resamples.
    """
    both = {one.outline.id for one in judged[0]} & {one.outline.id for one in judged[1]}
    clusters = {one.outline.id: one.outline.cluster for one in (*common.first, *judged[0])}
    first, second = (
        metric_inputs(
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
    first, second = _only_common(first, second), _only_common(second, first)
    sums = ClusterSums(first), ClusterSums(second)
    # A mean has a closed form if each of its cells has the same comparisons in both runs.
    is_paired = np.array_equal(sums[0].counts, sums[1].counts)
    num_drawn = 0 if is_paired and not any(map(has_formula, sheet)) else num_resamples
    firsts = resampled(first, num_resamples=num_drawn, seed=seed)
    seconds = resampled(second, num_resamples=num_drawn, seed=seed)
    gains = np.sign([b.credit - a.credit for a, b in zip(common.first, common.second, strict=True)])
    return [
        _difference(
            node,
            depth=depth,
            inputs=first,
            values=(firsts[node], seconds[node]),
            gains=gains,
            closed=_closed_interval(node, sums=sums) if is_paired else None,
        )
        for node, depth in walk(sheet)
    ]


def _only_common(inputs: MetricInputs, others: MetricInputs) -> MetricInputs:
    """Return inputs with the examples of each node that the same node has in `others`. A formula can take an example of one
    run only, such as one without a verdict in the other run."""
    known = {node: {one.outline.id for one in judged} for node, judged in others.judged.items()}
    return replace(
        inputs,
        judged={
            node: [one for one in judged if one.outline.id in known[node]] for node, judged in inputs.judged.items()
        },
    )


def mcnemar(*, num_better: int, num_worse: int) -> float:
    """Return the exact two-sided p-value of McNemar's test.

    Args:
        num_better: number of comparisons on which the second run scores higher.
        num_worse: number of comparisons on which it scores lower.
    """
    return binomial_test(num_better, num_trials=num_better + num_worse)


def _by_comparison(marks: Sequence[ComparisonScore]) -> dict[tuple[str, tuple[int, ...], int], ComparisonScore]:
    """Return comparison scores by example, responses and repetition. A benchmark may count one comparison several
    times."""
    found: dict[tuple[str, tuple[int, ...], int], ComparisonScore] = {}
    times: Counter[tuple[str, tuple[int, ...]]] = Counter()
    for mark in marks:
        about = (mark.outline.id, mark.compared)
        if times[about] and found[*about, 0] != mark:
            raise ValueError(
                f"marks: {mark.outline.id!r} has two different marks for the comparison of {mark.compared}"
            )
        found[*about, times[about]] = mark
        times[about] += 1
    return found


def _clustered(one: Scored, clusters: Mapping[str, str]) -> Scored:
    """Give a comparison score or example the cluster name of the first run, because draws depend on the names of
    clusters.

    The name of a cluster depends on which other examples a run loaded.
    """
    return replace(one, outline=replace(one.outline, cluster=clusters[one.outline.id]))


def _difference(
    node: Node,
    *,
    depth: int,
    inputs: MetricInputs,
    values: tuple[np.ndarray, np.ndarray],
    gains: np.ndarray,
    closed: Interval | None,
) -> Difference:
    first, second = values
    held = gains[inputs.holds[node]]
    names = [mark.outline.cluster for mark, is_held in zip(inputs.marks, inputs.holds[node], strict=True) if is_held]
    difference = number(second[0] - first[0])
    has_difference = difference is not None
    return Difference(
        name=node.name,
        depth=depth,
        num_common=len(held) + len(inputs.judged[node]),
        first=number(first[0]),
        second=number(second[0]),
        difference=difference,
        interval=closed or middle_of(second - first, num_clusters=len(inputs.clusters(node))),
        num_better=int((held > 0).sum()) if has_difference else None,
        num_worse=int((held < 0).sum()) if has_difference else None,
        p_value=_p_value(held, clusters=names) if names and has_difference else None,
    )


def _p_value(gains: np.ndarray, *, clusters: Sequence[str]) -> float:
    """Return McNemar's p-value with one trial per cluster: the sign of the sum of its gains, each -1, 0 or 1."""
    trials = np.bincount(codes_of(clusters), gains)
    return mcnemar(num_better=int((trials > 0).sum()), num_worse=int((trials < 0).sum()))


def _closed_interval(node: Node, *, sums: tuple[ClusterSums, ClusterSums]) -> Interval | None:
    first, second = sums
    weights = first.weights(node)
    if weights is None:
        return None
    found = clustered_mean(second.totals - first.totals, first.counts, weights=weights)
    return None if found is None else difference_interval(found)

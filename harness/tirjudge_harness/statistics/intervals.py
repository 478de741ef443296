"""Figures with 95 % confidence intervals.

The interval of a mean, or of a mean of means, has a closed form (`clustered`): Wilson's if every comparison score (`marks`)
has a different prompt. A figure with a formula has a bootstrap over prompts. A resample draws the clusters (prompts) with
replacement and takes all scores of each. One recursion over the metric tree computes all resamples; the data are the
resample that has each cluster once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from tirjudge.statistics import wilson_interval
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.metric_tree import (
    ComparisonScore,
    FormulaMetric,
    FormulaOfMeans,
    Mean,
    MeanMetric,
    MetricValue,
    Node,
)
from tirjudge_harness.statistics.clustered import clustered_mean, mean_interval, one_cell, share_interval

NUM_RESAMPLES = 1000
"""Default number of bootstrap resamples."""
MAX_RESAMPLES_OF_A_FORMULA = 200
"""Maximum number of resamples of a formula, which is computed in Python for each."""

_CHUNK_SIZE = 1 << 17
"""Number of clusters drawn per chunk of resamples, small enough for a CPU cache."""

_EQUAL = 1e-6
"""Relative difference of two values that counts as none."""

Array: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
Interval: TypeAlias = tuple[float, float]
"""Lower and upper end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A figure computed from several values, such as their mean, with its interval."""

    value: float | None
    """The figure. None: there are no values."""
    num: int
    """Number of values."""
    interval: Interval | None
    """95 % confidence interval. None: there are no values, several values of a single cluster, or nothing in the values that
    shows their variance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricInputs:
    """The comparison scores and examples that each node of a metric tree is computed from."""

    marks: Sequence[ComparisonScore]
    """All comparison scores."""
    holds: Mapping[Node, Mask]
    """Which comparison scores each node uses. A formula uses none."""
    judged: Mapping[Node, Sequence[JudgedExample]]
    """The examples that the formulas of each node use."""

    def clusters(self, node: Node) -> set[str]:
        """Return the clusters of the comparison scores and examples of a node."""
        of_marks = {mark.outline.cluster for mark, held in zip(self.marks, self.holds[node], strict=True) if held}
        return of_marks | {one.outline.cluster for one in self.judged[node]}


class ClusterSums:
    """Sums of the comparison scores of each cluster in each cell of a metric tree. A cell is a `MeanMetric`."""

    def __init__(self, inputs: MetricInputs) -> None:
        self.cells = [node for node in inputs.holds if isinstance(node, MeanMetric)]
        """The cells, in the order of the columns."""
        of_formulas = {one.outline.cluster for judged in inputs.judged.values() for one in judged}
        self.names = sorted({mark.outline.cluster for mark in inputs.marks} | of_formulas)
        """The clusters, in the order of the rows; those of formulas, too."""
        place = {name: index for index, name in enumerate(self.names)}
        held = (
            np.array([inputs.holds[cell] for cell in self.cells], dtype=float)
            .reshape(len(self.cells), len(inputs.marks))
            .T
        )
        credits = np.array([mark.credit for mark in inputs.marks], dtype=float)[:, None]
        codes = np.array([place[mark.outline.cluster] for mark in inputs.marks], dtype=np.int64)
        self.totals = _by_cluster(held * credits, codes, num_clusters=len(self.names))
        """Sums of scores, [clusters, cells]."""
        self.counts = _by_cluster(held, codes, num_clusters=len(self.names))
        """Numbers of scores, [clusters, cells]."""

    def weights(self, node: Node) -> Array | None:
        """Return the weight of each cell in the value of a node, adding up to 1; None: no value, or it has a formula."""
        if isinstance(node, MeanMetric):
            at = self.cells.index(node)
            return np.eye(len(self.cells))[at] if self.counts[:, at].any() else None
        if isinstance(node, FormulaMetric) or has_formula(node):
            return None
        parts = [self.weights(part) for part in node.parts]
        given = node.weights or (1.0,) * len(parts)
        found = [weight * part for weight, part in zip(given, parts, strict=True) if part is not None]
        total = np.sum(found, axis=0) if found and (len(found) == len(parts) or not node.whole) else np.zeros(1)
        return total / total.sum() if total.sum() > 0 else None


def has_formula(node: Node) -> bool:
    """Whether a node is computed by a formula, alone or among other parts."""
    return isinstance(node, FormulaMetric) or (isinstance(node, Mean) and any(map(has_formula, node.parts)))


def metric_inputs(
    sheet: Sequence[Node], marks: Sequence[ComparisonScore], judged: Sequence[JudgedExample]
) -> MetricInputs:
    """Return the comparison scores and examples of every node of a metric tree."""
    holds: dict[Node, Mask] = {}
    examples: dict[Node, list[JudgedExample]] = {}

    def visit(node: Node) -> None:
        match node:
            case MeanMetric():
                holds[node] = np.fromiter((node.holds(mark) for mark in marks), dtype=bool, count=len(marks))
                examples[node] = []
            case FormulaMetric():
                holds[node] = np.zeros(len(marks), dtype=bool)
                examples[node] = [one for one in judged if node.holds(one)]
            case Mean():
                for part in node.parts:
                    visit(part)
                holds[node] = np.any([np.zeros(len(marks), dtype=bool), *(holds[p] for p in node.parts)], axis=0)
                examples[node] = list({id(one): one for p in node.parts for one in examples[p]}.values())

    for node in sheet:
        visit(node)
    return MetricInputs(marks=marks, holds=holds, judged=examples)


def figures_of(
    sheet: Sequence[Node],
    marks: Sequence[ComparisonScore],
    judged: Sequence[JudgedExample],
    *,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = 0,
) -> list[MetricValue]:
    """Return the figures of a metric tree with their intervals. Each figure precedes its parts.

    Args:
        sheet: roots of the metric tree.
        marks: scores of the comparisons, for the nodes that are means.
        judged: examples, for formulas.
        num_resamples: number of bootstrap resamples; a figure with a formula uses at most `MAX_RESAMPLES_OF_A_FORMULA`.
        seed: seed of the resamples.
    """
    inputs = metric_inputs(sheet, marks, judged)
    is_drawn = any(isinstance(node, FormulaMetric) for node in inputs.holds)
    values = resampled(inputs, num_resamples=num_resamples if is_drawn else 0, seed=seed)
    sums = ClusterSums(inputs)
    return [_figure(node, depth=depth, values=values[node], inputs=inputs, sums=sums) for node, depth in walk(sheet)]


def value_of(node: Node, marks: Sequence[ComparisonScore], judged: Sequence[JudgedExample]) -> float | None:
    """Return the value of one figure; None if nothing that it is computed from was judged."""
    return number(resampled(metric_inputs([node], marks, judged), num_resamples=0)[node][0])


def share_of(values: Sequence[float], *, clusters: Sequence[str]) -> Estimate:
    """Return the mean of numbers between 0 and 1, with its interval.

    Args:
        values: the numbers.
        clusters: prompt of each number.
    """
    num, num_clusters, total = len(values), len(set(clusters)), float(np.sum(values))
    if not num:
        return Estimate(value=None, num=0, interval=None)
    if num_clusters == num:
        return Estimate(value=total / num, num=num, interval=wilson_interval(total, num_trials=num))
    found = one_cell(values, codes_of(clusters))
    return Estimate(value=total / num, num=num, interval=None if found is None else share_interval(found))


def clustered_share(pairs: Iterable[tuple[str, float]]) -> Estimate:
    """Return `share_of` for pairs of prompt and number."""
    found = list(pairs)
    return share_of([value for _, value in found], clusters=[cluster for cluster, _ in found])


def average_of(values: Sequence[float], *, clusters: Sequence[str]) -> Estimate:
    """Return the mean of any numbers, with its interval. Equal numbers have none, because they show no variance.

    Args:
        values: the numbers.
        clusters: prompt of each number.
    """
    if not values:
        return Estimate(value=None, num=0, interval=None)
    found = one_cell(values, codes_of(clusters))
    interval = None if found is None else mean_interval(found.value, variance=found.variance, num_free=found.num_free)
    return Estimate(value=float(np.mean(values)), num=len(values), interval=interval)


def resampled(inputs: MetricInputs, *, num_resamples: int, seed: int = 0) -> dict[Node, Array]:
    """Return the values of every node: first of the data, then of each resample. A missing value is NaN.

    Two runs over the same clusters have the same resamples under the same seed, so that their values can be subtracted.
    """
    formulas = [node for node in inputs.judged if isinstance(node, FormulaMetric)]
    sums = ClusterSums(inputs)
    place = {name: index for index, name in enumerate(sums.names)}
    values: dict[Node, Array] = {}
    if sums.cells:
        ratios = _ratios(sums.totals, sums.counts, num_resamples=num_resamples, seed=seed)
        values |= {cell: ratios[:, index] for index, cell in enumerate(sums.cells)}
    few = min(num_resamples, MAX_RESAMPLES_OF_A_FORMULA)
    for node in formulas:
        values[node] = _formula_values(node, inputs.judged[node], place=place, num_resamples=few, seed=seed)
    for node in inputs.holds:
        if isinstance(node, Mean):  # `inputs.holds` has the parts of a mean before the mean
            values[node] = _mean(node, values=values)
    return values


def walk(sheet: Sequence[Node]) -> Iterator[tuple[Node, int]]:
    """Yield each node with its depth, before its parts. A node in several places is yielded at the first one only."""
    seen: set[Node] = set()

    def below(nodes: Sequence[Node], *, depth: int) -> Iterator[tuple[Node, int]]:
        for node in nodes:
            if node not in seen:
                seen.add(node)
                yield node, depth
                if isinstance(node, Mean):
                    yield from below(node.parts, depth=depth + 1)

    return below(sheet, depth=0)


def number(value: float) -> float | None:
    """Return a float, or None for NaN."""
    return None if np.isnan(value) else float(value)


def codes_of(names: Sequence[str]) -> NDArray[np.int64]:
    """Return the index of each name among the sorted distinct names.

    Sorting makes draws independent of the order in which a run finished.
    """
    place = {name: index for index, name in enumerate(sorted(set(names)))}
    return np.array([place[name] for name in names], dtype=np.int64)


def draws(num_clusters: int, *, num_resamples: int, seed: int) -> Iterator[Array]:
    """Yield how often each resample draws each cluster, in chunks of shape [rows, num_clusters].

    The first row is the data: each cluster once.
    """
    yield np.ones((1, num_clusters))
    rng = np.random.default_rng(seed)
    chunk = max(1, _CHUNK_SIZE // max(1, num_clusters))
    for start in range(0, num_resamples if num_clusters else 0, chunk):
        rows = min(chunk, num_resamples - start)
        drawn = rng.integers(num_clusters, size=(rows, num_clusters))
        drawn += np.arange(rows)[:, None] * num_clusters
        yield np.bincount(drawn.ravel(), minlength=rows * num_clusters).reshape(rows, num_clusters).astype(float)


def middle_of(values: Array, *, num_clusters: int) -> Interval | None:
    """Return the 2.5th and 97.5th percentile of the resamples, widened to include the value of the data (`values[0]`).

    None: no value, fewer than two clusters, no resamples, or resamples that are all equal: their percentiles would wrongly
    show no uncertainty.
    """
    value, others = values[0], values[1:][~np.isnan(values[1:])]
    if np.isnan(value) or num_clusters < 2 or not others.size or np.ptp(others) <= _EQUAL * max(1.0, abs(value)):
        return None
    low, high = np.percentile(others, [2.5, 97.5])
    return min(float(low), float(value)), max(float(high), float(value))


def _drawn_interval(values: Array, *, num_clusters: int, bounded: bool) -> Interval | None:
    """Return `middle_of`, or Wilson's interval over the clusters if all comparisons are right or all are wrong."""
    if bounded and num_clusters > 1 and values[0] in (0.0, 1.0):
        return wilson_interval(float(values[0]) * num_clusters, num_trials=num_clusters)
    return middle_of(values, num_clusters=num_clusters)


def _figure(node: Node, *, depth: int, values: Array, inputs: MetricInputs, sums: ClusterSums) -> MetricValue:
    num_marks = int(inputs.holds[node].sum())
    if has_formula(node):
        num_clusters = len(inputs.clusters(node))
        interval = _drawn_interval(values, num_clusters=num_clusters, bounded=_is_bounded(node))
    else:
        interval = _closed_interval(node, num_marks=num_marks, value=float(values[0]), sums=sums)
    return MetricValue(
        name=node.name,
        depth=depth,
        value=number(values[0]),
        num_marks=num_marks + len(inputs.judged[node]),
        interval=interval,
    )


def _closed_interval(node: Node, *, num_marks: int, value: float, sums: ClusterSums) -> Interval | None:
    """Return the interval of a mean, or of a mean of means."""
    weights = sums.weights(node)
    if weights is None:
        return None
    if isinstance(node, MeanMetric) and sums.counts[:, sums.cells.index(node)].max() == 1:
        return wilson_interval(value * num_marks, num_trials=num_marks)
    found = clustered_mean(sums.totals, sums.counts, weights=weights)
    return None if found is None else share_interval(found)


def _is_bounded(node: Node) -> bool:
    if isinstance(node, Mean):
        return all(map(_is_bounded, node.parts))
    return isinstance(node, MeanMetric) or node.bounded


def _by_cluster(columns: Array, codes: NDArray[np.int64], *, num_clusters: int) -> Array:
    """Sum the rows of each cluster: [comparisons, metrics] -> [clusters, metrics]."""
    sums = np.zeros((num_clusters, columns.shape[1]))
    np.add.at(sums, codes, columns)
    return sums


def draw_sums(columns: Array, *, num_resamples: int, seed: int) -> Array:
    """Sum the drawn clusters of each resample: [clusters, columns] -> [1 + resamples, columns]. The first row is the
    sum of the data."""
    with threadpool_limits(limits=1, user_api="blas"):  # thin matrices are slower with several threads
        sums = [rows @ columns for rows in draws(len(columns), num_resamples=num_resamples, seed=seed)]
    return np.vstack(sums)


def _ratios(totals: Array, counts: Array, *, num_resamples: int, seed: int) -> Array:
    """Return the ratios of sums over the drawn clusters, of shape [1 + resamples, metrics]."""
    sums = draw_sums(np.hstack([totals, counts]), num_resamples=num_resamples, seed=seed)
    num_cells = totals.shape[1]
    with np.errstate(invalid="ignore"):
        return sums[:, :num_cells] / sums[:, num_cells:]


def _mean(node: Mean, *, values: Mapping[Node, Array]) -> Array:
    """Return the weighted mean of the parts. A part without a value is left out together with its weight."""
    rows = min((len(values[part]) for part in node.parts), default=1)
    parts = np.array([values[part][:rows] for part in node.parts]).reshape(len(node.parts), rows)
    weights = np.ones(len(node.parts)) if node.weights is None else np.array(node.weights, dtype=float)
    present = ~np.isnan(parts)
    with np.errstate(invalid="ignore"):
        means = (weights @ np.where(present, parts, 0.0)) / (weights @ present)
    return np.where(present.all(axis=0), means, np.nan) if node.whole else means


def _formula_values(
    formula: FormulaMetric, judged: Sequence[JudgedExample], *, place: Mapping[str, int], num_resamples: int, seed: int
) -> Array:
    if isinstance(formula.compute, FormulaOfMeans):
        return _values_of_means(formula.compute, judged, place=place, num_resamples=num_resamples, seed=seed)
    by_cluster: dict[int, list[JudgedExample]] = defaultdict(list)
    for one in judged:
        by_cluster[place[one.outline.cluster]].append(one)
    copies: dict[tuple[int, int], list[JudgedExample]] = {}
    values: list[float] = []
    for rows in draws(len(place), num_resamples=num_resamples, seed=seed):
        for row in rows.astype(int):
            drawn: list[JudgedExample] = []
            for code, members in sorted(by_cluster.items()):
                for copy in range(row[code]):
                    if (code, copy) not in copies:
                        copies[code, copy] = [_copy(one, copy=copy) for one in members]
                    drawn += copies[code, copy]
            value = formula.compute(drawn) if drawn else None
            values.append(np.nan if value is None else value)
    return np.array(values)


def _values_of_means(
    formula: FormulaOfMeans,
    judged: Sequence[JudgedExample],
    *,
    place: Mapping[str, int],
    num_resamples: int,
    seed: int,
) -> Array:
    found = [(place[one.outline.cluster], numbers) for one in judged if (numbers := formula.each(one)) is not None]
    if not found:
        return np.full(1 + num_resamples, np.nan)
    columns = np.array([*zip(*(numbers for _, numbers in found), strict=False), (1.0,) * len(found)]).T
    codes = np.array([code for code, _ in found], dtype=np.int64)
    sums = draw_sums(_by_cluster(columns, codes, num_clusters=len(place)), num_resamples=num_resamples, seed=seed)
    values = [formula.value((row[:-1] / row[-1]).tolist()) if row[-1] else None for row in sums]
    return np.array([np.nan if value is None else value for value in values])


def _copy(judged: JudgedExample, *, copy: int) -> JudgedExample:
    """Return copy number `copy` of an example, with a different id and cluster, so that repeated draws count separately."""
    if not copy:
        return judged
    outline = judged.outline
    renamed = replace(outline, id=f"{outline.id}#{copy}", cluster=f"{outline.cluster}#{copy}")
    return replace(judged, outline=renamed)
